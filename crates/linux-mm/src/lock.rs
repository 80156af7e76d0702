//! Locked memory: mlock, mlock2, munlock, mlockall and munlockall (R29).

use std::ops::Range;

use serde::Serialize;

use super::Kernel;
use super::entry::Access;
use super::outcome::{Errno, Outcome};
use super::populate::{POPULATE_WRITE, PopulateCheck};
use super::vma::{Vma, VmaFlags};

/// Whether the pages of a mapping are locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Locked {
    /// Not locked.
    #[default]
    No,
    /// `VM_LOCKED`: pages are populated when the mapping is locked, grows or becomes writable.
    Present,
    /// `VM_LOCKED | VM_LOCKONFAULT`: pages are locked when they are touched.
    OnFault,
}

/// The flags of `mlockall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockFlags {
    /// `MCL_CURRENT`.
    pub current: bool,
    /// `MCL_FUTURE`.
    pub future: bool,
    /// `MCL_ONFAULT`.
    pub on_fault: bool,
}

impl LockFlags {
    fn locked(self) -> Locked {
        if self.on_fault { Locked::OnFault } else { Locked::Present }
    }
}

impl Kernel {
    /// mlockall. `RLIMIT_MEMLOCK` is not modelled: the process counts as root. Writable mappings are populated for
    /// writing, readable mappings for reading, and mappings without access not at all. Errors while populating are not
    /// reported. hugetlb and droppable mappings are populated but never locked.
    ///
    /// Errors: EINVAL without flags, or with on-fault alone.
    pub fn lock_all(&mut self, flags: LockFlags) -> Outcome {
        if !flags.current && !flags.future {
            return Outcome::of(Err(Errno::Invalid));
        }
        self.lock_future = if flags.future { flags.locked() } else { Locked::No };
        if !flags.current {
            return Outcome::of(Ok(()));
        }
        self.lock_mappings(flags.locked());
        let mut installs = Vec::new();
        for vma in self.vmas.all() {
            installs.extend(self.populate_locked(&vma.pages()).installs);
        }
        Outcome { result: Ok(()), installs }
    }

    /// munlockall. Pages stay present.
    pub fn unlock_all(&mut self) {
        self.lock_future = Locked::No;
        self.lock_mappings(Locked::No);
    }

    /// mlock, or mlock2 with `MLOCK_ONFAULT`.
    ///
    /// Errors: ENOMEM at a hole (mappings before it are locked, nothing is populated), if a split would exceed
    /// `max_map_count`, or if a page cannot be populated (the whole range is locked).
    pub fn lock(&mut self, range: Range<u64>, on_fault: bool) -> Outcome {
        let locked = if on_fault { Locked::OnFault } else { Locked::Present };
        if let Err(errno) = self.lock_range(&range, locked) {
            return Outcome::of(Err(errno));
        }
        let mut installs = Vec::new();
        for vma in self.vmas.overlapping(&range) {
            let part = range.start.max(vma.start)..range.end.min(vma.end);
            let populated = self.populate_locked(&part);
            installs.extend(populated.installs);
            if populated.result.is_err() {
                return Outcome { result: Err(Errno::NoMemory), installs };
            }
        }
        Outcome { result: Ok(()), installs }
    }

    /// munlock.
    ///
    /// ENOMEM at a hole (the part before it is unlocked), or if a split would exceed `max_map_count`.
    pub fn unlock(&mut self, range: Range<u64>) -> Result<(), Errno> {
        self.lock_range(&range, Locked::No)
    }

    /// Pages of locked mappings, present or not: `VmLck`.
    pub fn locked_pages(&self) -> u64 {
        let locked = self.vmas.all().into_iter().filter(|vma| vma.flags.locked != Locked::No);
        locked.map(|vma| vma.end - vma.start).sum()
    }

    /// The first locked page of a range, or the range's end if there is none.
    pub fn first_locked(&self, range: &Range<u64>) -> u64 {
        let locked = self.vmas.overlapping(range).into_iter().find(|vma| vma.flags.locked != Locked::No);
        locked.map_or(range.end, |vma| vma.start.max(range.start))
    }

    /// Populates part of a mapping as mlock does. A mapping that is locked on fault is not populated.
    pub(super) fn populate_locked(&mut self, part: &Range<u64>) -> Outcome {
        let Some(vma) = self.vmas.covering(part.start) else { return Outcome::of(Ok(())) };
        if vma.flags.locked == Locked::OnFault {
            return Outcome::of(Ok(()));
        }
        let access = if vma.flags.protection.is_writable() { POPULATE_WRITE } else { Access::Read };
        self.populate(part, access, PopulateCheck::AnyAccess)
    }

    fn lock_mappings(&mut self, locked: Locked) {
        for vma in self.vmas.all() {
            // Earlier changes may have merged this mapping with a neighbour, so look it up again.
            if let Some(vma) = self.vmas.covering(vma.start) {
                let _ = self.lock_part(&vma, &vma.pages(), locked);
            }
        }
    }

    fn lock_range(&mut self, range: &Range<u64>, locked: Locked) -> Result<(), Errno> {
        self.for_each_mapping_until_hole(range, |kernel, vma, part| kernel.lock_part(vma, part, locked))
    }

    fn lock_part(&mut self, vma: &Vma, part: &Range<u64>, locked: Locked) -> Result<(), Errno> {
        if vma.flags.hugetlb || vma.flags.other.is_droppable() {
            return Ok(());
        }
        self.change_flags(vma, part, VmaFlags { locked, ..vma.flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Advice, Content, KernelConfig, MapFlags};

    const WRITE: Access = Access::Write(Content::NonZero);

    #[test]
    fn locks_are_counted_and_a_child_does_not_inherit_them() {
        let mut kernel = Kernel::new(KernelConfig::default());
        kernel.map(0..64, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!(kernel.lock(16..32, true).result, Ok(()));
        assert_eq!((kernel.locked_pages(), kernel.vma_count(), kernel.rss_pages()), (16, 3, 0));
        assert_eq!([0..64, 20..64, 0..16, 32..64].map(|range| kernel.first_locked(&range)), [16, 20, 16, 64]);
        let all = LockFlags { current: true, future: true, on_fault: false };
        let outcome = kernel.lock_all(all);
        assert_eq!(outcome.installs.iter().map(|run| run.installs).sum::<u64>(), 64);
        assert_eq!((kernel.locked_pages(), kernel.vma_count(), kernel.rss_pages()), (64, 1, 64));
        let mut child = kernel.fork();
        assert_eq!((child.locked_pages(), child.rss_pages()), (0, 64));
        child.map(128..192, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!((child.locked_pages(), child.rss_pages()), (0, 64), "a child does not inherit MCL_FUTURE");
        assert_eq!(child.advise(0..8, Advice::DontNeed).result, Ok(()));
        assert_eq!(kernel.advise(0..8, Advice::DontNeed).result, Err(Errno::Invalid));
        kernel.map(128..192, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!((kernel.locked_pages(), kernel.rss_pages()), (128, 128));
        kernel.unlock_all();
        assert_eq!((kernel.locked_pages(), kernel.vma_count()), (0, 2));
        kernel.touch(0, WRITE).unwrap();
        assert_eq!(kernel.advise(0..8, Advice::DontNeed).result, Ok(()));
    }
}
