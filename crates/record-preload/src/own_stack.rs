//! The recorder's own stacks: for rare work that needs more stack than a program may have left.
//!
//! A program may allocate on a signal stack of 8 KiB or in a coroutine with 4 KiB. Opening a log or describing a stack
//! takes more than that. So such work runs here, with signals blocked: no handler can run on these stacks, or leave one
//! by a jump. They are in the object's zeroed data, so they need no system call, and their pages exist only once used.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{process, sys};

/// Number of stacks: threads that can do such work at the same time. Further threads use the stacks they have.
const STACKS: usize = u32::BITS as usize;
/// Size of a stack. The deepest work needs 17 KiB.
const STACK_BYTES: usize = 64 << 10;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<MaybeUninit<[u8; STACK_BYTES]>>);

// SAFETY: only the thread that has taken a stack uses it.
unsafe impl Sync for Stack {}

static MEMORY: [Stack; STACKS] = [const { Stack(UnsafeCell::new(MaybeUninit::uninit())) }; STACKS];

/// Which stacks are in use, one bit for each. It is in memory that a forked child finds zeroed: the other threads that
/// used stacks do not exist there.
pub struct InUse(AtomicU32);

/// Runs `work` with signals blocked and errno preserved, on a stack of the recorder. On the present stack if that is one
/// already, if all are in use, or if the program's filters forbid blocking signals.
pub fn run<R, W: FnOnce() -> R>(work: W) -> R {
    let _errno = sys::Errno::save();
    let signals = sys::SignalsBlocked::new();
    let mut job = Job { work: Some(work), result: MaybeUninit::uninit() };
    match Taken::new().filter(|_| signals.are_blocked()) {
        // SAFETY: the stack belongs to this call until `taken` is dropped, and `perform` takes this job.
        Some(taken) => unsafe { call_on(taken.top(), perform::<R, W>, (&raw mut job).cast()) },
        None => perform::<R, W>((&raw mut job).cast()),
    }
    // SAFETY: `perform` has written it.
    unsafe { job.result.assume_init() }
}

struct Job<R, W> {
    work: Option<W>,
    result: MaybeUninit<R>,
}

/// Does the work of a [`Job`]. Never inlined: the caller's frame must not contain that of the work.
#[inline(never)]
extern "C" fn perform<R, W: FnOnce() -> R>(job: *mut c_void) {
    // SAFETY: `run` passes its job, which outlives this call.
    let job = unsafe { &mut *job.cast::<Job<R, W>>() };
    if let Some(work) = job.work.take() {
        job.result.write(work());
    }
}

/// A stack that this thread uses.
struct Taken {
    in_use: &'static InUse,
    index: u32,
}

impl Taken {
    /// `None` if the thread is on one of these stacks already, or none is free.
    fn new() -> Option<Self> {
        let here = 0_u8;
        if MEMORY.as_ptr_range().contains(&(&raw const here).cast()) {
            return None;
        }
        let in_use = process::own_stacks()?;
        let take = |bits: u32| (bits != u32::MAX).then_some(bits | (bits + 1));
        let before = in_use.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).ok()?;
        Some(Self { in_use, index: before.trailing_ones() })
    }

    /// The address after the stack's last byte.
    fn top(&self) -> *mut u8 {
        MEMORY.as_ptr().wrapping_add(self.index as usize + 1).cast_mut().cast()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.in_use.0.fetch_and(!(1 << self.index), Ordering::Release);
    }
}

/// Calls `function` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// The stack is not in use, its end is a multiple of 16, and `function` accepts the argument.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: *mut u8, function: extern "C" fn(*mut c_void), argument: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
