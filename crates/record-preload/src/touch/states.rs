//! The final state of each page, read from the kernel when its object is freed, and stored in a file next to the log.

use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::process::{self, Process};
use crate::touch::region::{self, Block, PAGE};
use crate::touch::scan::{self, Present};
use crate::touch::{copy, sampler};
use crate::touched::{
    PAGE_ABSENT, PAGE_READ, PAGE_WRITTEN, REGION_BYTES, STATES_OFFSET, TOUCHED_MAGIC, TOUCHED_SUFFIX, TouchedControl,
};
use crate::{own_stack, sys};

/// Number of pages whose states are mapped together. The file has one byte per page, and grows by this number of bytes.
const WINDOW_PAGES: usize = 64 << 10;
const WINDOWS: usize = (REGION_BYTES as usize / PAGE) / WINDOW_PAGES;

/// Not started; a forked child finds this state.
const NEW: u32 = 0;
/// A thread is opening the file.
const STARTING: u32 = 1;
/// The file is open.
const READY: u32 = 2;
/// The file could not be created.
const OFF: u32 = 3;

/// The file of this process. This struct is in memory that a forked child finds zeroed.
#[repr(C)]
struct States {
    state: AtomicU32,
    /// Descriptor of `/proc/self/pagemap`, 0 before its first use.
    pagemap: AtomicI32,
    pid: Cell<u32>,
    control: Cell<*mut TouchedControl>,
    windows: [AtomicPtr<AtomicU8>; WINDOWS],
}

static STATES: AtomicPtr<States> = AtomicPtr::new(null_mut());

/// Reads the states of the remaining pages when the program ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = {
    extern "C" fn at_end() {
        own_stack::run(look_at_end);
    }
    at_end
};

/// Ensures that this process has a file for its states; false on failure.
pub fn begin() -> bool {
    States::current().is_some()
}

/// Stores the states of pages whose object is being freed. Returns whether any of them is present.
pub fn note(page: usize, pages: usize) -> bool {
    let Some(states) = States::current() else {
        return true;
    };
    let mut any = false;
    let mut at = page;
    let complete = states.each_present(page, pages, |present| {
        any = true;
        states.put(at, present.first_page - at, PAGE_ABSENT);
        states.put(present.first_page, present.pages, if present.is_zero { PAGE_READ } else { PAGE_WRITTEN });
        at = present.first_page + present.pages;
    });
    if !complete {
        states.count(|control| &raw mut control.states_lost, (page + pages - at) as u64);
        return true;
    }
    states.put(at, page + pages - at, PAGE_ABSENT);
    any
}

/// Copies only the pages of a block that the program has written. All other pages are zero in both blocks.
///
/// # Safety
/// `new` is fresh, zeroed, and at least as large as `block`.
pub unsafe fn copy_touched(block: Block, new: *mut libc::c_void) {
    let bytes = block.bytes();
    // SAFETY: both blocks have at least `bytes` bytes, and the offsets below are inside them.
    let copy = |from: usize, end: usize| unsafe {
        copy::copy(block.address().cast::<u8>().add(from), new.cast::<u8>().add(from), end.min(bytes) - from);
    };
    let _errno = sys::Errno::save();
    let mut copied = 0;
    let looked = States::current().is_some_and(|states| {
        states.each_present(block.page(), block.pages(), |present| {
            let from = ((present.first_page - block.page()) * PAGE).saturating_sub(block.lead());
            let end = (present.first_page - block.page() + present.pages) * PAGE - block.lead();
            if !present.is_zero {
                copy(from, end);
            }
            copied = end;
        })
    });
    if !looked && copied < bytes {
        copy(copied, bytes);
    }
}

/// Counts an object that did not fit into the region.
pub fn count_turned_down() {
    let _errno = sys::Errno::save();
    if let Some(states) = States::current() {
        states.count(|control| &raw mut control.turned_down, 1);
    }
}

