//! C++'s `operator new` and `delete`, for allocators that implement them without `malloc` (jemalloc, tcmalloc,
//! mimalloc).
//!
//! The functions are written in assembly: an exception of the real operator must unwind through them, which Rust frames
//! do not allow. Some real operators call `malloc` or `free` by name; the recorder records these inner calls. Other
//! operators do not, and one allocator may have both kinds. So the first calls of each operator decide. If a call
//! leaves no record, the operator does not call `malloc`. If several calls leave a record, it does.

use core::arch::naked_asm;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::{c_void, size_t};

use crate::encoding::{Kind, Record};
use crate::{clock, hooks, own_stack, real, thread_buffer};

/// Value of [`Operator::way`]: the operator does not call `malloc`.
const PAST_MALLOC: i32 = -1;
/// Number of calls with a record after which an operator is considered to call `malloc`. A signal handler that
/// allocates during a call leaves a record too, but rarely several times.
const CALLS_MALLOC: i32 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    New,
    AlignedNew,
    Delete,
}

/// The result of `enter`.
#[repr(C)]
struct Entered {
    /// The real operator.
    real: *mut c_void,
    /// The thread's record counter before the call.
    written: u64,
}

/// Runs before the real operator of slot `index` is called with `first`.
extern "C" fn enter(index: usize, first: size_t) -> Entered {
    let Some(operator) = OPERATORS.get(index) else {
        return Entered { real: null_mut(), written: 0 };
    };
    if operator.form == Form::Delete && operator.way.load(Ordering::Relaxed) == PAST_MALLOC {
        thread_buffer::push(&Record::new(Kind::Free, clock::ticks(), first as u64, 0));
    }
    let mut real = operator.real.load(Ordering::Acquire);
    if real.is_null() {
        real = own_stack::run(|| real::find(operator.symbol));
        if real.is_null() {
            // If a C program loads a C++ library later, the lookup finds no real operator after this object.
            real = operator.instead.cast_mut();
        }
        operator.real.store(real, Ordering::Release);
    }
    Entered { real, written: thread_buffer::written() }
}

/// Runs after the real operator of slot `index` was called with `first` and `second`; returns its result.
extern "C" fn leave(index: usize, written: u64, result: *mut c_void, first: size_t, second: size_t) -> *mut c_void {
    let Some(operator) = OPERATORS.get(index) else {
        return result;
    };
    let way = operator.way.load(Ordering::Relaxed);
    if way >= CALLS_MALLOC || (operator.form == Form::Delete && way == PAST_MALLOC) {
        return result;
    }
    let block = if operator.form == Form::Delete { first as u64 } else { result as u64 };
    if way != PAST_MALLOC {
        // The call decides nothing if it could not have been recorded, or had no effect.
        if block == 0 || !thread_buffer::is_recording() {
            return result;
        }
        if thread_buffer::written() != written {
            operator.way.store(way + 1, Ordering::Relaxed);
            return result;
        }
        operator.way.store(PAST_MALLOC, Ordering::Relaxed);
    }
    let (kind, align_log2, size) = match operator.form {
        Form::New => (Kind::Malloc, 0, first),
        Form::AlignedNew => (Kind::AlignedAlloc, second.trailing_zeros() as u8, first),
        Form::Delete => (Kind::Free, 0, 0),
    };
    thread_buffer::push(&Record { align_log2, ..Record::new(kind, clock::ticks(), block, size as u64) });
    result
}

struct Operator {
    symbol: &'static CStr,
    form: Form,
    /// [`PAST_MALLOC`], or the number of calls that left a record.
    way: AtomicI32,
    real: AtomicPtr<c_void>,
    /// Replaces a missing real operator by `malloc`, as libstdc++ does.
    instead: *const c_void,
}

// SAFETY: `instead` is the address of a function.
unsafe impl Sync for Operator {}

extern "C" fn new_instead(size: size_t) -> *mut c_void {
    match hooks::malloc(size.max(1)) {
        // Rust cannot throw `std::bad_alloc`.
        block if block.is_null() => give_up(),
        block => block,
    }
}

extern "C" fn aligned_new_instead(size: size_t, alignment: size_t) -> *mut c_void {
    let block = size.max(1).checked_next_multiple_of(alignment).map(|size| hooks::aligned_alloc(alignment, size));
    block.filter(|block| !block.is_null()).unwrap_or_else(|| give_up())
}

