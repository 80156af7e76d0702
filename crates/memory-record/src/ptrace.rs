//! The requests of ptrace that the tracer makes. Each one is for a thread that the calling thread traces.

use std::io;

use hksim_linux_probe::sysfs;
use hksim_memory_trace::PAGE_BYTES;
use libc::{c_int, c_long, c_uint, pid_t};

use crate::calls::Arguments;
use crate::stack_dump::{STACK_BYTES, StackDump};

/// `PTRACE_EVENT_STOP`: the first stop of a new thread, or a stop by SIGSTOP and its like.
pub const EVENT_STOP: c_int = 128;
/// The address of requests that have none, in the width of an address.
const NO_ADDRESS: c_long = 0;

/// How a stopped thread runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until the next selected call or event.
    Freely,
    /// Until the end of its system call.
    ToCallExit,
    /// Not at all: SIGCONT ends a stop by SIGSTOP and its like.
    Listening,
}

/// What a thread's system call is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// The filter selected it; it has had no effect yet.
    Selected { number: i64, arguments: Arguments },
    /// It is complete.
    Complete { result: i64 },
}

/// Begins to trace a process. It is not stopped. All processes that it starts are traced as well, and all end if the
/// tracer ends: no call selected by the filter works without a tracer.
pub fn seize(pid: pid_t) -> io::Result<()> {
    // SAFETY: numbers only.
    checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, NO_ADDRESS, options(false)) })
}

/// Also stops a traced, stopped process and its future children when they exit.
pub fn stop_at_exit(tid: u32) -> io::Result<()> {
    // SAFETY: numbers only.
    checked(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, tid as pid_t, NO_ADDRESS, options(true)) })
}

fn options(stops_at_exit: bool) -> c_long {
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL
        | if stops_at_exit { libc::PTRACE_O_TRACEEXIT } else { 0 };
    c_long::from(options)
}

/// Lets a stopped thread run on and delivers a signal to it (0 for none).
pub fn resume(tid: u32, how: Resume, signal: c_int) -> io::Result<()> {
    let request: c_uint = match how {
        Resume::Freely => libc::PTRACE_CONT,
        Resume::ToCallExit => libc::PTRACE_SYSCALL,
        Resume::Listening => libc::PTRACE_LISTEN,
    };
    // SAFETY: numbers only.
    checked(unsafe { libc::ptrace(request, tid as pid_t, NO_ADDRESS, c_long::from(signal)) })
}

/// The number that the kernel attached to an event: the new thread, or the former id of a thread that executed.
pub fn event_message(tid: u32) -> io::Result<u32> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word.
    checked(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid as pid_t, NO_ADDRESS, &raw mut message) })?;
    Ok(message as u32)
}

/// The system call at which a thread is stopped; `None` if it is at none.
pub fn call_state(tid: u32) -> io::Result<Option<CallState>> {
    // SAFETY: plain data, valid when zeroed.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&info);
    // SAFETY: the kernel writes at most `bytes` bytes.
    checked(unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid as pid_t, bytes, &raw mut info) })?;
    Ok(match info.op {
        libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` says that this member is valid.
            let call = unsafe { info.u.seccomp };
            Some(CallState::Selected { number: call.nr as i64, arguments: call.args })
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: `op` says that this member is valid.
            Some(CallState::Complete { result: unsafe { info.u.exit }.sval })
        }
        _ => None,
    })
}

/// The number and the first argument of the call in which a thread is stopped.
pub fn current_call(tid: u32) -> Option<(i64, u64)> {
    let text = sysfs::text(&format!("/proc/{tid}/syscall"))?;
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    Some((number, argument))
}

/// A word of a stopped thread's memory.
pub fn read_word(tid: u32, address: u64) -> io::Result<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of_val(&word) };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: size_of_val(&word) };
    // SAFETY: the kernel writes at most one word to `word`; the other process's memory is only read.
    let got = unsafe { libc::process_vm_readv(tid as pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    if got == size_of_val(&word) as isize { Ok(word) } else { Err(io::Error::last_os_error()) }
}

/// The registers and the stack of a stopped thread.
#[cfg(target_arch = "x86_64")]
pub fn stack_dump(tid: u32) -> io::Result<StackDump> {
    // SAFETY: plain numbers, valid when zeroed.
    let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the registers.
    checked(unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid as pid_t, NO_ADDRESS, &raw mut user) })?;
    let mut dump = StackDump { bytes: read_stack(tid, user.rsp)?, ..StackDump::default() };
    let saved = [(3, user.rbx), (6, user.rbp), (7, user.rsp), (16, user.rip)];
    let others = [(12, user.r12), (13, user.r13), (14, user.r14), (15, user.r15)];
    for (register, value) in saved.into_iter().chain(others) {
        dump.registers[register] = Some(value);
    }
    Ok(dump)
}

/// Call stacks are for x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
pub fn stack_dump(_tid: u32) -> io::Result<StackDump> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The bytes of a stopped thread from an address on, up to [`STACK_BYTES`] or to the end of the mapped memory.
#[cfg(target_arch = "x86_64")]
fn read_stack(tid: u32, start: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; STACK_BYTES as usize];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // What is not mapped ends the transfer at the end of an element.
    let (mut remote, mut at, end) = (Vec::new(), start, start.saturating_add(u64::from(STACK_BYTES)));
    while at < end {
        let next = (at / PAGE_BYTES * PAGE_BYTES).saturating_add(PAGE_BYTES).min(end);
        remote.push(libc::iovec { iov_base: at as *mut libc::c_void, iov_len: (next - at) as usize });
        at = next;
    }
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`; the other process's memory is only read.
    let got =
        unsafe { libc::process_vm_readv(tid as pid_t, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(got as usize);
    Ok(bytes)
}

fn checked(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