/// Stores the states of the pages that are present when the program ends.
fn look_at_end() {
    // SAFETY: null or the one States, never unmapped.
    let Some(states) = (unsafe { STATES.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    // A vfork child shares its parent's memory, and must not end its parent's recording.
    if states.state.load(Ordering::Acquire) != READY || Some(states.pid.get()) != sys::pid() {
        return;
    }
    // SAFETY: in state READY the control page is mapped, and is never unmapped.
    let first_page = unsafe { (*states.control.get()).first_page as usize };
    let complete = states.each_present(first_page, region::pages_used() - first_page, |present| {
        states.put(present.first_page, present.pages, if present.is_zero { PAGE_READ } else { PAGE_WRITTEN });
    });
    states.count(|control| &raw mut control.looked_at_end, u64::from(complete));
}

impl States {
    /// The file of this process; creates it if needed.
    fn current() -> Option<&'static Self> {
        let states = Self::shared()?;
        if matches!(states.state.load(Ordering::Acquire), NEW | STARTING) {
            states.begin();
        }
        (states.state.load(Ordering::Acquire) == READY).then_some(states)
    }

    /// Creates the file, or waits until another thread has created it.
    #[cold]
    fn begin(&self) {
        // A signal handler that interrupted this would wait forever for the interrupted thread.
        own_stack::run(|| {
            if self.state.compare_exchange(NEW, STARTING, Ordering::Acquire, Ordering::Acquire).is_ok() {
                // This file needs the log. If another thread is still opening the log, a later call tries again.
                let failed = if process::is_off() { OFF } else { NEW };
                self.state.store(if self.start() { READY } else { failed }, Ordering::Release);
            }
            while self.state.load(Ordering::Acquire) == STARTING {
                core::hint::spin_loop();
            }
        });
    }

    fn shared() -> Option<&'static Self> {
        let known = STATES.load(Ordering::Acquire);
        // SAFETY: null or the one States, never unmapped; all zero is a valid value.
        if let Some(states) = unsafe { known.as_ref() } {
            return Some(states);
        }
        let fresh = sys::map_wiped_on_fork(size_of::<Self>()).cast::<Self>();
        let winner = match STATES.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(other) => {
                sys::unmap(fresh.cast(), size_of::<Self>());
                other
            }
        };
        // SAFETY: as above.
        unsafe { winner.as_ref() }
    }

    fn start(&self) -> bool {
        let control = self.map_file(0, STATES_OFFSET as usize).cast::<TouchedControl>();
        if control.is_null() {
            return false;
        }
        let (copy_start, copy_end) = copy::instructions();
        self.pid.set(sys::pid().unwrap_or(0));
        self.control.set(control);
        let first_page = region::pages_used() as u64;
        let filled = TouchedControl {
            magic: TOUCHED_MAGIC,
            region_base: region::base() as u64,
            first_page,
            copy_start,
            copy_end,
            sample: u64::from(sampler::one_in()),
            ..TouchedControl::default()
        };
        // SAFETY: the page was just mapped; no other thread knows it yet.
        unsafe { control.write(filled) };
        true
    }

    /// Maps a part of the file and reserves its disk space.
    fn map_file(&self, offset: u64, bytes: usize) -> *mut u8 {
        let Some(fd) = Process::current().map(|process| process.open_next_to_log(TOUCHED_SUFFIX)).filter(|&fd| fd >= 0)
        else {
            return null_mut();
        };
        let mapped = if sys::reserve(fd, offset, bytes) { sys::map_shared(fd, offset, bytes) } else { null_mut() };
        sys::close(fd);
        mapped.cast()
    }

    fn count(&self, field: impl FnOnce(&mut TouchedControl) -> *mut u64, more: u64) {
        // SAFETY: in state READY the control page is mapped, and is never unmapped; its counts are only accessed
        // atomically.
        let counter = unsafe { AtomicU64::from_ptr(field(&mut *self.control.get())) };
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the states of some pages.
    fn put(&self, page: usize, pages: usize, state: u8) {
        for at in page..page + pages {
            match self.window(at / WINDOW_PAGES) {
                // SAFETY: the window has a byte for each of its pages.
                Some(window) => unsafe { (*window.add(at % WINDOW_PAGES)).store(state, Ordering::Relaxed) },
                None => self.count(|control| &raw mut control.states_lost, 1),
            }
        }
    }

    fn window(&self, number: usize) -> Option<*mut AtomicU8> {
        let place = self.windows.get(number)?;
        let known = place.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let offset = STATES_OFFSET + (number * WINDOW_PAGES) as u64;
        let fresh = own_stack::run(|| self.map_file(offset, WINDOW_PAGES)).cast::<AtomicU8>();
        if fresh.is_null() {
            return None;
        }
        match place.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(fresh),
            Err(other) => {
                sys::unmap(fresh.cast(), WINDOW_PAGES);
                Some(other)
            }
        }
    }

    /// Passes the runs of present pages among the `pages` pages from `page` to `each`, in order; false if the kernel
    /// cannot report them.
    fn each_present(&self, page: usize, pages: usize, each: impl FnMut(Present)) -> bool {
        scan::each_present(&self.pagemap, page, pages, each)
    }
}
