//! The system-call filter (seccomp) of a traced program: it stops the program at memory calls. All other calls run at
//! full speed.
//!
//! A filter needs `CAP_SYS_ADMIN` or `no_new_privs`. With `no_new_privs` the program cannot gain rights: setuid programs
//! and file capabilities (`sudo`, `ping`) run with the user's own rights. The kernel withholds these rights from a
//! program that an ordinary user traces in any case.

use std::io;

use libc::{c_long, c_uint, c_ushort, sock_filter, sock_fprog};

use crate::calls;

/// `AUDIT_ARCH_*` of this program's own calls. Calls of 32-bit programs have other numbers and are not filtered.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// Whether the kernel can stop a program at calls that a filter selects.
pub fn is_available() -> io::Result<()> {
    let action: c_uint = libc::SECCOMP_RET_TRACE;
    // SAFETY: the kernel reads four bytes.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) })
}

/// The filter: [`libc::SECCOMP_RET_TRACE`] for the calls in [`calls::numbers`].
pub fn program() -> Vec<sock_filter> {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let give = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let numbers: Vec<i64> = calls::numbers().collect();
    let count = numbers.len() as u8;
    // The two results are at the end: first "allow", then "trace".
    let mut program = vec![load(ARCHITECTURE_AT), jump_if_equal(ARCHITECTURE, 0, count + 1), load(NUMBER_AT)];
    for (number, remaining) in numbers.into_iter().zip((1..=count).rev()) {
        program.push(jump_if_equal(number as u32, remaining, 0));
    }
    program.extend([give(libc::SECCOMP_RET_ALLOW), give(libc::SECCOMP_RET_TRACE)]);
    program
}

fn statement(code: c_uint, k: u32) -> sock_filter {
    sock_filter { code: code as c_ushort, jt: 0, jf: 0, k }
}

/// Skips `equal` statements if the loaded word is `k`, else `other`.
fn jump_if_equal(k: u32, equal: u8, other: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as c_ushort, jt: equal, jf: other, k }
}

/// Installs a filter for this process and its descendants. Called between fork and exec: makes only system calls.
///
/// # Errors
/// The kernel refuses the filter.
pub fn install(program: &[sock_filter]) -> io::Result<()> {
    let program = sock_fprog { len: program.len() as c_ushort, filter: program.as_ptr().cast_mut() };
    // Without this flag, kernels before 5.16 switch a processor optimisation off, which slows the program down.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let set = || {
        // SAFETY: the kernel copies the program, whose length is given.
        checked(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
    };
    match set() {
        Err(why) if why.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: numbers only.
            checked(c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
            set()
        }
        done => done,
    }
}

fn checked(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would, for the statements used here.
    fn action(program: &[sock_filter], architecture: u32, number: u32) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let statement = program[at];
            at += 1;
            match u32::from(statement.code) {
                0x20 => word = if statement.k == 0 { number } else { architecture },
                0x15 => at += usize::from(if word == statement.k { statement.jt } else { statement.jf }),
                0x06 => return statement.k,
                code => panic!("statement {code:#x}"),
            }
        }
    }

    #[test]
    fn memory_calls_stop_and_others_do_not() {
        let program = program();
        let (trace, allow) = (libc::SECCOMP_RET_TRACE, libc::SECCOMP_RET_ALLOW);
        for number in 0..600 {
            let is_memory = calls::numbers().any(|memory| memory == i64::from(number));
            assert_eq!(action(&program, ARCHITECTURE, number), if is_memory { trace } else { allow }, "{number}");
            assert_eq!(action(&program, 0x4000_0003, number), allow, "a 32-bit call");
        }
        assert_eq!(action(&program, ARCHITECTURE, 0x4000_0000 | libc::SYS_mmap as u32), allow, "an x32 call");
    }
}
