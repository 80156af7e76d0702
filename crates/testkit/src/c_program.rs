//! An oracle in C, compiled when the test runs and removed afterwards.

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
    /// Compiles a source file with `-O2` into a folder.
    ///
    /// # Errors
    /// There is no C compiler.
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

    /// The program's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The program's output for this input.
    ///
    /// # Panics
    /// If the program does not start, fails, or prints invalid UTF-8.
    pub fn output(&self, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the compiled program starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let output = std::thread::scope(|scope| {
            // An error is ignored: the program may exit before it has read everything. Its status is checked below.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output().expect("the program ends")
        });
        assert!(output.status.success(), "the oracle failed: {}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for CProgram {
    fn drop(&mut self) {
        // If this fails, a file remains in the build folder.
        let _ = std::fs::remove_file(&self.path);
    }
}
