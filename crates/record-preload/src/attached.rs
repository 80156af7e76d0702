//! The recorder in a program that already runs: begins and leaves.
//!
//! The object is loaded with `dlopen` at a call of an allocator function (`attachment.rs`). Its functions are written
//! into the slots through which the program's modules call the allocator (`slots.rs`). Calls through addresses that the
//! program obtained earlier, and the dynamic linker's own, are not seen.
//!
//! The recording is left when its session has ended or its recorder is gone. A thread notices that at one of its next
//! calls, restores the slots, and returns the memory and the descriptors of the recording. The object stays loaded,
//! because other threads may be in its functions; its functions then only pass calls on. Forked children do the same.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use libc::{c_void, dl_phdr_info, size_t};

use crate::attachment::{
    AREA_BYTES, Area, CODE_BYTES, OBJECT_NAME, RESULT_NO_LOG, RESULT_NO_SESSION, RESULT_NO_SLOTS, RESULT_RECORDED,
    RESULT_RECORDING, SLOTS_MAX,
};
use crate::process::{self, Process};
use crate::slots::{Redirected, Replaced, Slots};
use crate::{filter_hooks, hooks, memory_policy, modules, own_stack, real, session, site};

/// Whether this object was loaded by a recorder that attached to the program, rather than preloaded.
static IS_ATTACHED: AtomicBool = AtomicBool::new(false);
/// Whether the slots contain the recorder's functions.
static IS_IN_SLOTS: AtomicBool = AtomicBool::new(false);
/// Whether slots whose functions are not looked up yet may be replaced.
static LAZY: AtomicBool = AtomicBool::new(false);
/// Number of modules loaded so far, when the slots were last replaced.
static LOADED: AtomicU64 = AtomicU64::new(0);
/// The session's process that the recorder records first. Its children are in the same session.
static BEGINS: AtomicBool = AtomicBool::new(false);

/// The memory that the recorder handed over last.
#[unsafe(no_mangle)]
pub static hksim_attached_area: AtomicPtr<Area> = AtomicPtr::new(null_mut());

