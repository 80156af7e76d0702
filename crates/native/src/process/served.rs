//! The two allocators of a process, each in a static with its way to the calling thread's heap.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::{Allocator, ConstGeometry, Geometry, RunGeometry};

use super::{Heap, World};
use crate::tls;

/// The geometry of `preset default` as constants: 2 MiB SuperSlabs, 64 KiB units.
pub(super) type Constant = ConstGeometry<21, 16>;

/// The mark of a slot whose heap is there.
const OPEN: u32 = 1;

/// What the two differ in beside their geometry. A trait, so that all of it is known when the fast paths are compiled.
pub(super) trait Place: Geometry + 'static {
    /// The calling thread's heap; null if it has none.
    fn heap() -> *mut ();
    /// Sets it.
    fn set_heap(heap: *mut ());
    /// Closes the heap of a thread that ends. Calls after this open a new heap, and its key runs this again.
    extern "C" fn close(heap: *mut libc::c_void);
}

impl Place for Constant {
    #[inline(always)]
    fn heap() -> *mut () {
        tls::constant()
    }

    fn set_heap(heap: *mut ()) {
        tls::set_constant(heap);
    }

    extern "C" fn close(heap: *mut libc::c_void) {
        CONSTANT.close(heap);
    }
}

impl Place for RunGeometry {
    #[inline(always)]
    fn heap() -> *mut () {
        tls::chosen()
    }

    fn set_heap(heap: *mut ()) {
        tls::set_chosen(heap);
    }

    extern "C" fn close(heap: *mut libc::c_void) {
        CHOSEN.close(heap);
    }
}

/// An allocator that may serve the process.
pub(super) struct Served<G: Place> {
    allocator: UnsafeCell<MaybeUninit<Allocator<World, G>>>,
    /// Its destructor closes a thread's heap.
    exit_key: AtomicU32,
}

// SAFETY: the cell is written once, in `put`, before any thread has a heap or `start` tells of it; afterwards only shared
// references exist, and the allocator is `Sync`.
unsafe impl<G: Place> Sync for Served<G> {}

/// Constant geometry.
pub(super) static CONSTANT: Served<Constant> = Served::new();
/// Geometry from the environment.
pub(super) static CHOSEN: Served<RunGeometry> = Served::new();

impl<G: Place> Served<G> {
    const fn new() -> Served<G> {
        Served { allocator: UnsafeCell::new(MaybeUninit::uninit()), exit_key: AtomicU32::new(0) }
    }

    /// The calling thread's heap, if it has one here.
    #[inline(always)]
    pub(super) fn heap(&self) -> Option<NonNull<Heap>> {
        NonNull::new(G::heap().cast())
    }

    /// The allocator. Only for threads that have a heap here, and for those whom `start` named it.
    #[inline(always)]
    pub(super) fn allocator(&'static self) -> &'static Allocator<World, G> {
        // SAFETY: written before either can be.
        unsafe { (*self.allocator.get()).assume_init_ref() }
    }

    /// Puts the allocator into its place. Returns whether threads can use it.
    ///
    /// # Safety
    /// Called once, before anything else.
    pub(super) unsafe fn put(&self, allocator: Allocator<World, G>) -> bool {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: `key` is valid to write to, `close` has the right signature.
        if unsafe { libc::pthread_key_create(&mut key, Some(G::close)) } != 0 {
            return false;
        }
        self.exit_key.store(key, Ordering::Relaxed);
        // SAFETY: nobody reads the cell yet.
        unsafe { (*self.allocator.get()).write(allocator) };
        true
    }

    /// Opens a heap for the calling thread.
    #[cold]
    pub(super) fn open(&'static self) -> Option<NonNull<Heap>> {
        let allocator = self.allocator();
        let heap = allocator.open_heap()?;
        let id = heap.id();
        let at = allocator.mem.heap_storage(id).cast::<Heap>();
        // SAFETY: the slot's map is this heap's, page-aligned and large enough (`ThreadHeap` asserts that).
        unsafe { at.write(heap) };
        allocator.mem.heap_mark(id).store(OPEN, Ordering::Release);
        G::set_heap(at.as_ptr().cast());
        // SAFETY: the key exists. That this call may allocate is no harm: the heap is set.
        unsafe { libc::pthread_setspecific(self.exit_key.load(Ordering::Relaxed), at.as_ptr().cast()) };
        Some(at)
    }

    fn close(&'static self, heap: *mut libc::c_void) {
        G::set_heap(ptr::null_mut());
        let Some(heap) = NonNull::new(heap.cast::<Heap>()) else { return };
        // SAFETY: the pointer was stored by `open` for this thread, which gives the heap up here.
        let heap = unsafe { heap.read() };
        let allocator = self.allocator();
        allocator.mem.heap_mark(heap.id()).store(0, Ordering::Release);
        allocator.close_heap(heap);
    }

    /// Where the heap in a slot lies, if there is one.
    pub(super) fn storage(&'static self, heap: u32) -> NonNull<Heap> {
        self.allocator().mem.heap_storage(heap).cast()
    }

    /// In the child of a fork: the heap of a thread that is not there. `None` where the fork met it on a slow path.
    pub(super) fn orphan(&'static self, heap: u32) -> Option<Heap> {
        if self.allocator().mem.heap_mark(heap).load(Ordering::Acquire) != OPEN {
            return None; // it was being opened or closed
        }
        // SAFETY: written before the mark was; its thread is not here, and a heap has nothing to drop.
        Some(unsafe { self.storage(heap).read() }).filter(Heap::is_settled)
    }
}
