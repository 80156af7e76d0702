//! The two allocators of a process, each in a static, and the access to the calling thread's heap.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::{Allocator, ConstGeometry, Geometry, Memory, RunGeometry};

use super::thread_state::{EMPTY, ThreadState};
use super::{Heap, ProcessMemory};
use crate::lock::ForkLock;
use crate::{slots, tls};

/// The geometry of `preset default`, as constants: 2 MiB SuperSlabs, 64 KiB slices.
pub(super) type Constant = ConstGeometry<21, 16>;

/// The geometry of one of the two allocators, with access to its thread-local pointer. This is a trait so that the fast
/// paths are compiled for each geometry.
pub(super) trait ProcessGeometry: Geometry + 'static {
    /// The calling thread's state.
    fn thread_state() -> *mut ThreadState;
    /// Sets the calling thread's state.
    fn set_thread_state(thread_state: *mut ThreadState);
    /// Closes the heap of an exiting thread. If that thread allocates or frees again, it opens a new heap, and this
    /// function runs again for the new heap.
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

/// The heap of a thread state.
#[inline(always)]
fn heap_at(thread_state: *mut ThreadState) -> NonNull<Heap> {
    // SAFETY: thread states and heap slots are not at address 0.
    unsafe { NonNull::new_unchecked(&raw mut (*thread_state).heap) }
}

/// The common heap: the heap in the last slot, shared by all threads that found no other free slot.
#[derive(Clone, Copy)]
pub(super) struct CommonHeap {
    heap: Option<NonNull<Heap>>,
    /// Number of calls that the common heap has served.
    pub(super) calls: u64,
}

// SAFETY: the heap is not tied to a thread; only the lock's holder uses it.
unsafe impl Send for CommonHeap {}

/// An allocator that may serve the process.
pub(super) struct ProcessAllocator<G: ProcessGeometry> {
    allocator: UnsafeCell<MaybeUninit<Allocator<ProcessMemory, G>>>,
    common: ForkLock<CommonHeap>,
    /// A pthread key, whose destructor closes an exiting thread's heap.
    exit_key: AtomicU32,
}

// SAFETY: the cell is written once, in `init`, before any thread has a heap and before `start` returns; afterwards only
// shared references exist, and the allocator is `Sync`.
unsafe impl<G: ProcessGeometry> Sync for ProcessAllocator<G> {}

/// The allocator with constant geometry.
pub(super) static CONSTANT: ProcessAllocator<Constant> = ProcessAllocator::new();
/// The allocator with geometry from the environment.
pub(super) static CONFIGURED: ProcessAllocator<RunGeometry> = ProcessAllocator::new();

impl<G: ProcessGeometry> ProcessAllocator<G> {
    const fn new() -> ProcessAllocator<G> {
        ProcessAllocator {
            allocator: UnsafeCell::new(MaybeUninit::uninit()),
            common: ForkLock::new(CommonHeap { heap: None, calls: 0 }),
            exit_key: AtomicU32::new(0),
        }
    }

    /// The calling thread's state, or [`EMPTY`].
    #[inline(always)]
    pub(super) fn thread_state(&self) -> NonNull<ThreadState> {
        // SAFETY: the pointer starts as the address of a static, and is never set to null.
        unsafe { NonNull::new_unchecked(G::thread_state()) }
    }

    /// The calling thread's heap, if it has one here.
    #[inline(always)]
    pub(super) fn heap(&self) -> Option<NonNull<Heap>> {
        let thread_state = self.thread_state().as_ptr();
        if ptr::eq(thread_state, &EMPTY) { None } else { Some(heap_at(thread_state)) }
    }

