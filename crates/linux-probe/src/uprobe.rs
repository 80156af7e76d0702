//! Uprobes: breakpoints that the kernel sets in the code of a file, for all processes that execute it, as events of the
//! `uprobe` source (`perf_event_open`). They vanish with their event, also if this process is killed.
//!
//! Such an event must not be inherited: the kernel would then open it again in each new thread of the program, read the
//! path there, and fail the start of the thread.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use libc::{c_int, pid_t};

use crate::perf::{self, FLAG_INHERIT, Request};

/// Number of the event source; absent in kernels without uprobes.
const SOURCE: &str = "/sys/bus/event_source/devices/uprobe/type";
/// In [`Request::config`]: the probe is at the returns of the function.
const AT_RETURN: u64 = 1;

/// Registers of user mode in a sample (`arch/x86/include/uapi/asm/perf_regs.h`).
pub mod register {
    /// Results of functions.
    pub const AX: u64 = 1;
    /// Fourth argument.
    pub const CX: u64 = 1 << 2;
    /// Third argument.
    pub const DX: u64 = 1 << 3;
    /// Second argument.
    pub const SI: u64 = 1 << 4;
    /// First argument.
    pub const DI: u64 = 1 << 5;
    /// The stack pointer.
    pub const SP: u64 = 1 << 7;
    /// Fifth argument.
    pub const R8: u64 = 1 << 16;
    /// Sixth argument.
    pub const R9: u64 = 1 << 17;
}

/// The kernel's source of uprobes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(u32);

/// Where a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At an instruction.
    Instruction,
    /// Where the function that begins at the instruction returns to.
    Return,
}

impl Source {
    /// The source of this kernel; `None` if it has none.
    pub fn find() -> Option<Self> {
        fs::read_to_string(SOURCE).ok()?.trim().parse().ok().map(Self)
    }

    /// Opens an event for a probe at byte `offset` of the file at `path`, for the thread `thread` (-1: all), on one
    /// processor or, with `None`, on all. The request says what a sample has.
    ///
    /// # Errors
    /// The kernel's error: usually that this process lacks the right, or that no instruction begins there.
    pub fn open(
        self,
        (path, offset): (&CStr, u64),
        at: At,
        thread: pid_t,
        processor: Option<c_int>,
        request: &Request,
    ) -> io::Result<OwnedFd> {
        let config = if at == At::Return { AT_RETURN } else { 0 };
        // The kernel reads the path during the call.
        let more = [path.as_ptr() as u64, offset];
        let flags = request.flags & !FLAG_INHERIT;
        perf::open_with_losses(thread, &Request { kind: self.0, config, more, flags, ..*request }, processor)
    }
}
