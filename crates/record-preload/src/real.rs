//! The functions that the program would call without the recorder.
//!
//! They are looked up with `dlsym(RTLD_NEXT)` at the first call. So the program uses its own allocator, if it is linked
//! with one or one is preloaded after the recorder. (With `__libc_malloc`, such a program would mix two heaps.)

use core::ffi::CStr;
use core::hint::black_box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{c_int, c_ulong, c_void, size_t};

use crate::{attached, slots, touch};

/// Set by the first thread that looks up the functions, so that the lookup happens once.
static LOOKED_UP: AtomicBool = AtomicBool::new(false);

macro_rules! real_functions {
    ($($name:ident: $symbol:literal, $type:ty;)*) => {
        struct Table { $($name: AtomicPtr<c_void>,)* }

        /// The program's real functions; `None` if no object defines one.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(
                /// The function with this name.
                pub $name: Option<$type>,
            )*
        }

        impl Functions {
            /// No function at all.
            pub const NONE: Functions = Functions { $($name: None,)* };
        }

        static TABLE: Table = Table { $($name: AtomicPtr::new(null_mut()),)* };

        #[cold]
        fn look_up() {
            if LOOKED_UP.swap(true, Ordering::Acquire) {
                return;
            }
            // SAFETY: null is None, and anything else is the address of the C function of that name, which has this
            // type.
            let found = unsafe {
                Functions { $($name: core::mem::transmute::<*mut c_void, Option<$type>>(find($symbol)),)* }
            };
            let served = touch::instead_of(&found).unwrap_or(found);
            $(TABLE.$name.store(served.$name.map_or(null_mut(), |name| name as *mut c_void), Ordering::Release);)*
        }

        $(
            /// The real function; `None` during the lookup, which itself allocates, or if no object defines it.
            #[inline(always)]
            pub fn $name() -> Option<$type> {
                let mut found = TABLE.$name.load(Ordering::Acquire);
                if found.is_null() {
                    look_up();
                    found = TABLE.$name.load(Ordering::Acquire);
                }
                // SAFETY: null is None, and anything else is the address of the C function of that name, which
                // has this type.
                unsafe { core::mem::transmute::<*mut c_void, Option<$type>>(found) }
            }
        )*
    };
}

real_functions! {
    malloc: c"malloc", unsafe extern "C" fn(size_t) -> *mut c_void;
    calloc: c"calloc", unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
    realloc: c"realloc", unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
    free: c"free", unsafe extern "C" fn(*mut c_void);
    posix_memalign: c"posix_memalign", unsafe extern "C" fn(*mut *mut c_void, size_t, size_t) -> c_int;
    aligned_alloc: c"aligned_alloc", unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
    memalign: c"memalign", unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
    valloc: c"valloc", unsafe extern "C" fn(size_t) -> *mut c_void;
    pvalloc: c"pvalloc", unsafe extern "C" fn(size_t) -> *mut c_void;
    malloc_usable_size: c"malloc_usable_size", unsafe extern "C" fn(*mut c_void) -> size_t;
    fork: c"fork", unsafe extern "C" fn() -> libc::pid_t;
    mlockall: c"mlockall", unsafe extern "C" fn(c_int) -> c_int;
    munlockall: c"munlockall", unsafe extern "C" fn() -> c_int;
    prctl: c"prctl", unsafe extern "C" fn(c_int, ...) -> c_int;
    personality: c"personality", unsafe extern "C" fn(c_ulong) -> c_int;
    dlclose: c"dlclose", unsafe extern "C" fn(*mut c_void) -> c_int;
}

/// The next definition of `symbol` after this object; the program's definition if this object is attached, because then
/// it comes last.
#[inline(never)]
pub(crate) fn find(symbol: &CStr) -> *mut c_void {
    let from = if attached::is_attached() { libc::RTLD_DEFAULT } else { libc::RTLD_NEXT };
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(from, symbol.as_ptr()) };
    // dlsym recognises "this object" by the return address: it must not be called in tail position.
    let found = black_box(found);
    if attached::is_attached() { slots::without_stub(symbol, found as u64) as *mut c_void } else { found }
}

/// Whether the program calls the recorder's `malloc`, not one that the executable defines.
pub fn is_called() -> bool {
    // SAFETY: the name is a C string.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    // The address of `malloc` in this object cannot be used: the executable's symbol would replace it too.
    let here = (&raw const TABLE).cast::<c_void>();
    object_of(called).is_some_and(|called| object_of(here).is_some_and(|here| called.dli_fbase == here.dli_fbase))
}

/// The path of the object whose `malloc` serves the program.
pub fn allocator() -> Option<&'static CStr> {
    path_of(malloc()? as *const c_void)
}

/// Whether the program's `malloc` is that of the C library.
pub fn serves_from_libc() -> bool {
    let base = |address| object_of(address).map(|object| object.dli_fbase);
    malloc().and_then(|malloc| base(malloc as *const c_void)) == base(find(c"gnu_get_libc_version"))
}

/// The path of the object that contains `address`. It is one that stays loaded.
pub fn path_of(address: *const c_void) -> Option<&'static CStr> {
    let object = object_of(address)?;
    // SAFETY: the name is a C string that lives as long as its object.
    (!object.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(object.dli_fname) })
}

/// The object that contains `address`.
fn object_of(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: Dl_info is plain data that dladdr fills.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address, &raw mut info) != 0).then_some(info)
    }
}
