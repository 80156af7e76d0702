//! The region of watched objects: each object is alone on fresh pages, and no address is reused.
//!
//! A small object crosses a page boundary, if its alignment permits, so that the first accesses on both sides are
//! visible as faults. The position of the boundary in the object varies from object to object.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{c_long, c_void};

use crate::sys;
use crate::touch::states;
use crate::touched::{PAGE_BYTES, REGION_BASE, REGION_BYTES, REGION_PLACES, WATCHED_BYTES_MIN};

/// Bytes of a page.
pub const PAGE: usize = PAGE_BYTES as usize;
const PAGES: usize = (REGION_BYTES / PAGE_BYTES) as usize;
/// Number of pages made accessible in one step. The rest of the region stays inaccessible, so that it is not locked by
/// `mlockall` or written to a core dump.
const OPENED_PAGES: usize = 16 << 10;
/// Lowest bit of the field in a table entry that holds log2 of the slot's number of pages. A field of 0 means the
/// number that the object's bytes need.
const ROOM_SHIFT: u32 = 56;
/// Lowest bit of the field with the object's offset on its first page, in units of [`GRAIN`].
const LEAD_SHIFT: u32 = 48;
/// All blocks begin at multiples of this.
const GRAIN: usize = 16;

static BASE: AtomicUsize = AtomicUsize::new(0);
/// The first page not allocated yet.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Pages before this one are accessible.
static OPENED: AtomicUsize = AtomicUsize::new(0);
/// One entry per page. The entry for the first page of a live object holds its size, offset and room; all others are 0.
/// A forked child has a copy.
static SLOTS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Reserves the region; false if the address space is too small.
pub fn reserve() -> bool {
    let slots = sys::map_unbacked(PAGES * size_of::<AtomicU64>());
    if slots.is_null() {
        return false;
    }
    for place in 0..REGION_PLACES {
        let base = REGION_BASE + place * REGION_BYTES;
        if sys::reserve_at(base as usize, REGION_BYTES as usize) {
            SLOTS.store(slots.cast(), Ordering::Relaxed);
            BASE.store(base as usize, Ordering::Release);
            return true;
        }
    }
    sys::unmap(slots, PAGES * size_of::<AtomicU64>());
    false
}

/// First address of the region.
pub fn base() -> usize {
    BASE.load(Ordering::Relaxed)
}

/// The first page not allocated yet.
pub fn pages_used() -> usize {
    NEXT.load(Ordering::Relaxed)
}

/// A live object of the region.
#[derive(Clone, Copy)]
pub struct Block {
    page: usize,
}

/// Fresh pages for an object of `bytes` (above 0), aligned to `align` (a power of two); `None` if the region is used
/// up. A small object crosses a page boundary; `turn` counts the objects of one kind, so that the boundary's position
/// differs between them.
pub fn allocate(bytes: usize, align: usize, turn: u32) -> Option<Block> {
    let lead = if bytes < WATCHED_BYTES_MIN as usize { lead(bytes, align, turn) } else { 0 };
    let page = take((lead + bytes).div_ceil(PAGE), align.div_ceil(PAGE))?;
    slot(page).store(bytes as u64 | ((lead / GRAIN) as u64) << LEAD_SHIFT, Ordering::Release);
    Some(Block { page })
}

/// Offset on the first page at which an object smaller than a page extends to the next page; 0 if its alignment forbids
/// that.
fn lead(bytes: usize, align: usize, turn: u32) -> usize {
    let step = align.max(GRAIN);
    let places = bytes.saturating_sub(1) / step;
    // Multiples of the golden ratio are spread evenly over any number of positions.
    let share = turn.wrapping_add(1).wrapping_mul(0x9E37_79B9);
    let place = ((u64::from(share) * places as u64) >> 32) as usize;
    if places == 0 { 0 } else { PAGE - (place + 1) * step }
}

/// As [`allocate`], for an object that has grown and is likely to grow again: with room for at least twice its size.
pub fn allocate_with_room(bytes: usize) -> Option<Block> {
    let pages = bytes.div_ceil(PAGE).checked_mul(2)?.checked_next_power_of_two()?;
    let page = take(pages, 1)?;
    slot(page).store(bytes as u64 | u64::from(pages.ilog2()) << ROOM_SHIFT, Ordering::Release);
    Some(Block { page })
}

