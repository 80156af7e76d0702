//! The recorder that is preloaded into the recorded program.
//!
//! Every exported function calls the real one and writes a [`encoding::Record`] to a buffer that survives the process
//! (a shared file mapping). So nothing is lost at `_exit`, abort or SIGKILL. It allocates nothing, takes no lock on the
//! path of an event, preserves errno, and never changes a requested size.
//!
//! Built with `panic=abort` (as `hksim-record`'s build script does) the crate needs no std. The workspace's own profiles
//! unwind, which only std can serve; the code is the same.

#![cfg_attr(panic = "abort", no_std)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the recorder supports Linux on x86_64 only: thread-local storage and the clock are written for it");

mod arch;
mod cache;
mod clock;
mod descriptor;
pub mod encoding;
mod filter_hooks;
mod filters;
mod forks;
mod hooks;
mod mark;
mod memory_policy;
mod modules;
mod open;
#[cfg(feature = "operators")]
mod operators;
mod pool;
mod process;
mod real;
mod reserve;
mod sequence;
mod session;
mod site;
mod thread_buffer;
mod unwind_rules;

pub mod event_log;
pub mod stacks;
mod sys;
mod touch;
pub mod touched;
mod unwind;

/// Unreachable by design (no code here panics); `no_std` requires it.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no precondition.
    unsafe { libc::abort() }
}
