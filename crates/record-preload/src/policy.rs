//! What the program asks of the kernel for all of its memory: `prctl(PR_SET_THP_DISABLE)`, `mlockall`, `munlockall`, `personality`,
//! each also by way of `syscall`.
//!
//! A change is recorded after the call that made it has succeeded, also while recording is switched off: what comes later
//! depends on it. Not seen are system calls that a program makes by an instruction of its own.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{c_int, c_long, c_uint, c_ulong};

use crate::arch::ticks;
use crate::encoding::{Kind, POLICY_LOCK_ALL, POLICY_PERSONALITY, POLICY_THP_DISABLE, Record};
use crate::{lane, real, sys};

/// `PR_THP_DISABLE_EXCEPT_ADVISED`, Linux 6.18.
const EXCEPT_ADVISED: c_ulong = 1 << 1;
/// The personality that asks for the present one.
const ASK: c_ulong = 0xffff_ffff;

/// What is in force, in forms that a forked child inherits with its memory.
static THP_DISABLE: AtomicU32 = AtomicU32::new(0);
static PERSONALITY: AtomicU32 = AtomicU32::new(0);
/// The C library's `syscall`, once it is known.
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds out what the image has inherited. Nothing changed it before: this runs when the object is loaded.
pub fn begin() {
    THP_DISABLE.store(sys::thp_disable(), Ordering::Relaxed);
    PERSONALITY.store(sys::personality(), Ordering::Relaxed);
    SYSCALL.store(real::find(c"syscall"), Ordering::Relaxed);
}

/// What `PR_GET_THP_DISABLE` returns, and the personality.
pub fn in_force() -> (u32, u32) {
    (THP_DISABLE.load(Ordering::Relaxed), PERSONALITY.load(Ordering::Relaxed))
}

/// Records a system call that has returned `result`, if it has changed a policy.
fn note(number: c_long, first: c_ulong, second: c_ulong, third: c_ulong, result: c_long) {
    if result < 0 {
        return;
    }
    let change = match number {
        libc::SYS_prctl if first as c_int == libc::PR_SET_THP_DISABLE => {
            let value = match (second, third & EXCEPT_ADVISED) {
                (0, _) => 0,
                (_, 0) => 1,
                _ => 1 | EXCEPT_ADVISED as u32,
            };
            THP_DISABLE.store(value, Ordering::Relaxed);
            (POLICY_THP_DISABLE, value)
        }
        libc::SYS_mlockall => (POLICY_LOCK_ALL, first as u32),
        libc::SYS_munlockall => (POLICY_LOCK_ALL, 0),
        libc::SYS_personality if first as c_uint != ASK as c_uint && first as c_uint != result as c_uint => {
            PERSONALITY.store(first as u32, Ordering::Relaxed);
            (POLICY_PERSONALITY, first as u32)
        }
        _ => return,
    };
    lane::push(&Record::new(Kind::MemoryPolicy, ticks(), change.0, u64::from(change.1)));
}

fn no_such_call() -> c_int {
    sys::set_errno(libc::ENOSYS);
    -1
}

/// Linux `prctl`: variadic in C, which on x86-64 is a call with as many register arguments as it could have.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let Some(real) = real::prctl() else { return no_such_call() };
    // SAFETY: by the caller's promise.
    let result = unsafe { real(option, a, b, c, d) };
    note(libc::SYS_prctl, option as c_ulong, a, b, c_long::from(result));
    result
}

/// POSIX `mlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    let Some(real) = real::mlockall() else { return no_such_call() };
    // SAFETY: touches no memory but to make it present.
    let result = unsafe { real(flags) };
    note(libc::SYS_mlockall, flags as c_ulong, 0, 0, c_long::from(result));
    result
}

/// POSIX `munlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    let Some(real) = real::munlockall() else { return no_such_call() };
    // SAFETY: touches no memory.
    let result = unsafe { real() };
    note(libc::SYS_munlockall, 0, 0, 0, c_long::from(result));
    result
}

/// Linux `personality`.
#[unsafe(no_mangle)]
pub extern "C" fn personality(persona: c_ulong) -> c_int {
    let Some(real) = real::personality() else { return no_such_call() };
    // SAFETY: touches no memory.
    let result = unsafe { real(persona) };
    note(libc::SYS_personality, persona, 0, 0, c_long::from(result));
    result
}

/// Linux `syscall`. Calls that change no policy go on to the real one as they are: the same registers, the same stack.
///
/// # Safety
/// As for the real one.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, {prctl}",
        "je {watched}",
        "cmp rdi, {mlockall}",
        "je {watched}",
        "cmp rdi, {munlockall}",
        "je {watched}",
        "cmp rdi, {personality}",
        "je {watched}",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "je {directly}",
        "jmp rax",
        prctl = const libc::SYS_prctl,
        mlockall = const libc::SYS_mlockall,
        munlockall = const libc::SYS_munlockall,
        personality = const libc::SYS_personality,
        watched = sym watched,
        real = sym SYSCALL,
        directly = sym directly,
    )
}

/// One of the calls above by its number, by way of `syscall`.
unsafe extern "C" fn watched(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    // SAFETY: by the promise of the caller of `syscall`.
    let result = unsafe { directly(number, a, b, c, d, e, f) };
    note(number, a, b, c, result);
    result
}

/// What the C library's `syscall` does.
unsafe extern "C" fn directly(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    let result: c_long;
    // SAFETY: by the promise of the caller of `syscall`; the kernel changes rcx, r11 and the result alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) {
        sys::set_errno(-result as c_int);
        return -1;
    }
    result
}
