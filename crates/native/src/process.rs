//! One allocator for the whole process, with a heap per thread: what serves `GlobalAlloc` and the C interface.
//!
//! Nothing here allocates: the allocator is made in place in a static, thread heaps live in the reservation.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hksim_policy::layout::Layout;
use hksim_policy::{Allocator, Block, ConstGeometry, Options, Request, ThreadHeap};

use crate::memory::MmapMemory;
use crate::os::Syscalls;

/// `preset default` as constants: 2 MiB SuperSlabs, 64 KiB units.
type Geometry = ConstGeometry<21, 16>;
type World = MmapMemory<Syscalls>;
type Heap = ThreadHeap<World>;

/// Arena sizes tried in turn: address space may be limited.
const ARENA_BYTES: [u64; 4] = [64 << 30, 4 << 30, 512 << 20, 64 << 20];

/// The process's allocator.
struct Process {
    once: Once,
    ready: AtomicBool,
    exit_key: AtomicU32,
    allocator: UnsafeCell<MaybeUninit<Allocator<World, Geometry>>>,
}

// SAFETY: the cell is written once, under `once`, before `ready` is set; afterwards only shared references exist, and the
// allocator is `Sync`.
unsafe impl Sync for Process {}

static PROCESS: Process = Process {
    once: Once::new(),
    ready: AtomicBool::new(false),
    exit_key: AtomicU32::new(0),
    allocator: UnsafeCell::new(MaybeUninit::uninit()),
};

thread_local! {
    // Const-initialised and without a destructor, so that its access never allocates; `close` runs by a pthread key.
    static HEAP: Cell<*mut Heap> = const { Cell::new(ptr::null_mut()) };
}

fn start() -> Option<Allocator<World, Geometry>> {
    ARENA_BYTES.iter().find_map(|&bytes| {
        let layout = Layout::new(&Geometry::default(), bytes);
        let memory = MmapMemory::new(layout, Syscalls).ok()?;
        Some(Allocator::new(memory, Geometry::default(), Options::default(), &layout))
    })
}

fn allocator() -> Option<&'static Allocator<World, Geometry>> {
    PROCESS.once.call_once(|| {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: `key` is valid to write to, `close` has the right signature.
        if unsafe { libc::pthread_key_create(&mut key, Some(close)) } != 0 {
            return;
        }
        PROCESS.exit_key.store(key, Ordering::Relaxed);
        if let Some(allocator) = start() {
            // SAFETY: `call_once` runs once, and nobody reads the cell before `ready`.
            unsafe { (*PROCESS.allocator.get()).write(allocator) };
            PROCESS.ready.store(true, Ordering::Release);
        }
    });
    if !PROCESS.ready.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: written before `ready` was set, never again.
    Some(unsafe { (*PROCESS.allocator.get()).assume_init_ref() })
}

/// A thread ends: its heap closes. Calls after this open a new one, and its key runs the destructor again.
extern "C" fn close(heap: *mut libc::c_void) {
    HEAP.set(ptr::null_mut());
    let (Some(allocator), Some(heap)) = (allocator(), NonNull::new(heap.cast::<Heap>())) else { return };
    // SAFETY: the pointer was stored by `open` for this thread, which gives the heap up here.
    allocator.close_heap(unsafe { heap.read() });
}

#[cold]
fn open(allocator: &'static Allocator<World, Geometry>) -> Option<NonNull<Heap>> {
    let heap = allocator.open_heap()?;
    let at = allocator.mem.heap_storage(heap.id()).cast::<Heap>();
    // SAFETY: the slot's map is this heap's, page-aligned and large enough (`ThreadHeap` asserts that).
    unsafe { at.write(heap) };
    HEAP.set(at.as_ptr());
    // SAFETY: the key exists. That this call may allocate is no harm: the heap is set.
    unsafe { libc::pthread_setspecific(PROCESS.exit_key.load(Ordering::Relaxed), at.as_ptr().cast()) };
    Some(at)
}

/// Runs `work` with the allocator and the calling thread's heap. `None` if there is no memory for either.
#[inline(always)]
fn with_heap<R>(work: impl FnOnce(&Allocator<World, Geometry>, &mut Heap) -> Option<R>) -> Option<R> {
    let heap = HEAP.get();
    let allocator = if heap.is_null() {
        allocator()?
    } else {
        // SAFETY: a heap exists, so the allocator does.
        unsafe { (*PROCESS.allocator.get()).assume_init_ref() }
    };
    let mut heap = match NonNull::new(heap) {
        Some(heap) => heap,
        None => open(allocator)?,
    };
    // SAFETY: the heap is this thread's alone, and no call of the policy comes back here.
    work(allocator, unsafe { heap.as_mut() })
}

/// Allocates; null where there is no memory.
#[inline(always)]
pub fn allocate(request: Request) -> *mut u8 {
    let block = with_heap(|allocator, heap| {
        allocator.allocate(heap, request).map(|block| allocator.mem.address(block).as_ptr())
    });
    block.unwrap_or(ptr::null_mut())
}

/// A pointer that this allocator did not hand out. The process cannot go on.
#[cold]
fn foreign(address: NonNull<u8>) -> ! {
    let mut line = *b"hksim: free or realloc of a foreign pointer 0x0000000000000000\n";
    let digits = line.len() - 17;
    for (index, digit) in line[digits..digits + 16].iter_mut().enumerate() {
        let nibble = (address.as_ptr() as usize >> (60 - 4 * index)) & 0xF;
        *digit = b"0123456789abcdef"[nibble];
    }
    // SAFETY: the buffer is valid; abort never returns.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::abort()
    }
}

#[inline(always)]
fn block_of(allocator: &Allocator<World, Geometry>, address: NonNull<u8>) -> Block<NonNull<u8>> {
    if !allocator.mem.holds(address) {
        foreign(address);
    }
    allocator.mem.block_at(address)
}

/// Frees what [`allocate`] or [`resize`] gave.
///
/// # Safety
/// `address` is live and not used afterwards. (An address outside the arena is recognised and ends the process.)
#[inline(always)]
pub unsafe fn free(address: NonNull<u8>) {
    with_heap(|allocator, heap| {
        allocator.free(heap, block_of(allocator, address));
        Some(())
    });
}

/// Resizes; null where there is no memory, and the block is unchanged then.
///
/// # Safety
/// As for [`free`], unless null is returned.
pub unsafe fn resize(address: NonNull<u8>, bytes: u64) -> *mut u8 {
    let block = with_heap(|allocator, heap| {
        let block = block_of(allocator, address);
        allocator.resize(heap, block, bytes).map(|block| allocator.mem.address(block).as_ptr())
    });
    block.unwrap_or(ptr::null_mut())
}

/// Usable bytes of a live block.
///
/// # Safety
/// `address` is live.
pub unsafe fn usable_bytes(address: NonNull<u8>) -> u64 {
    allocator().map_or(0, |allocator| allocator.usable_bytes(block_of(allocator, address)))
}
