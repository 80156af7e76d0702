//! Runs the program under strace, and reads what it prints and calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use hksim_testkit::CProgram;
use tempfile::TempDir;

use super::libraries::Subject;
use super::observable::Figure;

/// The mode in which allocators that ask for huge pages differ from those that do not.
const MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Runs loads in a folder of its own.
pub struct Player {
    program: CProgram,
    runs: AtomicU64,
    folder: TempDir,
}

/// One run.
pub struct Observed {
    printed: BTreeMap<String, i64>,
    calls: Vec<String>,
    load: std::ops::Range<usize>,
}

impl Player {
    /// Compiles the program.
    ///
    /// # Errors
    /// Why this machine cannot play settings.
    pub fn new() -> Result<Player, String> {
        let mode = fs::read_to_string(MODE).unwrap_or_default();
        if !mode.contains("[madvise]") {
            return Err("transparent huge pages are not in mode madvise".into());
        }
        Command::new("strace").arg("-V").output().map_err(|why| format!("strace is not installed: {why}"))?;
        let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/settings/play.c");
        let program = CProgram::compile(source, &folder.path().display().to_string())?;
        Ok(Player { program, runs: AtomicU64::new(0), folder })
    }

    /// Where files of a test are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Begins the names of files that stand for those of a hugetlbfs: what is observed is that the allocator opens them.
    pub fn file(&self) -> String {
        self.folder().join("hugetlbfs").display().to_string()
    }

    /// Runs a load on a library with a setting, variables separated by blanks. The variables are the program's alone:
    /// strace itself must not be preloaded, as it would hand its own prctl down.
    pub fn observe(&self, subject: &Subject, load: &str, setting: &str) -> Observed {
        let list = self.folder().join(format!("calls-{}", self.runs.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new("strace");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.args(["-f", "-qq", "-e", "trace=%memory,prctl,openat,access", "-o"]).arg(&list);
        let preload = subject.path.iter().map(|path| format!("LD_PRELOAD={}", path.display()));
        for variable in preload.chain(setting.split_whitespace().map(String::from)) {
            command.args(["-E", &variable]);
        }
        let output = command.arg(self.program.path()).arg(load).output().expect("strace runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {load} {setting}: {}: {message}", subject.name(), output.status);
        let calls: Vec<String> =
            fs::read_to_string(&list).expect("a list of calls").lines().map(String::from).collect();
        fs::remove_file(&list).expect("a file of this test");
        let mark = |text: &str| calls.iter().position(|call| call.contains(text)).expect("a mark of the program");
        let load = mark("\"load begins\"")..mark("\"load ends\"");
        let printed = String::from_utf8_lossy(&output.stdout).lines().filter_map(printed).collect();
        Observed { printed, calls, load }
    }
}

fn printed(line: &str) -> Option<(String, i64)> {
    let (name, value) = line.split_once(' ')?;
    Some((name.to_string(), value.parse().ok()?))
}

impl Observed {
    /// A figure of the run.
    ///
    /// # Panics
    /// If the load does not print it.
    pub fn figure(&self, figure: &Figure) -> i64 {
        let count = |calls: &[String], word: &str| calls.iter().filter(|call| is_call(call, word)).count() as i64;
        match figure {
            Figure::Printed(name) => *self.printed.get(name).unwrap_or_else(|| panic!("no figure {name}")),
            Figure::Calls(word) => count(&self.calls[self.load.clone()], word),
            Figure::AllCalls(word) => count(&self.calls, word),
        }
    }
}

/// Whether a line of strace has the word. `mmap(64K)` is a call that maps 64 KiB.
fn is_call(line: &str, word: &str) -> bool {
    match word.strip_prefix("mmap(").and_then(|size| size.strip_suffix("K)")) {
        Some(kib) => {
            let bytes = kib.parse::<u64>().expect("a size in KiB") << 10;
            line.contains(" mmap(") && line.contains(&format!(", {bytes}, "))
        }
        None => line.contains(word),
    }
}

#[test]
fn sizes_of_mappings_are_compared_as_numbers() {
    let line = "7 mmap(NULL, 65536, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000";
    assert!(is_call(line, "mmap(64K)") && !is_call(line, "mmap(4K)"));
    assert!(is_call(line, "MAP_ANONYMOUS") && !is_call(line, "MADV_FREE"));
}
