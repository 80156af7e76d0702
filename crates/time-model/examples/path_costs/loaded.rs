//! The allocator in a shared object, loaded beside the process's own.

use std::error::Error;
use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use hksim_engine::Heaps;
use hksim_trace::event::{AllocCall, ReallocCall, ThreadId};
use libc::size_t;

/// The time of the current event.
static NOW_NS: AtomicU64 = AtomicU64::new(0);

/// The clock of the loaded object: executables come before the C library in the order in which symbols are searched.
///
/// # Safety
/// `time` is valid to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(_clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    let now_ns = NOW_NS.load(Ordering::Relaxed);
    let now = libc::timespec { tv_sec: (now_ns / 1_000_000_000) as i64, tv_nsec: (now_ns % 1_000_000_000) as i64 };
    // SAFETY: the caller's promise.
    unsafe { time.write(now) };
    0
}

/// The functions of the object.
#[derive(Clone, Copy)]
pub(crate) struct Loaded {
    malloc: unsafe extern "C" fn(size_t) -> *mut c_void,
    calloc: unsafe extern "C" fn(size_t, size_t) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void,
    reallocarray: unsafe extern "C" fn(*mut c_void, size_t, size_t) -> *mut c_void,
    posix_memalign: unsafe extern "C" fn(*mut *mut c_void, size_t, size_t) -> c_int,
    aligned_alloc: unsafe extern "C" fn(size_t, size_t) -> *mut c_void,
    memalign: unsafe extern "C" fn(size_t, size_t) -> *mut c_void,
    valloc: unsafe extern "C" fn(size_t) -> *mut c_void,
    pvalloc: unsafe extern "C" fn(size_t) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    malloc_usable_size: unsafe extern "C" fn(*mut c_void) -> size_t,
}

impl Loaded {
    /// Loads an object.
    pub(crate) fn open(object: &str) -> Result<Loaded, Box<dyn Error>> {
        let name = CString::new(object)?;
        // SAFETY: the allocator's constructors have no preconditions.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!("{object}: cannot be loaded").into());
        }
        /// Looks a function up by the name of its field.
        macro_rules! functions {
            ($($name:ident),*) => {
                Loaded { $($name: {
                    let name = concat!(stringify!($name), "\0").as_ptr();
                    // SAFETY: the handle is open, and the name ends with a zero byte.
                    let function = unsafe { libc::dlsym(handle, name.cast()) };
                    if function.is_null() {
                        return Err(format!("{object}: no function {}", stringify!($name)).into());
                    }
                    #[expect(clippy::missing_transmute_annotations, reason = "the field has the type")]
                    // SAFETY: the C library's header declares the function with this type.
                    let function = unsafe { std::mem::transmute::<*mut c_void, _>(function) };
                    function
                }),* }
            };
        }
        Ok(functions!(
            malloc,
            calloc,
            realloc,
            reallocarray,
            posix_memalign,
            aligned_alloc,
            memalign,
            valloc,
            pvalloc,
            free,
            malloc_usable_size
        ))
    }
}

/// The address of a block; `None` if the request failed.
fn address(block: *mut c_void) -> Option<usize> {
    (!block.is_null()).then_some(block as usize)
}

impl Heaps for Loaded {
    type Place = usize;
    type Heap = ();

    fn open_heap(&self, _thread: ThreadId) -> Option<()> {
        Some(())
    }

    fn close_heap(&self, _heap: ()) {}

    fn set_now(&self, now_ns: u64) {
        NOW_NS.store(now_ns, Ordering::Relaxed);
    }

    fn allocate(&self, _heap: &mut (), call: AllocCall, bytes: u64, align_log2: u8) -> Option<usize> {
        let (bytes, align) = (bytes as size_t, 1usize << align_log2);
        // SAFETY: allocating functions have no preconditions.
        address(unsafe {
            match call {
                AllocCall::Malloc => (self.malloc)(bytes),
                AllocCall::Calloc => (self.calloc)(1, bytes),
                AllocCall::Realloc => (self.realloc)(std::ptr::null_mut(), bytes),
                AllocCall::Reallocarray => (self.reallocarray)(std::ptr::null_mut(), 1, bytes),
                AllocCall::PosixMemalign => {
                    let mut block = std::ptr::null_mut();
                    (self.posix_memalign)(&mut block, align, bytes);
                    block
                }
                AllocCall::AlignedAlloc => (self.aligned_alloc)(align, bytes),
                AllocCall::Memalign => (self.memalign)(align, bytes),
                AllocCall::Valloc => (self.valloc)(bytes),
                AllocCall::Pvalloc => (self.pvalloc)(bytes),
            }
        })
    }

    fn resize(&self, _heap: &mut (), place: usize, bytes: u64, call: ReallocCall) -> Option<usize> {
        let (block, bytes) = (place as *mut c_void, bytes as size_t);
        // SAFETY: a live block of the object.
        address(unsafe {
            match call {
                ReallocCall::Realloc => (self.realloc)(block, bytes),
                ReallocCall::Reallocarray => (self.reallocarray)(block, 1, bytes),
            }
        })
    }

    fn free(&self, _heap: &mut (), place: usize) {
        // SAFETY: a live block of the object, not used afterwards.
        unsafe { (self.free)(place as *mut c_void) };
    }

    fn free_by_resize(&self, heap: &mut (), place: usize, call: ReallocCall) {
        self.resize(heap, place, 0, call);
    }

    fn usable_bytes(&self, place: usize) -> u64 {
        // SAFETY: a live block of the object.
        unsafe { (self.malloc_usable_size)(place as *mut c_void) as u64 }
    }

    fn address(&self, place: usize) -> u64 {
        place as u64
    }

    fn identity(&self, place: usize) -> u64 {
        place as u64
    }

    fn read(&self, place: usize, offset: u64, bytes: u64) {
        for at in offset..offset + bytes {
            // SAFETY: the block holds the byte.
            unsafe { (place as *const u8).add(at as usize).read_volatile() };
        }
    }

    fn write(&self, place: usize, offset: u64, bytes: u64) {
        // SAFETY: the block holds the bytes.
        unsafe { (place as *mut u8).add(offset as usize).write_bytes(0xA5, bytes as usize) };
    }
}
