//! Running `hksim`, and small traces to run it on.
#![allow(dead_code)] // each test binary uses only some of these items

pub mod recordings;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory in which commands run.
pub struct Bench {
    folder: TempDir,
    cache: PathBuf,
}

impl Bench {
    /// An empty directory.
    pub fn new() -> Bench {
        let folder = TempDir::with_prefix("hksim-command-").expect("a temporary folder");
        Bench { folder, cache: Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache") }
    }

    /// A directory with a short `rm.hkt` (random-mixed) in it.
    pub fn with_trace() -> Bench {
        let bench = Bench::new();
        bench.ok("gen random-mixed --cycles 20k --ws 400 --min 100 --max 3k -o rm.hkt");
        bench
    }

    /// Compiles a source, by a path that begins in the directory, to a program in the directory.
    pub fn compile(&self, source: impl AsRef<Path>, program: &str, flags: &[&str]) -> Option<()> {
        hksim_testkit::compile(source, self.path(program), flags)
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that is not started yet. The words of `line` are separated by spaces.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hksim"));
        command.args(line.split_whitespace()).current_dir(self.folder()).env("XDG_CACHE_HOME", &self.cache);
        command
    }

    /// Makes commands keep profiles in this directory and find them there. Otherwise they find none: a developer's own
    /// profile must not change results.
    pub fn keep_profiles(&mut self) {
        self.cache = self.folder().join("cache");
    }

    /// Runs a command.
    pub fn run(&self, line: &str) -> Ran {
        Ran::of(line, self.command(line).output().expect("hksim starts"))
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        ran.stdout
    }

    /// Runs a line of a document in a shell, in a folder of the directory.
    pub fn shell(&self, folder: &str, line: &str) -> Ran {
        let program = Path::new(env!("CARGO_BIN_EXE_hksim")).parent().expect("a folder");
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-c", line]).current_dir(self.path(folder)).env("PATH", path).env("XDG_CACHE_HOME", &self.cache);
        Ran::of(line, shell.output().expect("bash starts"))
    }

    /// Runs a command that must succeed, and reads its JSON.
    pub fn json(&self, line: &str) -> Value {
        let text = self.ok(&format!("{line} --format json"));
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{line}: {why}: {text}"))
    }

    /// Runs a command that must be refused with one line. Returns the line.
    pub fn refused(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout, "", "{line}: printed a result");
        assert!(ran.stderr.starts_with("hksim: "), "{line}: {}", ran.stderr);
        assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{line}: more than one line: {}", ran.stderr);
        ran.stderr
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// What a command printed, which must not be a panic.
    pub fn of(line: &str, output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_else(|why| panic!("{line}: {why}"));
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
        Ran { code: output.status.code(), stdout, stderr }
    }
}

/// Whether a validated prediction has single pages where no 2 MiB pages are. Otherwise prints why the test is skipped:
/// this machine installs folios of a size in between.
pub fn has_single_pages(predicted: &Value) -> bool {
    let thp = &predicted["kernel"]["thp"];
    let enabled = |mode: &Value| if mode == "inherit" { thp["global"] != "never" } else { mode != "never" };
    let sizes = thp["sizes"].as_object().expect("sizes of huge pages");
    let folios: Vec<&str> =
        sizes.iter().filter(|(size, mode)| *size != "2M" && enabled(mode)).map(|(size, _)| size.as_str()).collect();
    if !folios.is_empty() {
        eprintln!("skipped: sizes of huge pages below 2M are on: {}", folios.join(", "));
    }
    folios.is_empty()
}

/// The JSON of a file.
pub fn json_of(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The commands of a report that begin with this text, as a shell reads them.
pub fn commands_of(html: &str, beginning: &str) -> Vec<String> {
    let start = format!("{beginning}: <code>");
    let parts = html.split(start.as_str()).skip(1);
    let lines = parts.map(|part| part.split("</code>").next().expect("a command"));
    let plain =
        |line: &str| line.replace("&gt;", ">").replace("&lt;", "<").replace("&quot;", "\"").replace("&amp;", "&");
    lines.map(plain).collect()
}

/// A number in a result, by its path: `installs.by_kind.thp`.
pub fn number(value: &Value, path: &str) -> u64 {
    let found = path.split('.').fold(value, |value, name| &value[name]);
    found.as_u64().unwrap_or_else(|| panic!("{path}: {found} is not a count"))
}

/// Removes the fields that may differ between runs, at every depth.
pub fn without_times(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("elapsed_s");
                fields.remove("environment");
                fields.remove("command");
                fields.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            _ => (),
        }
    }
    strip(&mut value);
    value
}
