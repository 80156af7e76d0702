//! The inspected program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hksim_inspect::{Inspection, inspect};
use hksim_testkit::compile;
use tempfile::TempDir;

/// A running `ranges.c`.
pub struct Target {
    child: Child,
    requests: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The ranges that it made: address and description.
    pub ranges: BTreeMap<u64, String>,
    _folder: TempDir,
}

impl Target {
    /// Starts the program; `None`, with the reason printed, without a C compiler.
    pub fn start(seed: u64, number: u32) -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        let program = folder.path().join("ranges");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/ranges.c");
        compile(source, &program, &["-O1"])?;
        let mut child = Command::new(&program)
            .args([seed.to_string(), number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let requests = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut target = Self { child, requests, output, ranges: BTreeMap::new(), _folder: folder };
        for line in target.lines_until("ready") {
            let (address, words) = line.strip_prefix("range ").and_then(|line| line.split_once(' ')).expect("a range");
            target.ranges.insert(u64::from_str_radix(address, 16).expect("an address"), words.to_string());
        }
        assert_eq!(target.ranges.len(), number as usize);
        Some(target)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it do something, and returns what it prints.
    pub fn ask(&mut self, request: &str) -> Vec<String> {
        writeln!(self.requests, "{request}").expect("the program runs");
        self.requests.flush().expect("the program runs");
        self.lines_until("done")
    }

    /// Inspects it.
    pub fn inspected(&self) -> Inspection {
        inspect(self.pid()).expect("the program runs")
    }

    fn lines_until(&mut self, end: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("text"), 0, "the program runs");
            match line.trim() {
                line if line == end => return lines,
                line => lines.push(line.to_string()),
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
