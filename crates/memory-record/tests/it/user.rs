//! Recording by a user without rights. As root, the tests run themselves as such a user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hksim_memory_record::{AttachOptions, HugePagesOfRunning, Source, attach};
use hksim_memory_trace::{Calls, Faults};
use tempfile::TempDir;

use crate::support::{compiled, is_root, options, recorded};

/// Names the directory with the program for the run as another user.
const DIRECTORY: &str = "HKSIM_TEST_USER_DIRECTORY";
/// User and group `nobody`.
const NOBODY: &str = "65534";

/// Records in the directory as the present user.
fn record_in(directory: &Path) {
    let file = directory.join("user.hkm");
    let Some(report) = recorded(&options(&file, Source::Auto), &directory.join("operations"), &["5", "1000"]) else {
        return;
    };
    assert_eq!(report.visibility.calls, Calls::Stops);
    assert_ne!(report.visibility.faults, Faults::Accesses);
    crate::operations::check(&report, &file, "5");
    // What the kernel gives only to root.
    let why = hksim_memory_record::record(&options(&file, Source::Tracepoints), &["true".into()]);
    assert!(why.expect_err("no rights").to_string().contains("run as root"));
    // A process of one's own that runs already.
    let mut own = Command::new("sleep").arg("100").spawn().expect("a program");
    let options = AttachOptions {
        output: directory.join("own.hkm"),
        duration: None,
        huge_pages: HugePagesOfRunning::Unchanged,
        stack_depth: None,
    };
    let why = attach(&options, own.id(), || {}, || true).expect_err("no rights").to_string();
    for part in [
        &format!("process {}: cannot be recorded", own.id()),
        "CAP_PERFMON",
        "perf_event_paranoid is",
        "hksim record --memory",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", own.id())).expect("it runs");
    assert!(status.contains("TracerPid:\t0") && !directory.join("own.hkm").exists());
    own.kill().and_then(|()| own.wait()).expect("it ends");
    let root = attach(&options, 1, || {}, || true).expect_err("another user's").to_string();
    assert!(root.contains("it belongs to the user with id 0"), "{root}");
}

#[test]
fn a_user_without_rights_can_record() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return record_in(Path::new(&directory));
    }
    let directory = TempDir::new().expect("a directory");
    if compiled(directory.path(), "operations.c").is_none() {
        return;
    }
    if !is_root() {
        return record_in(directory.path());
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("a directory for all");
    let tests = directory.path().join("tests");
    let own = std::env::current_exe().expect("this program");
    // By a process of its own: a descriptor that another test's child inherits would keep the copy from being executed.
    let copied = Command::new("cp").arg(own).arg(&tests).status().expect("cp");
    assert!(copied.success(), "a copy of this program that the other user can read");
    let mut run = Command::new("setpriv");
    run.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all"]).arg(&tests);
    run.args(["--exact", "--nocapture", "user::a_user_without_rights_can_record"]);
    match run.env(DIRECTORY, directory.path()).current_dir(directory.path()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            eprint!("{said}");
            assert!(output.status.success(), "as user {NOBODY}: {}", String::from_utf8_lossy(&output.stdout));
        }
        Err(why) => eprintln!("skipped: setpriv: {why}"),
    }
}
