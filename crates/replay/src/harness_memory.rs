//! The memory of the replay harness: separate mappings, so that the measured `malloc` has no blocks of the harness.
//!
//! A replay runs in a process of hksim. If the harness's tables and buffers were blocks of the measured `malloc`,
//! freeing them would change its state: free neighbours, longer bins, and a higher mmap threshold of glibc.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::resident::{MAP_HARNESS, make_resident};

use crate::child::child_exit_code;
use crate::parent::CHILD_ARGUMENT;

/// The global allocator of a program that replays. It is [`System`], except in the children of
/// [`replay`](crate::replay), where it serves all Rust requests from separate mappings.
///
/// These children start before `main`, because the start-up code of the standard library uses `malloc`.
#[derive(Debug)]
pub struct HarnessMemory;

/// Whether this process is a replay's child. Written once, before the first request of any Rust code.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

static POOL: Pool = Pool { lock: AtomicBool::new(false), lists: UnsafeCell::new(Lists::EMPTY) };

/// The function that the C library calls before `main`. Only glibc passes it the arguments. With other C libraries,
/// children start in `main`, and their memory comes from `malloc`.
#[cfg(target_env = "gnu")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = before_main;

#[cfg(target_env = "gnu")]
extern "C" fn before_main(count: c_int, words: *const *const c_char, _: *const *const c_char) {
    // A child with another argument runs a design, and starts in `main`.
    if count != 2 {
        return;
    }
    // SAFETY: glibc passes `main`'s arguments, and there are two.
    let word = unsafe { CStr::from_ptr(*words.add(1)) };
    if word.to_bytes() == CHILD_ARGUMENT.as_bytes() {
        IS_CHILD.store(true, Ordering::Relaxed);
        // SAFETY: ends the process as a return from `main` would.
        unsafe { libc::exit(child_exit_code(&[])) };
    }
}

// SAFETY: all blocks of a process come from `System`, or all come from `Pool`.
unsafe impl GlobalAlloc for HarnessMemory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_CHILD.load(Ordering::Relaxed) {
            return POOL.allocate(layout);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !IS_CHILD.load(Ordering::Relaxed) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let block = POOL.allocate(layout);
        if !block.is_null() && class(&layout).is_some() {
            // SAFETY: a new block of that size; separate mappings are zero.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if IS_CHILD.load(Ordering::Relaxed) {
            // SAFETY: guaranteed by the caller.
            return unsafe { POOL.free(block, layout) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !IS_CHILD.load(Ordering::Relaxed) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.realloc(block, layout, bytes) };
        }
        // SAFETY: the caller promises that the new size, rounded up to the alignment, fits.
        let new_layout = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        let new = POOL.allocate(new_layout);
        if !new.is_null() {
            // SAFETY: both blocks are large enough and do not overlap; the old one is not used afterwards.
            unsafe {
                ptr::copy_nonoverlapping(block, new, layout.size().min(bytes));
                POOL.free(block, layout);
            }
        }
        new
    }
}

/// The smallest block is 16 bytes, and each class is twice the previous one.
const SMALLEST_SHIFT: u32 = 4;
/// Number of classes; larger blocks have separate mappings.
const CLASSES: usize = 13;
/// Bytes of a mapping that is split into blocks.
const CHUNK_BYTES: usize = 1 << 20;

/// The class that serves a layout. Blocks of a class are aligned to their size.
fn class(layout: &Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST_SHIFT).checked_next_power_of_two()?;
    let class = (bytes.trailing_zeros() - SMALLEST_SHIFT) as usize;
    (class < CLASSES).then_some(class)
}

/// Blocks with sizes of powers of two, which are never returned to the kernel, and separate mappings for larger blocks.
struct Pool {
    lock: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: only the holder of the lock uses the lists.
unsafe impl Sync for Pool {}

struct Lists {
    /// The first free block of each class. Every free block contains the address of the next one.
    free: [*mut u8; CLASSES],
    /// The unused rest of the newest chunk.
    next: usize,
    end: usize,
}

impl Pool {
    fn allocate(&self, layout: Layout) -> *mut u8 {
        match class(&layout) {
            Some(class) => self.with_lists(|lists| lists.take(class)),
            None => map(layout.size(), layout.align()).map_or(ptr::null_mut(), NonNull::as_ptr),
        }
    }

