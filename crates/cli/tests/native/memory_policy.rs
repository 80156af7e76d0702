//! The statistics report the program's process-wide memory settings.

use serde_json::Value;

use super::Programs;

#[test]
fn statistics_report_memory_policies_of_the_program() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("memory_policy.c", &[]);
    let ran = programs.on_native(&["--stats", "json"], &program, &[]);
    if ran.status.code() == Some(77) {
        return eprintln!("skipped: PR_SET_THP_DISABLE or mlock is not allowed (ulimit -l)");
    }
    let output: Value = serde_json::from_slice(&ran.stderr).expect("a line of JSON");
    assert_eq!(
        (&output["thp_disable"], &output["locked_bytes"]),
        (&Value::from(1), &Value::from(32 << 10)),
        "{output}"
    );
    let ran = programs.on_native(&["--stats", "text"], &program, &[]);
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(text.contains("switched huge pages off for itself (PR_SET_THP_DISABLE)"), "{text}");
    let other = programs.on_native(&["--stats", "text"], &program, &["neither".as_ref()]);
    let text = String::from_utf8_lossy(&other.stderr);
    assert!(text.contains("thp_disable") && !text.contains("PR_SET"), "{text}");
}
