//! A thread of another process, stopped so that it makes system calls for the caller. It goes on afterwards as if
//! nothing had happened: with its registers, its signal mask, and the system call in which it waited.
//!
//! The thread executes a `syscall` instruction that its process has anyway, and no memory of the process is written.
//!
//! Nothing here allocates or takes a lock, so the fork of a process with several threads may use it.

use std::io::{self, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void, pid_t};

/// Code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// Stops by signals before a system call is made.
const SIGNALS_MAX: u32 = 64;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The entry of `/proc/ID/auxv` with the address of the vdso, and bytes of the vdso that are searched.
const AT_SYSINFO_EHDR: u64 = 33;
const VDSO_BYTES: usize = 8192;
/// Bytes of the kernel's signal set.
const SIGNAL_SET_BYTES: c_long = 8;
const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;
const NO_ADDRESS: c_long = 0;

/// A stopped thread. It runs on when this value is dropped, or when the thread that made it ends.
#[derive(Debug)]
pub struct StoppedThread {
    tid: pid_t,
    before: libc::user_regs_struct,
    /// A signal that came meanwhile; the thread gets it when it runs on. 0 for none.
    signal: c_int,
    /// The longest time until it stops again after each step.
    timeout: Duration,
    /// Only the thread that traces may make requests.
    _not_send: PhantomData<*const ()>,
}

impl StoppedThread {
    /// Stops a thread, unless that takes longer than `timeout`: a thread that waits for a device, or in vfork, does not stop.
    /// It will then stop later, and run on when the calling thread ends.
    ///
    /// # Errors
    /// There is no such thread, this process may not trace it, another one does, or it does not stop.
    pub fn stop(tid: u32, timeout: Duration) -> io::Result<Self> {
        let tid = tid as pid_t;
        // SAFETY: numbers only.
        checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, NO_ADDRESS, NO_ADDRESS) })?;
        // SAFETY: numbers only.
        checked(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, NO_ADDRESS, NO_ADDRESS) })?;
        let status = wait(tid, timeout)?;
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        // SAFETY: the kernel fills the registers, which are plain numbers.
        let before = unsafe {
            checked(libc::ptrace(libc::PTRACE_GETREGS, tid, NO_ADDRESS, registers.as_mut_ptr()))?;
            registers.assume_init()
        };
        let stopped = Self { tid, before, signal: signal_of(status), timeout, _not_send: PhantomData };
        if before.cs != CODE_64 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(stopped)
    }

    /// Lets the thread make a system call.
    ///
    /// # Errors
    /// The call failed, the thread is gone, or its process has no `syscall` instruction.
    pub fn system_call(&mut self, number: c_long, arguments: [u64; 6]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let call = libc::user_regs_struct {
            rip: self.system_call_instruction().ok_or(io::ErrorKind::Unsupported)?,
            rax: number as u64,
            // No call is in progress, so none is restarted.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.before
        };
        let mask = self.signal_mask()?;
        self.set_signal_mask(u64::MAX)?;
        let result = self.set_registers(&call).and_then(|()| self.step()).and_then(|()| self.registers());
        self.set_registers(&self.before)?;
        self.set_signal_mask(mask)?;
        match result?.rax as i64 {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            value => Ok(value as u64),
        }
    }

    /// The address of a `syscall` instruction: that of the call that the thread is in, or one of the vdso.
    fn system_call_instruction(&self) -> Option<u64> {
        let last = self.before.rip.wrapping_sub(SYSCALL.len() as u64);
        let mut bytes = [0; SYSCALL.len()];
        if self.read(last, &mut bytes) == bytes.len() && bytes == SYSCALL {
            return Some(last);
        }
        let (vdso, mut code) = (self.vdso()?, [0; VDSO_BYTES]);
        let read = self.read(vdso, &mut code);
        let at = code[..read].windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL)?;
        Some(vdso + at as u64)
    }

    /// Where the vdso of its process begins.
    fn vdso(&self) -> Option<u64> {
        let (mut path, mut vector) = ([0_u8; 32], [[0_u64; 2]; 64]);
        write!(&mut path[..], "/proc/{}/auxv\0", self.tid).ok()?;
        // SAFETY: the path ends with a zero byte; the kernel writes at most the size of `vector`, whose every bit pattern
        // is valid.
        unsafe {
            let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
            if file < 0 {
                return None;
            }
            libc::read(file, vector.as_mut_ptr().cast(), size_of_val(&vector));
            libc::close(file);
        }
        vector.iter().find(|[key, _]| *key == AT_SYSINFO_EHDR).map(|[_, value]| *value)
    }

    /// Reads memory of its process up to the first byte that is not mapped. Returns the number of bytes.
    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: into.len() };
        // SAFETY: the kernel writes at most the length of `into`; the other process's memory is only read.
        let read = unsafe { libc::process_vm_readv(self.tid, &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }

    /// Executes one instruction.
    fn step(&mut self) -> io::Result<()> {
        for _ in 0..SIGNALS_MAX {
            // SAFETY: numbers only.
            checked(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.tid, NO_ADDRESS, NO_ADDRESS) })?;
            match signal_of(wait(self.tid, self.timeout)?) {
                libc::SIGTRAP => return Ok(()),
                0 => {}
                signal => self.signal = signal,
            }
        }
        // Signals keep the thread from making the call.
        Err(io::ErrorKind::Interrupted.into())
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        let mut registers = self.before;
        // SAFETY: the kernel fills the registers.
        checked(unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.tid, NO_ADDRESS, &raw mut registers) })?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
        // SAFETY: the kernel reads the registers.
        checked(unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.tid, NO_ADDRESS, &raw const *registers) })
    }

    fn signal_mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        // SAFETY: the kernel writes a set of the given length.
        checked(unsafe { libc::ptrace(PTRACE_GETSIGMASK, self.tid, SIGNAL_SET_BYTES, &raw mut mask) })?;
        Ok(mask)
    }

    fn set_signal_mask(&self, mask: u64) -> io::Result<()> {
        // SAFETY: the kernel reads a set of the given length.
        checked(unsafe { libc::ptrace(PTRACE_SETSIGMASK, self.tid, SIGNAL_SET_BYTES, &raw const mask) })
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // If this fails, the thread is gone.
        // SAFETY: numbers only.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.tid, NO_ADDRESS, self.signal as usize as *mut c_void) };
    }
}

