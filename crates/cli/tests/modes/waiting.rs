//! Two processes that set the machine's modes: the second waits.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::Stdio;

use super::alone;
use super::support::Bench;

/// Holds the lock that a process takes while it changes the machine's modes.
#[test]
fn a_run_that_sets_modes_waits_for_another() {
    let _alone = alone();
    let Ok(lock) = File::open(hksim_conformance::LOCKED) else {
        return eprintln!("skipped: no {}", hksim_conformance::LOCKED);
    };
    // Waits for tests of other crates that hold the modes.
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let bench = Bench::new();
    std::fs::write(bench.path("s.txt"), "w 0 1 1\n").expect("a script");
    let mut command = bench.command("rules --script s.txt --set-modes");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("hksim starts");
    let mut message = String::new();
    BufReader::new(child.stderr.take().expect("stderr is piped")).read_line(&mut message).expect("text");
    assert!(message.contains("another process has changed this machine's modes"), "{message}");
    assert!(child.try_wait().expect("a child").is_none(), "the run did not wait");
    drop(lock);
    assert!(child.wait().expect("it ends").success());
}