fn take(pages: usize, align_pages: usize) -> Option<usize> {
    if !states::begin() {
        return None;
    }
    let place = |next: usize| next.checked_next_multiple_of(align_pages);
    let end = |next: usize| place(next)?.checked_add(pages).filter(|&end| end <= PAGES);
    match NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
        Ok(before) if open_up_to(end(before)?) => place(before),
        _ => {
            states::count_turned_down();
            None
        }
    }
}

/// Makes all pages before `end` accessible. Several threads may do this at the same time.
fn open_up_to(end: usize) -> bool {
    let opened = OPENED.load(Ordering::Acquire);
    if end <= opened {
        return true;
    }
    let _errno = sys::Errno::save();
    let target = end.next_multiple_of(OPENED_PAGES).min(PAGES);
    let start = (base() + opened * PAGE) as *mut c_void;
    if !sys::make_accessible(start, (target - opened) * PAGE) {
        return false;
    }
    OPENED.fetch_max(target, Ordering::AcqRel);
    true
}

fn slot(page: usize) -> &'static AtomicU64 {
    debug_assert!(page < PAGES, "the page is outside the region");
    // SAFETY: the table has an entry for each page and stays mapped.
    unsafe { &*SLOTS.load(Ordering::Relaxed).add(page) }
}

impl Block {
    /// The live object that begins at `address`, if it is in the region.
    #[inline]
    pub fn at(address: *mut c_void) -> Option<Self> {
        let offset = (address as usize).wrapping_sub(base());
        if offset >= REGION_BYTES as usize {
            return None;
        }
        let block = Self { page: offset / PAGE };
        // If this is not the start of a live object, the real allocator gets the address: it can best report the error.
        let is_live = block.page < pages_used() && slot(block.page).load(Ordering::Acquire) != 0;
        (is_live && block.lead() == offset % PAGE).then_some(block)
    }

    /// The object's address.
    pub fn address(self) -> *mut c_void {
        (base() + self.page * PAGE + self.lead()) as *mut c_void
    }

    /// The object's offset on its first page.
    pub fn lead(self) -> usize {
        let entry = slot(self.page).load(Ordering::Relaxed);
        (entry >> LEAD_SHIFT) as usize % (PAGE / GRAIN) * GRAIN
    }

    /// Number of the object's first page in the region.
    pub fn page(self) -> usize {
        self.page
    }

    /// Requested size of the object.
    pub fn bytes(self) -> usize {
        (slot(self.page).load(Ordering::Relaxed) & ((1 << LEAD_SHIFT) - 1)) as usize
    }

    /// Number of the object's pages.
    pub fn pages(self) -> usize {
        (self.lead() + self.bytes()).div_ceil(PAGE)
    }

    /// Number of pages that the object can grow to in place.
    fn room(self) -> usize {
        match slot(self.page).load(Ordering::Relaxed) >> ROOM_SHIFT {
            0 => self.pages(),
            log2 => 1 << log2,
        }
    }

    /// Resizes the object in place; false, without effect, if it has no room. Pages that it no longer needs are
    /// returned to the kernel and never reused.
    pub fn resize_in_place(self, bytes: usize) -> bool {
        let lead = self.lead();
        let (before, after) = (self.pages(), (lead + bytes).div_ceil(PAGE));
        // A large object must start at a page boundary, because its pages are counted from its start.
        let outgrows = lead > 0 && bytes >= WATCHED_BYTES_MIN as usize;
        if after > self.room() || outgrows {
            return false;
        }
        let room = slot(self.page).load(Ordering::Relaxed) >> ROOM_SHIFT;
        if after < before {
            give_back(self.page + after, before - after);
        }
        let room = if after < before { 0 } else { room };
        let lead = ((lead / GRAIN) as u64) << LEAD_SHIFT;
        slot(self.page).store(bytes as u64 | lead | room << ROOM_SHIFT, Ordering::Release);
        true
    }

    /// Frees the object.
    pub fn release(self) {
        let pages = self.pages();
        slot(self.page).store(0, Ordering::Release);
        give_back(self.page, pages);
    }
}

/// Stores the states of the pages and returns their memory to the kernel.
fn give_back(page: usize, pages: usize) {
    let _errno = sys::Errno::save();
    if states::note(page, pages) {
        sys::give_back((base() + page * PAGE) as *mut c_void, (pages * PAGE) as c_long);
    }
}