/// Waits until a thread stops; returns its status.
fn wait(tid: pid_t, timeout: Duration) -> io::Result<c_int> {
    let began = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 if began.elapsed() > timeout => return Err(io::ErrorKind::TimedOut.into()),
            0 => thread::sleep(Duration::from_micros(50)),
            -1 => return Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => return Ok(status),
            _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

/// The signal that stopped a thread before it was delivered; 0 if something else stopped it.
fn signal_of(status: c_int) -> c_int {
    if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 }
}

fn checked(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::status::Status;

    #[test]
    fn a_stopped_thread_makes_calls_and_sleeps_on() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("a program");
        let pid = child.id();
        let is_asleep = || Status::of(pid).is_ok_and(|status| status.name() == "sleep" && status.state() == Some('S'));
        while !is_asleep() {
            thread::yield_now();
        }
        match StoppedThread::stop(pid, Duration::from_secs(10)) {
            Ok(mut stopped) => {
                assert_eq!(Status::of(pid).expect("a status").state(), Some('t'));
                assert_eq!(stopped.system_call(libc::SYS_getpid, [0; 6]).ok(), Some(u64::from(pid)));
                let failed = stopped.system_call(libc::SYS_close, [u64::MAX, 0, 0, 0, 0, 0]).expect_err("no such file");
                assert_eq!(failed.raw_os_error(), Some(libc::EBADF));
                assert_eq!(stopped.system_call(libc::SYS_getppid, [0; 6]).ok(), Some(u64::from(std::process::id())));
            }
            Err(why) => eprintln!("skipped: a child cannot be traced: {why}"),
        }
        while !is_asleep() {
            thread::yield_now();
        }
        assert_eq!(Status::of(pid).expect("a status").number("TracerPid"), Some(0));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}
