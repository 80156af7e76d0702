//! Lets another process make a system call: it is stopped, executes the call in place of its next instruction, and goes on
//! as if nothing had happened. Only system calls are made here, so a fork of a threaded process can use it.

use libc::{c_int, pid_t};

/// The instruction `syscall`.
const SYSCALL: u64 = 0x050f;
const SYSCALL_MASK: u64 = 0xffff;
/// Code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// Signals that may come before the call is made.
const SIGNALS_MAX: u32 = 16;

/// Lets a process call `prctl(option, second, third, 0, 0)`. No effect if it cannot be traced, or does not stop.
#[cfg(target_arch = "x86_64")]
pub fn prctl(pid: pid_t, option: c_int, [second, third]: [u32; 2]) {
    // SAFETY: each request is for the process that this thread traces while it is stopped, and writes to values of the
    // type that the request expects. The process's code and registers are restored.
    unsafe {
        let mut status: c_int = 0;
        let none = std::ptr::null_mut::<libc::c_void>();
        if libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) != 0
            || libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none) != 0
            || libc::waitpid(pid, &raw mut status, libc::__WALL) != pid
            || !libc::WIFSTOPPED(status)
        {
            return;
        }
        let mut before: libc::user_regs_struct = std::mem::zeroed();
        let mut signal = 0;
        if libc::ptrace(libc::PTRACE_GETREGS, pid, none, &raw mut before) == 0 && before.cs == CODE_64 {
            let at = before.rip as *mut libc::c_void;
            let code = libc::ptrace(libc::PTRACE_PEEKTEXT, pid, at, none) as u64;
            // No call is in progress, so none is restarted.
            let call = libc::user_regs_struct {
                rax: libc::SYS_prctl as u64,
                orig_rax: u64::MAX,
                rdi: option as u64,
                rsi: u64::from(second),
                rdx: u64::from(third),
                r10: 0,
                r8: 0,
                ..before
            };
            if libc::ptrace(libc::PTRACE_POKETEXT, pid, at, (code & !SYSCALL_MASK | SYSCALL) as *mut libc::c_void) == 0
            {
                libc::ptrace(libc::PTRACE_SETREGS, pid, none, &raw const call);
                signal = step(pid);
                libc::ptrace(libc::PTRACE_POKETEXT, pid, at, code as *mut libc::c_void);
                libc::ptrace(libc::PTRACE_SETREGS, pid, none, &raw const before);
            }
        }
        libc::ptrace(libc::PTRACE_DETACH, pid, none, signal as usize as *mut libc::c_void);
    }
}

/// Injected calls are for x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
pub fn prctl(_pid: pid_t, _option: c_int, _arguments: [u32; 2]) {}

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
