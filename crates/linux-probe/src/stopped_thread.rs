//! A thread of another process, stopped so that it makes system calls for the caller. It goes on afterwards as if
//! nothing had happened: with its registers, its signal mask, and the system call in which it waited.
//!
//! The thread executes a `syscall` instruction that its process has anyway, so no code is changed.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void, pid_t};

use crate::dynamic_section::Memory;
use crate::maps::Maps;

/// Code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// Longest time in which a thread must stop. One that waits for a device does not.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Stops by signals before a system call is made.
const SIGNALS_MAX: u32 = 64;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
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
    /// Only the thread that traces may make requests.
    _not_send: PhantomData<*const ()>,
}

/// The address of a `syscall` instruction in a process with these mappings.
pub fn system_call_instruction(memory: &impl Memory, maps: &Maps) -> Option<u64> {
    let vdso = maps.iter().find(|mapping| mapping.name == "[vdso]")?;
    let mut code = vec![0; vdso.bytes];
    memory.read(vdso.start as u64, &mut code);
    let at = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL)?;
    Some((vdso.start + at) as u64)
}

impl StoppedThread {
    /// Stops a thread.
    ///
    /// # Errors
    /// There is no such thread, this process may not trace it, another one does, or it does not stop.
    pub fn stop(tid: u32) -> io::Result<Self> {
        let tid = tid as pid_t;
        // SAFETY: numbers only.
        checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, NO_ADDRESS, NO_ADDRESS) })?;
        // SAFETY: numbers only.
        checked(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, NO_ADDRESS, NO_ADDRESS) })?;
        let status = wait(tid)?;
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        // SAFETY: the kernel fills the registers, which are plain numbers.
        let before = unsafe {
            checked(libc::ptrace(libc::PTRACE_GETREGS, tid, NO_ADDRESS, registers.as_mut_ptr()))?;
            registers.assume_init()
        };
        let stopped = Self { tid, before, signal: signal_of(status), _not_send: PhantomData };
        if before.cs != CODE_64 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the thread executes 32-bit code"));
        }
        Ok(stopped)
    }

    /// Lets the thread make a system call, at the `syscall` instruction at `instruction`.
    ///
    /// # Errors
    /// The call failed, or the thread is gone.
    pub fn system_call(&mut self, instruction: u64, number: c_long, arguments: [u64; 6]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let call = libc::user_regs_struct {
            rip: instruction,
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

    /// Executes one instruction.
    fn step(&mut self) -> io::Result<()> {
        for _ in 0..SIGNALS_MAX {
            // SAFETY: numbers only.
            checked(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.tid, NO_ADDRESS, NO_ADDRESS) })?;
            match signal_of(wait(self.tid)?) {
                libc::SIGTRAP => return Ok(()),
                0 => {}
                signal => self.signal = signal,
            }
        }
        Err(io::Error::other("signals keep the thread from making a system call"))
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
fn wait(tid: pid_t) -> io::Result<c_int> {
    let began = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 if began.elapsed() > STOP_TIMEOUT => return Err(io::ErrorKind::TimedOut.into()),
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
