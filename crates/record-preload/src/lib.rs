//! The recorder that is preloaded into the recorded program.
//!
//! Every exported function calls the real one and writes a [`encoding::Record`] to a buffer that survives the process
//! (a shared file mapping). So no event is lost at `_exit`, abort or SIGKILL. The recorder does not allocate from the
//! heap, takes no lock when it records an event, preserves errno, and never changes a requested size.
//!
//! With `panic=abort`, which `hksim-record`'s build script sets, the crate needs no std. The workspace's own profiles
//! unwind, which requires std; the code is otherwise the same.

#![cfg_attr(panic = "abort", no_std)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the recorder supports Linux on x86_64 only: thread-local storage and the clock are written for it");

mod arch;
mod attached;
pub mod attachment;
mod cache;
mod clock;
mod descriptor;
pub mod encoding;
mod filter_hooks;
mod filters;
mod forks;
mod hooks;
mod log_file;
mod mark;
mod memory_policy;
mod modules;
mod open;
#[cfg(feature = "operators")]
mod operators;
mod own_stack;
mod pool;
mod process;
mod real;
mod reserve;
mod sequence;
mod session;
mod site;
mod slots;
mod thread_buffer;
mod unwind_rules;

pub mod event_log;
pub mod stacks;
mod sys;
mod touch;
pub mod touched;
mod unwind;

/// Required by `no_std`, but never called: no code here panics.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no precondition.
    unsafe { libc::abort() }
}
