//! The two allocators of a process, each in a static with its way to the calling thread's heap.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::{Allocator, ConstGeometry, Geometry, Memory, RunGeometry};

use super::thread_state::{EMPTY, ThreadState};
use super::{Heap, World};
use crate::lock::ForkLock;
use crate::{slots, tls};

/// The geometry of `preset default` as constants: 2 MiB SuperSlabs, 64 KiB slices.
pub(super) type Constant = ConstGeometry<21, 16>;

/// What the two differ in beside their geometry. A trait, so that all of it is known when the fast paths are compiled.
pub(super) trait ProcessGeometry: Geometry + 'static {
    /// The calling thread's desk.
    fn thread_state() -> *mut ThreadState;
    /// Sets it.
    fn set_thread_state(thread_state: *mut ThreadState);
    /// Closes the heap of a thread that ends. Calls after this open a new heap, and its key runs this again.
    extern "C" fn close(thread_state: *mut libc::c_void);
}

impl ProcessGeometry for Constant {
    #[inline(always)]
    fn thread_state() -> *mut ThreadState {
        tls::constant()
    }

    fn set_thread_state(thread_state: *mut ThreadState) {
        tls::set_constant(thread_state);
    }

    extern "C" fn close(thread_state: *mut libc::c_void) {
        CONSTANT.close(thread_state.cast());
    }
}

impl ProcessGeometry for RunGeometry {
    #[inline(always)]
    fn thread_state() -> *mut ThreadState {
        tls::configured()
    }

    fn set_thread_state(thread_state: *mut ThreadState) {
        tls::set_configured(thread_state);
    }

    extern "C" fn close(thread_state: *mut libc::c_void) {
        CONFIGURED.close(thread_state.cast());
    }
}

/// The heap of a desk.
#[inline(always)]
fn heap_at(thread_state: *mut ThreadState) -> NonNull<Heap> {
    // SAFETY: desks that were made, and maps that one fits into, are not at 0.
    unsafe { NonNull::new_unchecked(&raw mut (*thread_state).heap) }
}

/// The heap in the last slot, which all threads use that found no slot.
#[derive(Clone, Copy)]
pub(super) struct CommonHeap {
    heap: Option<NonNull<Heap>>,
    /// Calls that it has served.
    pub(super) calls: u64,
}

// SAFETY: a heap is no thread's in particular; who holds the lock has it.
unsafe impl Send for CommonHeap {}

/// An allocator that may serve the process.
pub(super) struct ProcessAllocator<G: ProcessGeometry> {
    allocator: UnsafeCell<MaybeUninit<Allocator<World, G>>>,
    common: ForkLock<CommonHeap>,
    /// Its destructor closes a thread's heap.
    exit_key: AtomicU32,
}

// SAFETY: the cell is written once, in `put`, before any thread has a heap or `start` tells of it; afterwards only shared
// references exist, and the allocator is `Sync`.
unsafe impl<G: ProcessGeometry> Sync for ProcessAllocator<G> {}

/// Constant geometry.
pub(super) static CONSTANT: ProcessAllocator<Constant> = ProcessAllocator::new();
/// Geometry from the environment.
pub(super) static CONFIGURED: ProcessAllocator<RunGeometry> = ProcessAllocator::new();

impl<G: ProcessGeometry> ProcessAllocator<G> {
    const fn new() -> ProcessAllocator<G> {
        ProcessAllocator {
            allocator: UnsafeCell::new(MaybeUninit::uninit()),
            common: ForkLock::new(CommonHeap { heap: None, calls: 0 }),
            exit_key: AtomicU32::new(0),
        }
    }

    /// The calling thread's desk, or nobody's.
    #[inline(always)]
    pub(super) fn thread_state(&self) -> NonNull<ThreadState> {
        // SAFETY: begins as the address of a static, and is never set to null.
        unsafe { NonNull::new_unchecked(G::thread_state()) }
    }

    /// The calling thread's heap, if it has one here.
    #[inline(always)]
    pub(super) fn heap(&self) -> Option<NonNull<Heap>> {
        let thread_state = self.thread_state().as_ptr();
        if ptr::eq(thread_state, &EMPTY) { None } else { Some(heap_at(thread_state)) }
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

    /// Does something with a heap for a thread that has none: opens one, or, where all slots but the last are taken, takes
    /// the common one. `None` where even that cannot be had.
    #[cold]
    pub(super) fn with_new_heap<R>(&'static self, work: impl FnOnce(&mut Heap) -> R) -> Option<R> {
        // The lock comes first, so that whoever finds no slot also finds the common heap.
        let mut common = self.common();
        if let Some((id, thread_state)) = self.open() {
            if id + 1 < self.allocator().mem.heaps() {
                drop(common);
                self.give_to_thread(thread_state);
                // SAFETY: the heap is this thread's alone.
                return Some(work(unsafe { heap_at(thread_state).as_mut() }));
            }
            common.heap = Some(heap_at(thread_state));
        }
        common.calls += 1;
        // SAFETY: the heap is the lock holder's alone, and no call of the policy comes back here.
        common.heap.map(|mut heap| work(unsafe { heap.as_mut() }))
    }

    /// The heap of threads that found no slot.
    pub(super) fn common(&'static self) -> MutexGuard<'static, CommonHeap> {
        self.common.lock()
    }

    /// In the child of a fork: frees the common heap's lock. Returns that heap, unless the fork met it on a slow path.
    ///
    /// # Safety
    /// Called once in the child of a fork, while it has one thread, which does not hold the lock.
    pub(super) unsafe fn renew_common(&'static self) -> Option<NonNull<Heap>> {
        // SAFETY: the caller's promise.
        let was_held = unsafe { self.common.renew() };
        let mut common = self.common();
        // SAFETY: the heap is this thread's alone now.
        let is_torn = was_held && common.heap.is_some_and(|heap| unsafe { !heap.as_ref().is_consistent() });
        if is_torn {
            common.heap = None;
        }
        common.heap
    }

    /// Opens a heap in the lowest free slot.
    fn open(&'static self) -> Option<(u32, *mut ThreadState)> {
        let allocator = self.allocator();
        let id = slots::open(allocator, |at, heap| {
            // SAFETY: the slot's map is this heap's, page-aligned and large enough (`desk.rs` asserts that).
            unsafe { at.cast::<ThreadState>().write(ThreadState::new(&allocator.mem, heap)) };
        })?;
        Some((id, allocator.mem.heap_storage(id).cast::<ThreadState>().as_ptr()))
    }

    fn give_to_thread(&'static self, thread_state: *mut ThreadState) {
        G::set_thread_state(thread_state);
        // SAFETY: the key exists. That this call may allocate is no harm: the heap is set.
        unsafe { libc::pthread_setspecific(self.exit_key.load(Ordering::Relaxed), thread_state.cast()) };
    }

    fn close(&'static self, thread_state: *mut ThreadState) {
        G::set_thread_state((&raw const EMPTY).cast_mut());
        if thread_state.is_null() {
            return;
        }
        // SAFETY: the pointer was stored by `open` for this thread, which gives the heap up here.
        let heap = unsafe { heap_at(thread_state).read() };
        slots::close(self.allocator(), heap);
    }

    /// Where the heap in a slot lies, if there is one.
    pub(super) fn storage(&'static self, heap: u32) -> NonNull<Heap> {
        heap_at(self.allocator().mem.heap_storage(heap).cast().as_ptr())
    }
}