    /// # Safety
    /// `block` comes from [`Pool::allocate`] with this layout, and is not used afterwards.
    unsafe fn free(&self, block: *mut u8, layout: Layout) {
        match class(&layout) {
            Some(class) => self.with_lists(|lists| {
                // SAFETY: every block is large enough for a pointer, and this one is no longer in use.
                unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
                lists.free[class] = block;
            }),
            // SAFETY: a separate mapping, not used afterwards.
            None => unsafe {
                libc::munmap(block.cast(), layout.size().next_multiple_of(PAGE_BYTES as usize));
            },
        }
    }

    fn with_lists<T>(&self, work: impl FnOnce(&mut Lists) -> T) -> T {
        while self.lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // SAFETY: lets another thread run.
            unsafe { libc::sched_yield() };
        }
        // SAFETY: the lock is held.
        let done = work(unsafe { &mut *self.lists.get() });
        self.lock.store(false, Ordering::Release);
        done
    }
}

impl Lists {
    const EMPTY: Lists = Lists { free: [ptr::null_mut(); CLASSES], next: 0, end: 0 };

    fn take(&mut self, class: usize) -> *mut u8 {
        let block = self.free[class];
        if !block.is_null() {
            // SAFETY: a free block, which holds the address of the next.
            self.free[class] = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        let bytes = 1usize << (class as u32 + SMALLEST_SHIFT);
        let mut at = self.next.next_multiple_of(bytes);
        if at + bytes > self.end {
            let Some(chunk) = map(CHUNK_BYTES, CHUNK_BYTES) else { return ptr::null_mut() };
            make_resident(chunk.as_ptr(), CHUNK_BYTES);
            at = chunk.as_ptr().expose_provenance();
            self.end = at + CHUNK_BYTES;
        }
        self.next = at + bytes;
        ptr::with_exposed_provenance_mut(at)
    }
}

/// A separate zeroed mapping, aligned to `align`. It never uses huge pages, because pages that are present when a
/// window opens must not change.
fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let page = PAGE_BYTES as usize;
    let bytes = bytes.checked_next_multiple_of(page)?;
    let mapped = bytes.checked_add(align.max(page) - page)?;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_HARNESS);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let before = start.cast::<u8>().align_offset(align);
    let after = mapped - before - bytes;
    let block = start.cast::<u8>().wrapping_add(before);
    // SAFETY: whole unused pages of the new mapping; the advice changes no contents.
    unsafe {
        if before > 0 {
            libc::munmap(start, before);
        }
        if after > 0 {
            libc::munmap(block.wrapping_add(bytes).cast(), after);
        }
        libc::madvise(block.cast(), bytes, libc::MADV_NOHUGEPAGE);
    }
    NonNull::new(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads make random requests, and check the bytes that they wrote.
    #[test]
    fn blocks_are_aligned_and_disjoint_and_keep_their_bytes() {
        static POOL: Pool = Pool { lock: AtomicBool::new(false), lists: UnsafeCell::new(Lists::EMPTY) };
        fn work(seed: u64) {
            println!("seed {seed}");
            let mut state = seed;
            let mut draw = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 16) % below
            };
            let mut live: Vec<(*mut u8, Layout, u8)> = Vec::new();
            for round in 0..20_000u64 {
                if draw(3) == 0 && !live.is_empty() {
                    let (block, layout, byte) = live.swap_remove(draw(live.len() as u64) as usize);
                    // SAFETY: a live block of that layout.
                    unsafe {
                        assert!((0..layout.size()).step_by(97).all(|at| *block.add(at) == byte), "{layout:?}");
                        POOL.free(block, layout);
                    }
                } else if live.len() < 300 {
                    let scale = draw(19);
                    let bytes = draw(1 << scale) as usize + 1;
                    let layout = Layout::from_size_align(bytes, 1 << draw(18)).expect("a layout");
                    let block = POOL.allocate(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()), "{layout:?}");
                    // SAFETY: a new block of that size.
                    unsafe { block.write_bytes(round as u8, bytes) };
                    live.push((block, layout, round as u8));
                }
            }
        }
        let other = std::thread::spawn(|| work(2));
        work(1);
        other.join().expect("the other thread ends");
    }
}
