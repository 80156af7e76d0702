//! What cannot be inspected gives one clear error.

use std::process::{Command, Stdio};

use hksim_inspect::{InspectError, inspect};

fn message(pid: u32) -> String {
    inspect(pid).err().map_or_else(|| panic!("process {pid} was inspected"), |why| why.to_string())
}

#[test]
fn a_process_without_memory_is_named() {
    // Ids are below 2^22.
    assert_eq!(message(1 << 23), format!("there is no process {}", 1 << 23));
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        assert_eq!(
            message(2),
            "process 2 (kthreadd) cannot be inspected: it is a kernel thread, which has no memory of its own"
        );
    }
    let mut zombie = Command::new("true").spawn().expect("it starts");
    let pid = zombie.id();
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::yield_now();
    }
    let refused = inspect(pid);
    assert!(matches!(refused, Err(InspectError::NoMemory { .. })), "{refused:?}");
    zombie.wait().expect("its status");
    assert!(matches!(inspect(pid), Err(InspectError::NoProcess { .. })));
}

/// Another user may not read a process of root.
#[test]
fn another_users_process_is_refused() {
    // SAFETY: has no precondition.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: needs root to become another user");
    }
    let own = std::process::id();
    let exe = std::env::current_exe().expect("a path");
    // The test itself, as another user, which inspects this process.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&exe);
    command
        .args(["--exact", "--nocapture", "refusals::inspects_the_given_process"])
        .env("HKSIM_INSPECT_PID", own.to_string());
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        return eprintln!("skipped: setpriv is not installed");
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    if printed.is_empty() {
        return eprintln!("skipped: the other user cannot execute the test");
    }
    let wanted = "cannot be read: it belongs to the user with id 0; run hksim as that user or as root";
    assert!(printed.contains(wanted), "{printed}");
}

/// Not a test by itself: what [`another_users_process_is_refused`] runs as another user.
#[test]
fn inspects_the_given_process() {
    if let Some(pid) = std::env::var("HKSIM_INSPECT_PID").ok().and_then(|pid| pid.parse().ok()) {
        println!("{}", message(pid));
    }
}
