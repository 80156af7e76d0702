//! Lets another process make a system call: it is stopped, executes a `syscall` instruction that it has anyway, and goes on
//! as if nothing had happened. No memory of it is written, so its other threads notice nothing. Only system calls are
//! made here, so a fork of a threaded process can use it.

use libc::{c_int, pid_t};

/// The instruction `syscall`, and its length.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SYSCALL_BYTES: u64 = 2;
/// Code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// Signals that may come before the call is made.
const SIGNALS_MAX: u32 = 16;
/// The entry of `/proc/PID/auxv` with the address of the vdso.
const AT_SYSINFO_EHDR: u64 = 33;
/// Bytes of the vdso that are searched.
const VDSO_BYTES: u64 = 8192;

/// Lets a process call `prctl(option, second, third, 0, 0)`. Returns the result; `None` without effect if it cannot be
/// traced. Waits until it stops.
#[cfg(target_arch = "x86_64")]
pub fn prctl(pid: pid_t, option: c_int, [second, third]: [u32; 2]) -> Option<i64> {
    // SAFETY: each request is for the process that this thread traces while it is stopped, and writes to values of the
    // type that the request expects. The process's registers are restored.
    unsafe {
        let mut status: c_int = 0;
        let none = std::ptr::null_mut::<libc::c_void>();
        if libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) != 0
            || libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none) != 0
            || libc::waitpid(pid, &raw mut status, libc::__WALL) != pid
            || !libc::WIFSTOPPED(status)
        {
            return None;
        }
        let mut before: libc::user_regs_struct = std::mem::zeroed();
        // A signal whose delivery it stopped at is delivered afterwards.
        let mut signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
        let mut result = None;
        if libc::ptrace(libc::PTRACE_GETREGS, pid, none, &raw mut before) == 0
            && before.cs == CODE_64
            && let Some(at) = syscall_instruction(pid, before.rip)
        {
            // No call is in progress, so none is restarted.
            let call = libc::user_regs_struct {
                rip: at,
                rax: libc::SYS_prctl as u64,
                orig_rax: u64::MAX,
                rdi: option as u64,
                rsi: u64::from(second),
                rdx: u64::from(third),
                r10: 0,
                r8: 0,
                ..before
            };
            libc::ptrace(libc::PTRACE_SETREGS, pid, none, &raw const call);
            signal = step(pid).max(signal);
            let mut after = before;
            if libc::ptrace(libc::PTRACE_GETREGS, pid, none, &raw mut after) == 0 && after.rip == at + SYSCALL_BYTES {
                result = Some(after.rax as i64);
            }
            libc::ptrace(libc::PTRACE_SETREGS, pid, none, &raw const before);
        }
        libc::ptrace(libc::PTRACE_DETACH, pid, none, signal as usize as *mut libc::c_void);
        result
    }
}

/// Injected calls are for x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
pub fn prctl(_pid: pid_t, _option: c_int, _arguments: [u32; 2]) -> Option<i64> {
    None
}

/// The address of a `syscall` instruction in a stopped process: that of the call that it is in, or one of the vdso.
#[cfg(target_arch = "x86_64")]
fn syscall_instruction(pid: pid_t, next: u64) -> Option<u64> {
    let current = next.wrapping_sub(SYSCALL_BYTES);
    if peek(pid, current)?.to_ne_bytes().starts_with(&SYSCALL) {
        return Some(current);
    }
    let vdso = vdso(pid)?;
    (vdso..vdso + VDSO_BYTES).step_by(7).find_map(|at| {
        let word = peek(pid, at)?.to_ne_bytes();
        let offset = word.windows(2).position(|pair| pair == SYSCALL)?;
        Some(at + offset as u64)
    })
}

/// The word at an address of a stopped process; `None` if nothing is mapped there.
#[cfg(target_arch = "x86_64")]
fn peek(pid: pid_t, address: u64) -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of_val(&word) };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: size_of_val(&word) };
    // SAFETY: the kernel writes at most one word to `word`; the other process's memory is only read.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    (got == size_of_val(&word) as isize).then_some(word)
}

/// Where the vdso of a process begins.
#[cfg(target_arch = "x86_64")]
fn vdso(pid: pid_t) -> Option<u64> {
    use std::io::Write;

    let (mut path, mut vector) = ([0u8; 32], [[0u64; 2]; 64]);
    write!(&mut path[..], "/proc/{pid}/auxv\0").ok()?;
    // SAFETY: the path ends with a zero byte; the kernel writes at most the size of `vector`, whose every bit pattern is
    // valid.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY);
        if file < 0 {
            return None;
        }
        libc::read(file, vector.as_mut_ptr().cast(), size_of_val(&vector));
        libc::close(file);
    }
    vector.iter().find(|[key, _]| *key == AT_SYSINFO_EHDR).map(|[_, value]| *value)
}

/// Executes one instruction of a stopped process. Returns the last signal that came before; it is not delivered yet.
#[cfg(target_arch = "x86_64")]
fn step(pid: pid_t) -> c_int {
    let mut signal = 0;
    for _ in 0..SIGNALS_MAX {
        let (mut status, none) = (0, std::ptr::null_mut::<libc::c_void>());
        // SAFETY: the process is stopped and traced by this thread; the kernel writes the status.
        unsafe {
            libc::ptrace(libc::PTRACE_SINGLESTEP, pid, none, none);
            if libc::waitpid(pid, &raw mut status, libc::__WALL) != pid || !libc::WIFSTOPPED(status) {
                return 0;
            }
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => return signal,
            other => signal = other,
        }
    }
    signal
}
