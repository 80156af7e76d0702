//! The Python module `hksim` with the program that was built; test.sh runs the same checks on the installed wheel.

use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn python_returns_the_figures_of_the_program() {
    let python = env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has_packages = Command::new(&python).args(["-c", "import pandas, zstandard"]).output();
    if !has_packages.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no packages pandas and zstandard");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_BIN_EXE_hksim"));
    let mut check = Command::new(&python);
    check.arg(root.join("python/tests/check.py")).arg(program);
    // An installed wheel has another program.
    check.env("PYTHONPATH", root.join("python")).env("HKSIM_PROGRAM", program);
    let output = check.output().expect("python starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("checks of the module hksim"), "{printed}");
}
