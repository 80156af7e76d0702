//! System calls, with a page-table scan before and after each.

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;

use hksim_native::Os;
use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};

use crate::calls::Counted;
use crate::fork_frames::BatchDrain;
use crate::observer::Observer;
use crate::usage::Usage;

/// [`Counted`], with an [`Observer`] that is notified of every call. Single-threaded.
pub(crate) struct ObservedOs {
    counted: Counted,
    observer: RefCell<Observer>,
    /// Whether the kernel populates new mappings because the program called `mlockall(MCL_FUTURE)`.
    locks_future: Cell<bool>,
    batch_drain: BatchDrain,
}

impl ObservedOs {
    /// # Errors
    /// No page can be mapped.
    pub(crate) fn new(observer: Observer) -> io::Result<ObservedOs> {
        Ok(ObservedOs {
            counted: Counted::default(),
            observer: RefCell::new(observer),
            locks_future: Cell::new(false),
            batch_drain: BatchDrain::new()?,
        })
    }

    /// The observer.
    pub(crate) fn observer(&self) -> &RefCell<Observer> {
        &self.observer
    }

    /// The counters.
    pub(crate) fn counted(&self) -> &Counted {
        &self.counted
    }
}

fn address(at: NonNull<u8>) -> u64 {
    at.as_ptr() as u64
}

impl ObservedOs {
    /// Observes a range that was just mapped; `faults` is the number that the kernel charged for the call.
    fn after_map(&self, observer: &mut Observer, at: NonNull<u8>, bytes: usize, mapping: Mapping, faults: u64) {
        if self.locks_future.get() || matches!(mapping, Mapping::Populated | Mapping::HugetlbPopulated) {
            observer.after_populate(address(at), bytes as u64, faults);
        } else {
            observer.after_call(address(at), bytes as u64);
        }
        observer.note_vmas();
    }
}

impl ObservedOs {
    /// Observes an `mremap` that may change the size of a mapping, and move it. `call` makes it.
    pub(crate) fn observing_resize(
        &self,
        (at, bytes): (NonNull<u8>, usize),
        (to, new_bytes): (NonNull<u8>, usize),
        call: impl FnOnce(&Counted) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        call(&self.counted)?;
        let faults = Usage::now().since(&before).faults;
        let (at, to) = (address(at), address(to));
        let (bytes, new_bytes) = (bytes as u64, new_bytes as u64);
        let kept = bytes.min(new_bytes);
        if kept < bytes {
            observer.unmapped(at + kept, bytes - kept);
            observer.after_call(at + kept, bytes - kept);
        }
        if at != to {
            observer.moved(at, to, kept);
        }
        if kept < new_bytes {
            let (tail, tail_bytes) = (to + kept, new_bytes - kept);
            observer.mapped(tail, tail_bytes, false);
            match self.locks_future.get() {
                true => observer.after_populate(tail, tail_bytes, faults),
                false => observer.after_call(tail, tail_bytes),
            }
        }
        observer.note_vmas();
        Ok(())
    }
}

impl Os for ObservedOs {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.counted.map(at, bytes, mapping) };
        let faults = Usage::now().since(&before).faults;
        if result.is_ok() {
            let hugetlb = matches!(mapping, Mapping::Hugetlb | Mapping::HugetlbPopulated);
            observer.mapped(address(at), bytes as u64, hugetlb);
        }
        self.after_map(&mut observer, at, bytes, mapping, faults);
        result
    }

    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        let result = self.counted.map_anywhere(bytes, mapping);
        let faults = Usage::now().since(&before).faults;
        if let Ok(at) = result {
            observer.mapped_anywhere(address(at), bytes as u64);
            self.after_map(&mut observer, at, bytes, mapping, faults);
        }
        result
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.counted.unmap(at, bytes) };
        if result.is_ok() {
            observer.unmapped(address(at), bytes as u64);
        }
        observer.after_call(address(at), bytes as u64);
        observer.note_vmas();
        result
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.counted.advise(at, bytes, advice) };
        match advice {
            Advice::PopulateRead | Advice::PopulateWrite => {
                let faults = Usage::now().since(&before).faults;
                observer.after_populate(address(at), bytes as u64, faults);
            }
            Advice::Collapse => observer.after_collapse(address(at), bytes as u64),
            Advice::DontNeed => observer.after_call(address(at), bytes as u64),
            // The kernel refuses to free locked memory.
            Advice::Free if result.is_err() => observer.after_call(address(at), bytes as u64),
            Advice::Free => {
                self.batch_drain.drain();
                observer.after_free(address(at), bytes as u64);
            }
            Advice::HugePage | Advice::NoHugePage => {
                observer.after_call(address(at), bytes as u64);
                observer.note_vmas();
            }
        }
        result
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.counted.remap(from, bytes, to) };
        observer.moved(address(from), address(to), bytes as u64);
        observer.note_vmas();
        result
    }

    unsafe fn lock(&self, at: NonNull<u8>, bytes: usize, locking: Locking) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.counted.lock(at, bytes, locking) };
        let faults = Usage::now().since(&before).faults;
        observer.after_populate(address(at), bytes as u64, faults);
        observer.note_vmas();
        result
    }

    fn lock_process(&self, lock: MemoryLock) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let result = self.counted.lock_process(lock);
        self.locks_future.set(lock.future);
        observer.note_vmas();
        result
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        self.counted.now_ns()
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        self.counted.set_now(now_ns);
    }
}