    /// The allocator. Call this only if the thread has a heap here, or if `start` returned this allocator.
    #[inline(always)]
    pub(super) fn allocator(&'static self) -> &'static Allocator<ProcessMemory, G> {
        // SAFETY: the allocator was written before either condition became true.
        unsafe { (*self.allocator.get()).assume_init_ref() }
    }

    /// Stores the allocator. Returns whether threads can use it.
    ///
    /// # Safety
    /// Called once, before anything else.
    pub(super) unsafe fn init(&self, allocator: Allocator<ProcessMemory, G>) -> bool {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: `key` is valid to write to, `close` has the right signature.
        if unsafe { libc::pthread_key_create(&mut key, Some(G::close)) } != 0 {
            return false;
        }
        self.exit_key.store(key, Ordering::Relaxed);
        // SAFETY: no thread reads the cell yet.
        unsafe { (*self.allocator.get()).write(allocator) };
        true
    }

    /// Runs `work` for a thread without a heap. Uses a new heap, or the common heap if no slot but the last is free.
    /// `None` if there is no common heap either.
    #[cold]
    pub(super) fn with_new_heap<R>(&'static self, work: impl FnOnce(&mut Heap) -> R) -> Option<R> {
        // Take the lock first, so that a thread that finds no slot does find the common heap.
        let mut common = self.common();
        if let Some((id, thread_state)) = self.open() {
            if id + 1 < self.allocator().mem.heaps() {
                drop(common);
                self.give_to_thread(thread_state);
                // SAFETY: only this thread uses the heap.
                return Some(work(unsafe { heap_at(thread_state).as_mut() }));
            }
            common.heap = Some(heap_at(thread_state));
        }
        common.calls += 1;
        // SAFETY: only the lock's holder uses the heap, and the policy never calls back into this module.
        common.heap.map(|mut heap| work(unsafe { heap.as_mut() }))
    }

    /// Locks the common heap.
    pub(super) fn common(&'static self) -> MutexGuard<'static, CommonHeap> {
        self.common.lock()
    }

    /// In the child of a fork: resets the common heap's lock. Returns the heap, unless it was on a slow path during the
    /// fork.
    ///
    /// # Safety
    /// Called once in the child of a fork, while it has only one thread, and this thread does not hold the lock.
    pub(super) unsafe fn renew_common(&'static self) -> Option<NonNull<Heap>> {
        // SAFETY: the caller's promise.
        let was_held = unsafe { self.common.renew() };
        let mut common = self.common();
        // SAFETY: this is the only thread now.
        let is_torn = was_held && common.heap.is_some_and(|heap| unsafe { !heap.as_ref().is_consistent() });
        if is_torn {
            common.heap = None;
        }
        common.heap
    }

    /// Opens a heap in the lowest free slot.
    fn open(&'static self) -> Option<(u32, *mut ThreadState)> {
        let allocator = self.allocator();
        let id = slots::open(allocator, |at| {
            // SAFETY: the slot belongs to this heap, is page-aligned and large enough (`thread_state.rs` asserts that).
            unsafe { ThreadState::store_empty(&allocator.mem, at.cast()) }
        })?;
        Some((id, allocator.mem.heap_storage(id).cast::<ThreadState>().as_ptr()))
    }

    fn give_to_thread(&'static self, thread_state: *mut ThreadState) {
        G::set_thread_state(thread_state);
        // SAFETY: the key exists. The call may allocate, which works: the heap is already set.
        unsafe { libc::pthread_setspecific(self.exit_key.load(Ordering::Relaxed), thread_state.cast()) };
    }

    fn close(&'static self, thread_state: *mut ThreadState) {
        G::set_thread_state((&raw const EMPTY).cast_mut());
        if thread_state.is_null() {
            return;
        }
        // SAFETY: `open` stored the pointer for this thread, which closes the heap here.
        let heap = unsafe { heap_at(thread_state).as_mut() };
        slots::close(self.allocator(), heap);
    }

    /// The address at which a slot stores its heap.
    pub(super) fn storage(&'static self, heap: u32) -> NonNull<Heap> {
        heap_at(self.allocator().mem.heap_storage(heap).cast().as_ptr())
    }
}
