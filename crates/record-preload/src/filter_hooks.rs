//! The exported functions through which a program can make arbitrary system calls. The recorder handles calls that
//! install a system-call filter or change a memory policy. It passes on all others unchanged.

use core::arch::naked_asm;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT, SECCOMP_SET_MODE_FILTER, SECCOMP_SET_MODE_STRICT};
use libc::{c_int, c_long, c_ulong, c_void};

use crate::filters::{self, NewFilter};
use crate::{memory_policy, real};

/// Makes a system call for the program, given by its number and first arguments. A call that installs a filter goes
/// through [`filters::install`]; a change of memory policy is recorded.
fn around(number: c_long, first: c_ulong, second: c_ulong, third: c_ulong, call: impl FnOnce() -> c_long) -> c_long {
    let wanted = match (number, first as u32, second as u32) {
        (libc::SYS_seccomp, SECCOMP_SET_MODE_STRICT, _) => NewFilter::Strict,
        (libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, _) => NewFilter::Program(third),
        (libc::SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT) => NewFilter::Strict,
        (libc::SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER) => NewFilter::Program(third),
        _ => {
            let result = call();
            memory_policy::note(number, first, second, third, result);
            return result;
        }
    };
    filters::install(wanted, call)
}

const PR_SET_SECCOMP: u32 = libc::PR_SET_SECCOMP as u32;

/// The real `syscall`; null until it is looked up. It is a static of its own, because the assembly of [`syscall`] loads
/// it by symbol.
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// Looks up the real functions. Called when the object is loaded, because a later filter could forbid opening files.
pub fn begin() {
    SYSCALL.store(real::find(c"syscall"), Ordering::Release);
    real::prctl();
}

fn real_syscall() -> Option<Syscall> {
    if SYSCALL.load(Ordering::Acquire).is_null() {
        begin();
    }
    // SAFETY: null is None, and anything else is the C function of that name, which has this type.
    unsafe { transmute::<*mut c_void, Option<Syscall>>(SYSCALL.load(Ordering::Acquire)) }
}

/// C `syscall`. It uses no stack, because some system calls return twice.
///
/// # Safety
/// As for the real one.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {mlockall}",
        "je 2f",
        "cmp rdi, {munlockall}",
        "je 2f",
        "cmp rdi, {personality}",
        "je 2f",
        "mov r11, qword ptr [rip + {real}]",
        "test r11, r11",
        "je 2f",
        "jmp r11",
        "2:",
        "jmp {other}",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        mlockall = const libc::SYS_mlockall,
        munlockall = const libc::SYS_munlockall,
        personality = const libc::SYS_personality,
        real = sym SYSCALL,
        other = sym other_syscall,
    )
}

/// Slow path of [`syscall`]: calls that may install a filter or change a memory policy, and calls before the real
/// function is known.
unsafe extern "C" fn other_syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let Some(real) = real_syscall() else { return memory_policy::no_such_call().into() };
    // SAFETY: by the caller's promise.
    let call = || unsafe { real(number, first, second, third, fourth, fifth, sixth) };
    around(number, first as c_ulong, second as c_ulong, third as c_ulong, call)
}

/// C `prctl`. It always passes on four further arguments, which are in the registers of variadic arguments. Arguments
/// that the program did not pass have arbitrary values.
///
/// # Safety
/// As for the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    let Some(real) = real::prctl() else { return memory_policy::no_such_call() };
    // SAFETY: by the caller's promise.
    let call = || unsafe { real(option, second, third, fourth, fifth) };
    around(libc::SYS_prctl, option as c_ulong, second, third, || c_long::from(call())) as c_int
}
