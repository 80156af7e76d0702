//! An oracle written in C: compiled when the test runs, removed afterwards.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// A compiled program.
pub struct CProgram {
    path: PathBuf,
}

static COMPILED: AtomicU64 = AtomicU64::new(0);

impl CProgram {
    /// Compiles into a folder, with `-O2`.
    ///
    /// # Errors
    /// Why it cannot be had here: there is no C compiler.
    ///
    /// # Panics
    /// If the source does not compile.
    pub fn compile(source: &str, folder: &str) -> Result<Self, String> {
        let name = format!("oracle-{}-{}", std::process::id(), COMPILED.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(folder).join(name);
        match Command::new("cc").args(["-O2", "-o"]).arg(&path).arg(source).status() {
            Ok(status) => assert!(status.success(), "cc failed on {source}"),
            Err(error) => return Err(format!("no C compiler: {error}")),
        }
        Ok(Self { path })
    }

    /// What it prints for this input.
    ///
    /// # Panics
    /// If it does not start, fails, or prints no text.
    pub fn output(&self, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the compiled program starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let output = std::thread::scope(|scope| {
            // Ignored where the program ends without reading all of it; its status tells.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output().expect("the program ends")
        });
        assert!(output.status.success(), "the oracle failed: {}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for CProgram {
    fn drop(&mut self) {
        // Only a leftover in the build folder if this fails.
        let _ = std::fs::remove_file(&self.path);
    }
}
