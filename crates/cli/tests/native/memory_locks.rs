//! A program locks all its memory. Its blocks are present and locked as with another allocator; the arena as a whole is
//! not.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::Programs;

/// Address space of the first run: small enough that populating a whole arena by mistake does no harm.
const ADDRESS_SPACE_BYTES: libc::rlim_t = 4 << 30;

#[test]
fn mlockall_locks_the_blocks_but_not_the_arena() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("memory_locks.c", &[]);
    let expected = Command::new(&program).output().expect("the program starts");
    if expected.status.code() == Some(77) {
        return eprintln!("skipped: mlockall is not allowed (ulimit -l)");
    }
    let wanted = String::from_utf8_lossy(&expected.stdout);
    assert!(wanted.contains("current: 40 blocks present, bounded, locked"), "on glibc: {wanted}");
    let mut limited = Command::new(env!("CARGO_BIN_EXE_hksim"));
    limited.arg("run").arg("--").arg(&program).env("XDG_CACHE_HOME", programs.folder.path());
    let limit = libc::rlimit { rlim_cur: ADDRESS_SPACE_BYTES, rlim_max: ADDRESS_SPACE_BYTES };
    // SAFETY: a system call that reads `limit`, and nothing else, between fork and exec.
    unsafe {
        limited.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let ran = limited.output().expect("hksim starts");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), wanted, "in a small arena: {ran:?}");
    programs.compare(&program, &[]);
}

/// A purge that unmaps leaves a temporary hole. `mlockall` in another thread must still lock the memory around it.
#[test]
fn mlockall_works_while_other_threads_purge() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("memory_locks_purged.c", &[]);
    let wanted = "0 of 40 calls failed, 40 of 40 blocks present\n";
    let keeps_nothing =
        ["--huge", "never", "--purge-delay", "0", "--purge-spans", "yes", "--cache", "0", "--huge-cache", "0"];
    for policy in [["--purge", "unmap"], ["--purge", "dontneed"]] {
        let ran = programs.on_native(&[&policy[..], &keeps_nothing].concat(), &program, &[]);
        if ran.status.code() == Some(77) {
            return eprintln!("skipped: mlockall is not allowed (ulimit -l)");
        }
        assert_eq!(String::from_utf8_lossy(&ran.stdout), wanted, "{policy:?}: {ran:?}");
    }
}
