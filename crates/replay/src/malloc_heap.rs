//! The process's `malloc`, called with the operations of the trace.

use std::ptr::{self, NonNull};

use hksim_engine::Heaps;
use hksim_trace::event::{AllocCall, ReallocCall, ThreadId};
use libc::{c_int, c_void, size_t};

unsafe extern "C" {
    fn reallocarray(block: *mut c_void, count: size_t, bytes: size_t) -> *mut c_void;
    fn aligned_alloc(alignment: size_t, bytes: size_t) -> *mut c_void;
    fn memalign(alignment: size_t, bytes: size_t) -> *mut c_void;
    fn valloc(bytes: size_t) -> *mut c_void;
    fn pvalloc(bytes: size_t) -> *mut c_void;
    fn posix_memalign(block: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int;
}

/// The byte that applications write in a replay; never zero.
const APPLICATION_BYTE: u8 = 0xA5;

/// The process's `malloc`, which knows its threads itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Malloc;

impl Heaps for Malloc {
    type Place = NonNull<u8>;
    type Heap = ();

    fn open_heap(&self, _thread: ThreadId) -> Option<()> {
        Some(())
    }

    fn close_heap(&self, _heap: ()) {}

    #[inline]
    fn allocate(&self, _heap: &mut (), call: AllocCall, bytes: u64, align_log2: u8) -> Option<NonNull<u8>> {
        let (bytes, alignment) = (bytes as size_t, 1usize << align_log2);
        // SAFETY: allocating functions; a refused request returns null.
        let got = unsafe {
            match call {
                AllocCall::Malloc => libc::malloc(bytes),
                AllocCall::Calloc => libc::calloc(1, bytes),
                AllocCall::Realloc => libc::realloc(ptr::null_mut(), bytes),
                AllocCall::Reallocarray => reallocarray(ptr::null_mut(), 1, bytes),
                AllocCall::PosixMemalign => {
                    let mut block = ptr::null_mut();
                    match posix_memalign(&mut block, alignment, bytes) {
                        0 => block,
                        _ => ptr::null_mut(),
                    }
                }
                AllocCall::AlignedAlloc => aligned_alloc(alignment, bytes),
                AllocCall::Memalign => memalign(alignment, bytes),
                AllocCall::Valloc => valloc(bytes),
                AllocCall::Pvalloc => pvalloc(bytes),
            }
        };
        NonNull::new(got.cast())
    }

    fn resize(&self, _heap: &mut (), place: NonNull<u8>, bytes: u64, call: ReallocCall) -> Option<NonNull<u8>> {
        let old = place.as_ptr().cast();
        // SAFETY: a live block of this allocator.
        let got = unsafe {
            match call {
                ReallocCall::Realloc => libc::realloc(old, bytes as size_t),
                ReallocCall::Reallocarray => reallocarray(old, 1, bytes as size_t),
            }
        };
        NonNull::new(got.cast())
    }

    #[inline]
    fn free(&self, _heap: &mut (), place: NonNull<u8>) {
        // SAFETY: a live block of this allocator, not used afterwards.
        unsafe { libc::free(place.as_ptr().cast()) };
    }

    fn free_by_resize(&self, heap: &mut (), place: NonNull<u8>, call: ReallocCall) {
        if let Some(left) = self.resize(heap, place, 0, call) {
            // Some allocators return an empty block.
            self.free(heap, left);
        }
    }

    #[inline]
    fn address(&self, place: NonNull<u8>) -> u64 {
        place.as_ptr().addr() as u64
    }

    #[inline]
    fn identity(&self, place: NonNull<u8>) -> u64 {
        self.address(place)
    }

    fn usable_bytes(&self, place: NonNull<u8>) -> u64 {
        // SAFETY: a live block of this allocator.
        unsafe { libc::malloc_usable_size(place.as_ptr().cast()) as u64 }
    }

    fn read(&self, place: NonNull<u8>, offset: u64, bytes: u64) {
        for at in offset..offset + bytes {
            // SAFETY: the block holds the byte, and memory from the kernel is always initialised.
            unsafe { place.add(at as usize).read_volatile() };
        }
    }

    #[inline]
    fn write(&self, place: NonNull<u8>, offset: u64, bytes: u64) {
        // SAFETY: the block holds the bytes.
        unsafe { place.add(offset as usize).as_ptr().write_bytes(APPLICATION_BYTE, bytes as usize) };
    }
}
