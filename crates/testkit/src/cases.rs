//! A runner for tests whose processes start their own program again: `main` is then that of the children too.

use std::panic::catch_unwind;
use std::process::ExitCode;

/// A case; `Err` is why this machine cannot run it.
pub type Case = fn() -> Result<(), String>;

/// Runs the named cases one by one, in order: all, or those whose name has the first argument that is no option. Ends with a
/// line of totals.
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
