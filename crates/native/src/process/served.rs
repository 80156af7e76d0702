//! The two allocators of a process, each in a static with its way to the calling thread's heap.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::{Allocator, ConstGeometry, Geometry, Memory, RunGeometry};

use super::desk::{Desk, NOBODYS};
use super::{Heap, World};
use crate::lock::ForkLock;
use crate::{slots, tls};

/// The geometry of `preset default` as constants: 2 MiB SuperSlabs, 64 KiB units.
pub(super) type Constant = ConstGeometry<21, 16>;

/// What the two differ in beside their geometry. A trait, so that all of it is known when the fast paths are compiled.
pub(super) trait Place: Geometry + 'static {
    /// The calling thread's desk.
    fn desk() -> *mut Desk;
    /// Sets it.
    fn set_desk(desk: *mut Desk);
    /// Closes the heap of a thread that ends. Calls after this open a new heap, and its key runs this again.
    extern "C" fn close(desk: *mut libc::c_void);
}

impl Place for Constant {
    #[inline(always)]
    fn desk() -> *mut Desk {
        tls::constant()
    }

    fn set_desk(desk: *mut Desk) {
        tls::set_constant(desk);
    }

    extern "C" fn close(desk: *mut libc::c_void) {
        CONSTANT.close(desk.cast());
    }
}

impl Place for RunGeometry {
    #[inline(always)]
    fn desk() -> *mut Desk {
        tls::chosen()
    }

    fn set_desk(desk: *mut Desk) {
        tls::set_chosen(desk);
    }

    extern "C" fn close(desk: *mut libc::c_void) {
        CHOSEN.close(desk.cast());
    }
}

/// The heap of a desk.
#[inline(always)]
fn heap_at(desk: *mut Desk) -> NonNull<Heap> {
    // SAFETY: desks that were made, and maps that one fits into, are not at 0.
    unsafe { NonNull::new_unchecked(&raw mut (*desk).heap) }
}

/// The heap in the last slot, which all threads use that found no slot.
#[derive(Clone, Copy)]
pub(super) struct Common {
    heap: Option<NonNull<Heap>>,
    /// Calls that it has served.
    pub(super) calls: u64,
}

// SAFETY: a heap is no thread's in particular; who holds the lock has it.
unsafe impl Send for Common {}

/// An allocator that may serve the process.
pub(super) struct Served<G: Place> {
    allocator: UnsafeCell<MaybeUninit<Allocator<World, G>>>,
    common: ForkLock<Common>,
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
        Served {
            allocator: UnsafeCell::new(MaybeUninit::uninit()),
            common: ForkLock::new(Common { heap: None, calls: 0 }),
            exit_key: AtomicU32::new(0),
        }
    }

    /// The calling thread's desk, or nobody's.
    #[inline(always)]
    pub(super) fn desk(&self) -> NonNull<Desk> {
        // SAFETY: begins as the address of a static, and is never set to null.
        unsafe { NonNull::new_unchecked(G::desk()) }
    }

    /// The calling thread's heap, if it has one here.
    #[inline(always)]
    pub(super) fn heap(&self) -> Option<NonNull<Heap>> {
        let desk = self.desk().as_ptr();
        if ptr::eq(desk, &NOBODYS) { None } else { Some(heap_at(desk)) }
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
        if let Some((id, desk)) = self.open() {
            if id + 1 < self.allocator().mem.heaps() {
                drop(common);
                self.give_to_thread(desk);
                // SAFETY: the heap is this thread's alone.
                return Some(work(unsafe { heap_at(desk).as_mut() }));
            }
            common.heap = Some(heap_at(desk));
        }
        common.calls += 1;
        // SAFETY: the heap is the lock holder's alone, and no call of the policy comes back here.
        common.heap.map(|mut heap| work(unsafe { heap.as_mut() }))
    }

    /// The heap of threads that found no slot.
    pub(super) fn common(&'static self) -> MutexGuard<'static, Common> {
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
        let is_torn = was_held && common.heap.is_some_and(|heap| unsafe { !heap.as_ref().is_settled() });
        if is_torn {
            common.heap = None;
        }
        common.heap
    }

    /// Opens a heap in the lowest free slot.
    fn open(&'static self) -> Option<(u32, *mut Desk)> {
        let allocator = self.allocator();
        let id = slots::open(allocator, |at, heap| {
            // SAFETY: the slot's map is this heap's, page-aligned and large enough (`desk.rs` asserts that).
            unsafe { at.cast::<Desk>().write(Desk::new(&allocator.mem, heap)) };
        })?;
        Some((id, allocator.mem.heap_storage(id).cast::<Desk>().as_ptr()))
    }

    fn give_to_thread(&'static self, desk: *mut Desk) {
        G::set_desk(desk);
        // SAFETY: the key exists. That this call may allocate is no harm: the heap is set.
        unsafe { libc::pthread_setspecific(self.exit_key.load(Ordering::Relaxed), desk.cast()) };
    }

    fn close(&'static self, desk: *mut Desk) {
        G::set_desk((&raw const NOBODYS).cast_mut());
        if desk.is_null() {
            return;
        }
        // SAFETY: the pointer was stored by `open` for this thread, which gives the heap up here.
        let heap = unsafe { heap_at(desk).read() };
        slots::close(self.allocator(), heap);
    }

    /// Where the heap in a slot lies, if there is one.
    pub(super) fn storage(&'static self, heap: u32) -> NonNull<Heap> {
        heap_at(self.allocator().mem.heap_storage(heap).cast().as_ptr())
    }
}
