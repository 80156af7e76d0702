//! Programs in C, compiled when a test runs, and oracles among them, which are removed afterwards.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Compiles a source file in C, or in C++ if its name ends in `.cc`, in the folder of the program, where a relative path
/// begins. The flags follow the source. `None` without a compiler; the reason is printed.
///
/// # Panics
/// If the source does not compile.
pub fn compile(source: impl AsRef<Path>, program: impl AsRef<Path>, flags: &[&str]) -> Option<()> {
    build(source.as_ref(), program.as_ref(), flags).map_err(|reason| println!("skipped: {reason}")).ok()
}

fn build(source: &Path, program: &Path, flags: &[&str]) -> Result<(), String> {
    let compiler = if source.extension().is_some_and(|ending| ending == "cc") { "g++" } else { "cc" };
    let mut command = Command::new(compiler);
    command.current_dir(program.parent().expect("the program's folder")).arg("-o").arg(program).arg(source);
    let built = command.args(flags).output().map_err(|error| format!("no C compiler: {compiler}: {error}"))?;
    let printed = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{compiler} failed on {}: {printed}", source.display());
    Ok(())
}

/// An oracle.
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
        build(Path::new(source), &path, &["-O2"])?;
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
