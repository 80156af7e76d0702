//! System calls with the kernel asked before and after each.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use hksim_native::Os;
use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};

use crate::calls::Counted;
use crate::observer::Observer;
use crate::shared::empty_free_list;
use crate::usage::Usage;

/// [`Counted`] calls that an [`Observer`] follows. For one thread.
pub(crate) struct Watched {
    counted: Counted,
    observer: RefCell<Observer>,
    /// Whether the kernel populates what is mapped, since the program locks all of it.
    locks_future: Cell<bool>,
}

impl Watched {
    pub(crate) fn new(observer: Observer) -> Watched {
        Watched { counted: Counted::default(), observer: RefCell::new(observer), locks_future: Cell::new(false) }
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

impl Watched {
    /// Looks at a range that was mapped; `faults` is what the kernel charged for it.
    fn after_map(&self, observer: &mut Observer, at: NonNull<u8>, bytes: usize, mapping: Mapping, faults: u64) {
        if self.locks_future.get() || matches!(mapping, Mapping::Populated | Mapping::HugetlbPopulated) {
            observer.after_populate(address(at), bytes as u64, faults);
        } else {
            observer.after_call(address(at), bytes as u64);
        }
        observer.note_vmas();
    }
}

impl Os for Watched {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        // SAFETY: the caller's promise.
        let result = unsafe { self.counted.map(at, bytes, mapping) };
        let faults = Usage::now().since(&before).faults;
        if result.is_ok() {
            let hugetlb = matches!(mapping, Mapping::Hugetlb | Mapping::HugetlbPopulated);
            observer.mapped_anew(address(at), bytes as u64, hugetlb);
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
        // SAFETY: the caller's promise.
        let result = unsafe { self.counted.unmap(at, bytes) };
        if result.is_ok() {
            observer.disappeared(address(at), bytes as u64);
        }
        observer.after_call(address(at), bytes as u64);
        observer.note_vmas();
        result
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        // SAFETY: the caller's promise.
        let result = unsafe { self.counted.advise(at, bytes, advice) };
        match advice {
            Advice::PopulateRead | Advice::PopulateWrite => {
                let faults = Usage::now().since(&before).faults;
                observer.after_populate(address(at), bytes as u64, faults);
            }
            Advice::Collapse => observer.after_collapse(address(at), bytes as u64),
            Advice::DontNeed => observer.after_call(address(at), bytes as u64),
            // Locked memory is not freed.
            Advice::Free if result.is_err() => observer.after_call(address(at), bytes as u64),
            Advice::Free => {
                empty_free_list();
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
        // SAFETY: the caller's promise.
        let result = unsafe { self.counted.remap(from, bytes, to) };
        observer.moved(address(from), address(to), bytes as u64);
        observer.note_vmas();
        result
    }

    unsafe fn lock(&self, at: NonNull<u8>, bytes: usize, locking: Locking) -> Result<(), Errno> {
        let mut observer = self.observer.borrow_mut();
        observer.before_call();
        let before = Usage::now();
        // SAFETY: the caller's promise.
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