extern "C" fn delete_instead(block: *mut c_void) {
    // SAFETY: the block was returned by one of the functions above.
    unsafe { hooks::free(block) }
}

fn give_up() -> ! {
    // SAFETY: abort has no precondition.
    unsafe { libc::abort() }
}

/// Defines the operators. During the calls, the callee-saved registers %rbx and %r12 hold the arguments, and %r13 holds
/// the record counter that `enter` returns. Pushing these three registers aligns the stack.
macro_rules! operators {
    ($($index:literal $name:ident $symbol:literal $form:ident $instead:path;)*) => {
        static OPERATORS: [Operator; [$($index),*].len()] = [$(Operator {
            symbol: $symbol,
            form: Form::$form,
            way: AtomicI32::new(0),
            real: AtomicPtr::new(null_mut()),
            instead: $instead as *const c_void,
        },)*];
        $(
            #[doc = concat!("C++ operator `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the real one.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "push rbx",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset rbx, 0",
                    "push r12",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset r12, 0",
                    "push r13",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset r13, 0",
                    "mov rbx, rdi",
                    "mov r12, rsi",
                    "mov r13, rdx",
                    "mov rsi, rdi",
                    "mov edi, {index}",
                    "call {enter}",
                    // The third argument (nothrow) is only passed on.
                    "xchg rdx, r13",
                    "mov rdi, rbx",
                    "mov rsi, r12",
                    "call rax",
                    "mov edi, {index}",
                    "mov rsi, r13",
                    "mov rdx, rax",
                    "mov rcx, rbx",
                    "mov r8, r12",
                    "call {leave}",
                    "pop r13",
                    ".cfi_adjust_cfa_offset -8",
                    ".cfi_restore r13",
                    "pop r12",
                    ".cfi_adjust_cfa_offset -8",
                    ".cfi_restore r12",
                    "pop rbx",
                    ".cfi_adjust_cfa_offset -8",
                    ".cfi_restore rbx",
                    "ret",
                    ".cfi_endproc",
                    index = const $index,
                    enter = sym enter,
                    leave = sym leave,
                )
            }
        )*
    };
}

operators! {
    0 _Znwm c"_Znwm" New new_instead;
    1 _Znam c"_Znam" New new_instead;
    2 _ZnwmRKSt9nothrow_t c"_ZnwmRKSt9nothrow_t" New hooks::malloc;
    3 _ZnamRKSt9nothrow_t c"_ZnamRKSt9nothrow_t" New hooks::malloc;
    4 _ZnwmSt11align_val_t c"_ZnwmSt11align_val_t" AlignedNew aligned_new_instead;
    5 _ZnamSt11align_val_t c"_ZnamSt11align_val_t" AlignedNew aligned_new_instead;
    6 _ZnwmSt11align_val_tRKSt9nothrow_t c"_ZnwmSt11align_val_tRKSt9nothrow_t" AlignedNew aligned_new_instead;
    7 _ZnamSt11align_val_tRKSt9nothrow_t c"_ZnamSt11align_val_tRKSt9nothrow_t" AlignedNew aligned_new_instead;
    8 _ZdlPv c"_ZdlPv" Delete delete_instead;
    9 _ZdaPv c"_ZdaPv" Delete delete_instead;
    10 _ZdlPvm c"_ZdlPvm" Delete delete_instead;
    11 _ZdaPvm c"_ZdaPvm" Delete delete_instead;
    12 _ZdlPvRKSt9nothrow_t c"_ZdlPvRKSt9nothrow_t" Delete delete_instead;
    13 _ZdaPvRKSt9nothrow_t c"_ZdaPvRKSt9nothrow_t" Delete delete_instead;
    14 _ZdlPvSt11align_val_t c"_ZdlPvSt11align_val_t" Delete delete_instead;
    15 _ZdaPvSt11align_val_t c"_ZdaPvSt11align_val_t" Delete delete_instead;
    16 _ZdlPvmSt11align_val_t c"_ZdlPvmSt11align_val_t" Delete delete_instead;
    17 _ZdaPvmSt11align_val_t c"_ZdaPvmSt11align_val_t" Delete delete_instead;
    18 _ZdlPvSt11align_val_tRKSt9nothrow_t c"_ZdlPvSt11align_val_tRKSt9nothrow_t" Delete delete_instead;
    19 _ZdaPvSt11align_val_tRKSt9nothrow_t c"_ZdaPvSt11align_val_tRKSt9nothrow_t" Delete delete_instead;
}
