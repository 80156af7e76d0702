//! The region that watched objects lie in: each alone on fresh pages, no address used twice.
//!
//! A small object lies across two pages, as far as its alignment permits: so it can be seen what happens first on either side of a
//! boundary. Where the boundary lies in it varies from object to object.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{c_long, c_void};

use crate::sys;
use crate::touch::states;
use crate::touched::{PAGE_BYTES, REGION_BASE, REGION_BYTES, REGION_PLACES, WATCHED_BYTES_MIN};

/// Bytes of a page.
pub const PAGE: usize = PAGE_BYTES as usize;
const PAGES: usize = (REGION_BYTES / PAGE_BYTES) as usize;
/// Pages made accessible at a time; the rest of the region is no memory that a program could lock or dump.
const OPENED_PAGES: usize = 16 << 10;
/// A slot's pages as a log2 stand above this bit of its entry in the table; 0 there: as many as its bytes need.
const ROOM_SHIFT: u32 = 56;
/// Where the object begins on its first page stands above this bit, in units of [`GRAIN`].
const LEAD_SHIFT: u32 = 48;
/// All blocks begin at multiples of this.
const GRAIN: usize = 16;

static BASE: AtomicUsize = AtomicUsize::new(0);
/// The first page never handed out.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Pages before this one are accessible.
static OPENED: AtomicUsize = AtomicUsize::new(0);
/// One entry per page: of the first page of a live object, its size and room; 0 elsewhere. A forked child has a copy.
static SLOTS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Reserves the region; false if the system has no room for it.
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

/// The first page never handed out.
pub fn pages_used() -> usize {
    NEXT.load(Ordering::Relaxed)
}

/// A live object of the region.
#[derive(Clone, Copy)]
pub struct Block {
    page: usize,
}

/// Fresh pages for an object of `bytes` (above 0), aligned to `align` (a power of two); `None` if the region is used up. A small one
/// lies across a boundary of pages; `turn` tells objects of one kind apart, so that they have it in different places.
pub fn allocate(bytes: usize, align: usize, turn: u32) -> Option<Block> {
    let lead = if bytes < WATCHED_BYTES_MIN as usize { lead(bytes, align, turn) } else { 0 };
    let page = take((lead + bytes).div_ceil(PAGE), align.div_ceil(PAGE))?;
    slot(page).store(bytes as u64 | ((lead / GRAIN) as u64) << LEAD_SHIFT, Ordering::Release);
    Some(Block { page })
}

/// Where an object of less than a page begins on its first page, so that some of it lies on the next; 0 if its alignment forbids that.
fn lead(bytes: usize, align: usize, turn: u32) -> usize {
    let step = align.max(GRAIN);
    let places = bytes.saturating_sub(1) / step;
    // Multiples of the golden ratio fall evenly into the places, however many they are.
    let share = turn.wrapping_add(1).wrapping_mul(0x9E37_79B9);
    let place = ((u64::from(share) * places as u64) >> 32) as usize;
    if places == 0 { 0 } else { PAGE - (place + 1) * step }
}

/// The same for an object that has grown and will grow on: with room for twice its size.
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

/// Makes pages accessible. Threads that do it at once do the same.
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
    debug_assert!(page < PAGES, "a page of the region");
    // SAFETY: the table has an entry for each page and stays mapped.
    unsafe { &*SLOTS.load(Ordering::Relaxed).add(page) }
}

impl Block {
    /// The live object that begins at `address`, if it is one of the region.
    #[inline]
    pub fn at(address: *mut c_void) -> Option<Self> {
        let offset = (address as usize).wrapping_sub(base());
        if offset >= REGION_BYTES as usize {
            return None;
        }
        let block = Self { page: offset / PAGE };
        // What is no live object goes to the real allocator, which knows best what to say of it.
        let is_live = block.page < pages_used() && slot(block.page).load(Ordering::Acquire) != 0;
        (is_live && block.lead() == offset % PAGE).then_some(block)
    }

    /// Its address.
    pub fn address(self) -> *mut c_void {
        (base() + self.page * PAGE + self.lead()) as *mut c_void
    }

    /// Where it begins on its first page.
    pub fn lead(self) -> usize {
        let entry = slot(self.page).load(Ordering::Relaxed);
        (entry >> LEAD_SHIFT) as usize % (PAGE / GRAIN) * GRAIN
    }

    /// Its first page, from the start of the region.
    pub fn page(self) -> usize {
        self.page
    }

    /// Its size as the program asked for it.
    pub fn bytes(self) -> usize {
        (slot(self.page).load(Ordering::Relaxed) & ((1 << LEAD_SHIFT) - 1)) as usize
    }

    /// Its pages.
    pub fn pages(self) -> usize {
        (self.lead() + self.bytes()).div_ceil(PAGE)
    }

    /// Pages it may grow to where it is.
    fn room(self) -> usize {
        match slot(self.page).load(Ordering::Relaxed) >> ROOM_SHIFT {
            0 => self.pages(),
            log2 => 1 << log2,
        }
    }

    /// Resizes the object where it is; false, and nothing is done, if it has no room. Pages cut off are given back for good.
    pub fn resize_in_place(self, bytes: usize) -> bool {
        let lead = self.lead();
        let (before, after) = (self.pages(), (lead + bytes).div_ceil(PAGE));
        // Of a large object the pages are told apart, from its own start.
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

    /// Ends the object.
    pub fn release(self) {
        let pages = self.pages();
        slot(self.page).store(0, Ordering::Release);
        give_back(self.page, pages);
    }
}

/// Notes what became of the pages, and gives their memory back.
fn give_back(page: usize, pages: usize) {
    let _errno = sys::Errno::save();
    if states::note(page, pages) {
        sys::give_back((base() + page * PAGE) as *mut c_void, (pages * PAGE) as c_long);
    }
}