macro_rules! replaced {
    ($($(#[$attribute:meta])* $name:literal: $by:path;)*) => {
        static REPLACED: [Replaced; NAMES.len()] = [$(
            $(#[$attribute])*
            Replaced { name: $name, by: $by as *const c_void, function: AtomicU64::new(0) },
        )*];
        static NAMES: &[&CStr] = &[$($(#[$attribute])* $name,)*];
    };
}

replaced! {
    c"malloc": hooks::malloc;
    c"calloc": hooks::calloc;
    c"realloc": hooks::realloc;
    c"reallocarray": hooks::reallocarray;
    c"free": hooks::free;
    c"cfree": hooks::cfree;
    c"free_sized": hooks::free_sized;
    c"free_aligned_sized": hooks::free_aligned_sized;
    c"posix_memalign": hooks::posix_memalign;
    c"aligned_alloc": hooks::aligned_alloc;
    c"memalign": hooks::memalign;
    c"valloc": hooks::valloc;
    c"pvalloc": hooks::pvalloc;
    c"malloc_usable_size": hooks::malloc_usable_size;
    c"fork": hooks::fork;
    c"mlockall": memory_policy::mlockall;
    c"munlockall": memory_policy::munlockall;
    c"personality": memory_policy::personality;
    c"prctl": filter_hooks::prctl;
    c"syscall": filter_hooks::syscall;
    c"dlopen": open_module;
    c"dlsym": find_symbol;
    c"dlclose": modules::dlclose;
    #[cfg(feature = "operators")] c"_Znwm": crate::operators::_Znwm;
    #[cfg(feature = "operators")] c"_Znam": crate::operators::_Znam;
    #[cfg(feature = "operators")] c"_ZnwmRKSt9nothrow_t": crate::operators::_ZnwmRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZnamRKSt9nothrow_t": crate::operators::_ZnamRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZnwmSt11align_val_t": crate::operators::_ZnwmSt11align_val_t;
    #[cfg(feature = "operators")] c"_ZnamSt11align_val_t": crate::operators::_ZnamSt11align_val_t;
    #[cfg(feature = "operators")] c"_ZnwmSt11align_val_tRKSt9nothrow_t": crate::operators::_ZnwmSt11align_val_tRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZnamSt11align_val_tRKSt9nothrow_t": crate::operators::_ZnamSt11align_val_tRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZdlPv": crate::operators::_ZdlPv;
    #[cfg(feature = "operators")] c"_ZdaPv": crate::operators::_ZdaPv;
    #[cfg(feature = "operators")] c"_ZdlPvm": crate::operators::_ZdlPvm;
    #[cfg(feature = "operators")] c"_ZdaPvm": crate::operators::_ZdaPvm;
    #[cfg(feature = "operators")] c"_ZdlPvRKSt9nothrow_t": crate::operators::_ZdlPvRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZdaPvRKSt9nothrow_t": crate::operators::_ZdaPvRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZdlPvSt11align_val_t": crate::operators::_ZdlPvSt11align_val_t;
    #[cfg(feature = "operators")] c"_ZdaPvSt11align_val_t": crate::operators::_ZdaPvSt11align_val_t;
    #[cfg(feature = "operators")] c"_ZdlPvmSt11align_val_t": crate::operators::_ZdlPvmSt11align_val_t;
    #[cfg(feature = "operators")] c"_ZdaPvmSt11align_val_t": crate::operators::_ZdaPvmSt11align_val_t;
    #[cfg(feature = "operators")] c"_ZdlPvSt11align_val_tRKSt9nothrow_t": crate::operators::_ZdlPvSt11align_val_tRKSt9nothrow_t;
    #[cfg(feature = "operators")] c"_ZdaPvSt11align_val_tRKSt9nothrow_t": crate::operators::_ZdaPvSt11align_val_tRKSt9nothrow_t;
}

/// Whether this object was loaded by a recorder that attached to the program.
pub fn is_attached() -> bool {
    IS_ATTACHED.load(Ordering::Relaxed)
}

/// Finds out how this object was loaded. Called when it is loaded.
pub fn note_loading() {
    let here = (&raw const IS_ATTACHED).cast();
    let path = real::path_of(here).unwrap_or_default().to_bytes();
    IS_ATTACHED.store(path.ends_with(OBJECT_NAME.as_bytes()), Ordering::Relaxed);
}

/// Whether the process that starts now is the one to which the recorder attached, not a child of it.
pub fn begins() -> bool {
    BEGINS.swap(false, Ordering::Relaxed)
}

/// Begins the recording that `area` describes, in the thread that loaded the object.
///
/// # Safety
/// `area` stays mapped, and only this process changes it from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hksim_attach(area: *mut Area) -> u32 {
    hksim_attached_area.store(area, Ordering::Release);
    own_stack::run(|| {
        // SAFETY: by the caller's promise.
        let session = unsafe { CStr::from_ptr((&raw const (*area).session).cast()) };
        let result = begin(session);
        if result != RESULT_RECORDING && result != RESULT_RECORDED {
            leave();
        }
        result
    })
}

fn begin(session: &CStr) -> u32 {
    if process::is_on() && !session::has_ended() && !session::recorder_is_gone() {
        return RESULT_RECORDED;
    }
    // No thread may have noticed yet that the last recording has ended.
    leave();
    set_left(false);
    // Slots that `hksim` redirected are restored by `leave`, whatever happens.
    IS_IN_SLOTS.store(true, Ordering::Release);
    if !session::attach(session) || session::recorder_is_gone() {
        return RESULT_NO_SESSION;
    }
    with_slots(|slots| slots.find());
    LAZY.store(real::serves_from_libc(), Ordering::Relaxed);
    memory_policy::begin();
    filter_hooks::begin();
    BEGINS.store(true, Ordering::Relaxed);
    let Some(process) = Process::restart() else {
        return RESULT_NO_LOG;
    };
    process.describe_image();
    site::begin();
    LOADED.store(modules_loaded(), Ordering::Relaxed);
    if with_slots(|slots| slots.replace()) == 0 { RESULT_NO_SLOTS } else { RESULT_RECORDING }
}

/// Restores the slots, and returns what the recording uses. Called with signals blocked, when nothing is recorded any
/// more.
pub fn leave() {
    if !is_attached() || !IS_IN_SLOTS.swap(false, Ordering::AcqRel) {
        return;
    }
    with_slots(|slots| slots.restore());
    process::leave();
    site::leave();
    session::leave();
    set_left(true);
}

/// Tells `hksim` whether the recording has been left.
fn set_left(left: bool) {
    let area = hksim_attached_area.load(Ordering::Acquire);
    // SAFETY: the area was set before and stays mapped; `hksim` reads the field from outside.
    unsafe { AtomicU32::from_ptr(&raw mut (*area).left).store(u32::from(left), Ordering::Release) };
}

fn with_slots<R>(work: impl FnOnce(&Slots<'_>) -> R) -> R {
    let area = hksim_attached_area.load(Ordering::Acquire);
    let start = area as u64 + AREA_BYTES as u64;
    // SAFETY: the area was set before and stays mapped; nobody changes its slots after the recording has begun.
    let slots = unsafe {
        let used = (&raw const (*area).slots_used).read() as usize;
        core::slice::from_raw_parts((&raw const (*area).slots).cast(), used.min(SLOTS_MAX))
    };
    work(&Slots {
        functions: &REPLACED,
        names: NAMES,
        redirected: Redirected { start, end: start + CODE_BYTES as u64, slots },
        lazy: LAZY.load(Ordering::Relaxed),
    })
}

/// Replaces the slots of modules that were loaded meanwhile.
extern "C" fn look_for_modules() {
    if !IS_IN_SLOTS.load(Ordering::Acquire) {
        return;
    }
    own_stack::run(|| {
        let loaded = modules_loaded();
        if LOADED.swap(loaded, Ordering::Relaxed) != loaded && !session::has_ended() {
            with_slots(|slots| slots.replace());
        }
    });
}

fn modules_loaded() -> u64 {
    let mut loaded = 0_u64;
    // SAFETY: the callback takes a u64, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_loaded), (&raw mut loaded).cast()) };
    loaded
}

unsafe extern "C" fn read_loaded(info: *mut dl_phdr_info, _size: size_t, loaded: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer it was given.
    unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
    1
}

/// The program's `dlopen`; null before the first call.
static OPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The program's `dlsym`; null before the first call.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether the dynamic linker opens this file without a search that depends on the caller.
extern "C" fn is_path(file: *const c_char) -> bool {
    look_for_modules();
    if OPEN.load(Ordering::Relaxed).is_null() {
        OPEN.store(real::find(c"dlopen"), Ordering::Relaxed);
    }
    // SAFETY: not null, so a C string.
    !file.is_null() && unsafe { CStr::from_ptr(file) }.to_bytes().contains(&b'/')
}

extern "C" fn find_finder() -> *mut c_void {
    look_for_modules();
    if FIND.load(Ordering::Relaxed).is_null() {
        FIND.store(real::find(c"dlsym"), Ordering::Relaxed);
    }
    FIND.load(Ordering::Relaxed)
}

/// Opens a module by its path, and replaces its slots.
unsafe extern "C" fn open_path(file: *const c_char, flags: c_int) -> *mut c_void {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: `is_path` has looked up the C function of that name, which has this type.
    let handle = unsafe {
        let Some(open) = core::mem::transmute::<*mut c_void, Option<Open>>(OPEN.load(Ordering::Relaxed)) else {
            return null_mut();
        };
        open(file, flags)
    };
    look_for_modules();
    handle
}

/// `dlopen`. The dynamic linker finds the caller by its return address, because the search for a name without a folder
/// depends on it. Such a call is passed on without a stack frame, and the module's slots are replaced at the next call of
/// `dlsym` or `dlopen`.
///
/// # Safety
/// As for the real one.
#[unsafe(naked)]
unsafe extern "C" fn open_module(_file: *const c_char, _flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {is_path}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test al, al",
        "jnz {open_path}",
        "jmp qword ptr [rip + {open}]",
        is_path = sym is_path,
        open_path = sym open_path,
        open = sym OPEN,
    )
}

/// `dlsym`: replaces the slots of modules that were loaded meanwhile. The real function depends on its caller, too.
///
/// # Safety
/// As for the real one.
#[unsafe(naked)]
unsafe extern "C" fn find_symbol(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {finder}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        finder = sym find_finder,
    )
}
