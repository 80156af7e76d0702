//! A kernel that deviates from the rules must be detected, and the rule named. The kernel is changed from outside:
//! settings and seccomp filters that `hksim` inherits and that /sys does not show.

use std::io;
use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::support::Bench;

/// The upper 32 bits of addresses in a replay's reservation. It is at 2^45, where nothing else is mapped.
const RESERVATION: u32 = 0x2000;
const MADV_HUGEPAGE: u32 = 14;
const MADV_DONTNEED: u32 = 4;
const MADV_FREE: u32 = 8;
const MADV_POPULATE_WRITE: u32 = 23;
const MADV_COLLAPSE: u32 = 25;

/// The change to the kernel that `hksim` sees.
#[derive(Clone, Copy)]
enum Sabotage {
    /// No transparent huge pages, by prctl.
    NoHugePages,
    /// Calls of madvise with this advice on the reservation do nothing, and return this errno (0: success).
    Madvise { advice: u32, errno: u32 },
}

impl Sabotage {
    /// Runs between fork and exec, so it makes system calls only.
    fn apply(self) -> io::Result<()> {
        let done = match self {
            // SAFETY: a setting of this process.
            Sabotage::NoHugePages => unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0 },
            Sabotage::Madvise { advice, errno } => filter_madvise(advice, errno),
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Installs a seccomp filter on the system call, its address range and its advice.
fn filter_madvise(advice: u32, errno: u32) -> bool {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // struct seccomp_data: number at 0, arguments of 8 bytes from 16 on, little-endian.
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 5, libc::SYS_madvise as u32),
        step(LOAD, 0, 0, 16 + 4),
        step(JUMP_EQUAL, 0, 3, RESERVATION),
        step(LOAD, 0, 0, 16 + 2 * 8),
        step(JUMP_EQUAL, 0, 1, advice),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: settings of this process; the kernel copies the program.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

/// One row of a validation under sabotage. Returns the exit status and the row.
fn validated(bench: &Bench, policy: &str, sabotage: Option<Sabotage>) -> (Option<i32>, Value) {
    let mut command = bench.command(&format!("validate server.hkt --arena 1G {policy} --format json"));
    if let Some(sabotage) = sabotage {
        // SAFETY: `apply` makes system calls only.
        unsafe { command.pre_exec(move || sabotage.apply()) };
    }
    let output = command.output().expect("hksim starts, and the sabotage is allowed");
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("{policy}: {why}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), result["rows"][0].clone())
}

#[test]
fn sabotage_is_detected_and_the_rule_named() {
    let bench = Bench::new();
    bench.ok("gen server --live 8M --events 40k --threads 2 -o server.hkt");
    let einval = libc::EINVAL as u32;
    let cases = [
        ("--huge thp", Sabotage::NoHugePages, "R1 "),
        ("--huge thp", Sabotage::Madvise { advice: MADV_HUGEPAGE, errno: 0 }, "R1 "),
        ("--huge never --purge-delay 0", Sabotage::Madvise { advice: MADV_DONTNEED, errno: 0 }, "R7"),
        (
            "--huge never --prefault populate-write",
            Sabotage::Madvise { advice: MADV_POPULATE_WRITE, errno: einval },
            "R24b ",
        ),
        ("--huge never --purge free --purge-delay 0", Sabotage::Madvise { advice: MADV_FREE, errno: 0 }, "R9 "),
        ("--huge collapse", Sabotage::Madvise { advice: MADV_COLLAPSE, errno: einval }, "R12 "),
    ];
    for (policy, sabotage, rule) in cases {
        let (code, row) = validated(&bench, policy, None);
        if row["verdict"] != "ok" {
            assert_eq!(row["verdict"], "skipped", "{policy}: {}", row["reason"]);
            eprintln!("skipped: {policy}: {}", row["reason"]);
            continue;
        }
        assert_eq!(code, Some(0), "{policy}");
        let (code, row) = validated(&bench, policy, Some(sabotage));
        let reason = row["reason"].as_str().unwrap_or_default();
        assert_eq!((code, row["verdict"].as_str()), (Some(1), Some("failed")), "{policy}: {reason}");
        assert!(reason.starts_with("layout residual 0, rule residual "), "{policy}: {reason}");
        assert!(reason.contains(rule), "{policy}: {rule} is not named: {reason}");
        eprintln!("{policy}: {reason}");
    }
}
