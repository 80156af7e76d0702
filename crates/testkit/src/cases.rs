//! A runner for tests that execute their own program again and therefore need their own `main`.

use std::panic::catch_unwind;
use std::process::ExitCode;

/// A test case. `Err` contains the reason why this machine cannot run it.
pub type Case = fn() -> Result<(), String>;

/// Runs the cases one by one, in order, and prints a line of totals. If an argument is not an option, runs only the
/// cases with this argument in their names.
pub fn run(cases: &[(&str, Case)], arguments: &[String]) -> ExitCode {
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, case) in cases.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str()))) {
        let verdict = match catch_unwind(case) {
            Ok(Ok(())) => {
                passed += 1;
                "ok".into()
            }
            Ok(Err(reason)) => {
                skipped += 1;
                format!("skipped: {reason}")
            }
            Err(_) => {
                failed += 1;
                "FAILED".into()
            }
        };
        eprintln!("test {name} ... {verdict}");
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    eprintln!("test result: {result}. {passed} passed; {failed} failed; {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}
