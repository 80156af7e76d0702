//! Performs memory calls on the kernel model, with the edits of a setting.

use std::ops::Range;

use hksim_linux_mm::{Advice, Errno, Kernel, MapFlags, Outcome, ThpDisable};
use hksim_memory_trace::{Origin, PAGE_BYTES};

use crate::regions::Use;
use crate::setting::{Advise, MadvFree, Setting, ThpPrctl};
use crate::steps::Action;
use crate::unseen_writes::AfterFree;

/// What a setting changes about the recorded calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Edits {
    pub advise: Advise,
    pub thp_prctl: ThpPrctl,
    pub madv_free: MadvFree,
    /// Writes that the recording does not have.
    pub after_free: AfterFree,
}

impl Edits {
    /// Those of a setting, with writes that the recording does not have.
    pub fn of(setting: &Setting, after_free: AfterFree) -> Self {
        Self { advise: setting.advise, thp_prctl: setting.thp_prctl, madv_free: setting.madv_free, after_free }
    }

    /// Applies the edits to a process at its start.
    pub fn begin(self, kernel: &mut Kernel) {
        if self.thp_prctl == ThpPrctl::Disabled {
            kernel.disable_thp(ThpDisable::All);
        }
    }

    /// Performs a call. Touches, forks and ends are not calls: they have no effect here.
    pub fn perform(self, kernel: &mut Kernel, action: &Action) -> Outcome {
        let done = |result| Outcome { result, installs: Vec::new() };
        match action {
            Action::Map { pages, flags, locks, usage } => {
                let mut outcome = match self.advise.covers(*usage, pages.end - pages.start) {
                    true => map_advised(kernel, pages, *flags),
                    false => kernel.map(pages.clone(), *flags),
                };
                if *locks {
                    outcome = joined(outcome, kernel.lock(pages.clone(), false));
                }
                outcome
            }
            Action::GrowHeap { pages, heap_start } => {
                let grown = kernel.grow_heap(pages.clone(), *heap_start);
                match self.advise.covers(Use::Heap, pages.end - pages.start) {
                    true => joined(grown, kernel.advise(pages.clone(), Advice::HugePage)),
                    false => grown,
                }
            }
            Action::MapStack { pages, origin, .. } if grow(kernel, pages, *origin) => done(Ok(())),
            Action::MapOutside { pages } | Action::MapStack { pages, .. } => done(kernel.map_unmodelled(pages.clone())),
            Action::Unmap(pages) => done(kernel.unmap(pages.clone())),
            Action::Remap { old, new, source } => done(kernel.mremap(old.clone(), new.clone(), *source)),
            Action::Protect { pages, protection } => done(kernel.protect(pages.clone(), *protection)),
            Action::Advise { pages, advice, .. } => self.advise(kernel, pages, *advice),
            Action::Lock { pages, on_fault } => kernel.lock(pages.clone(), *on_fault),
            Action::Unlock(pages) => done(kernel.unlock(pages.clone())),
            Action::LockAll(flags) => kernel.lock_all(*flags),
            Action::UnlockAll => {
                kernel.unlock_all();
                done(Ok(()))
            }
            Action::Name { pages, name } => done(kernel.name(pages.clone(), *name)),
            Action::DisableThp(disable) => {
                if self.thp_prctl == ThpPrctl::Recorded {
                    kernel.disable_thp(*disable);
                }
                done(Ok(()))
            }
            Action::TouchStack { page, .. } => {
                kernel.grow_stack(*page);
                kernel.touch_unmodelled(*page);
                done(Ok(()))
            }
            Action::TouchOutside { page, .. } => {
                kernel.touch_unmodelled(*page);
                done(Ok(()))
            }
            Action::KnowMapping { pages, flags, traits, is_stack: false } => {
                done(kernel.know_mapping(pages.clone(), *flags, *traits))
            }
            Action::KnowMapping { pages, is_stack: true, .. } | Action::KnowOutside { pages } => {
                done(kernel.map_unmodelled(pages.clone()))
            }
            Action::KnowPages { pages, state } => {
                kernel.know_pages(pages.clone(), self.after_free.known(*state));
                done(Ok(()))
            }
            Action::KnowProtected { page } => {
                kernel.know_write_protected(*page);
                done(Ok(()))
            }
            Action::Touch { .. } | Action::Fork { .. } | Action::ChildEnded { .. } | Action::End => done(Ok(())),
        }
    }

    fn advise(self, kernel: &mut Kernel, pages: &Range<u64>, advice: Advice) -> Outcome {
        match (self.advise, self.madv_free, advice) {
            (Advise::Nothing, _, Advice::HugePage | Advice::Collapse) => {
                Outcome { result: Ok(()), installs: Vec::new() }
            }
            (_, MadvFree::DontNeed, Advice::Free) => self.after_free.advise(kernel, pages, Advice::DontNeed),
            (_, MadvFree::Recorded, Advice::Free) => self.after_free.advise(kernel, pages, Advice::Free),
            _ => kernel.advise(pages.clone(), advice),
        }
    }
}

/// Lets a stack grow if the kernel reported a mapping that is the growth of a stack. The recorder may have missed the
/// touch that caused the growth.
pub(crate) fn grow(kernel: &mut Kernel, pages: &Range<u64>, origin: Origin) -> bool {
    let is_growth = origin == Origin::Kernel && !kernel.mappings(pages.clone()).is_empty();
    if is_growth {
        kernel.grow_stack(pages.start);
    }
    is_growth
}

/// mmap, with `MADV_HUGEPAGE` before the mapping is populated.
fn map_advised(kernel: &mut Kernel, pages: &Range<u64>, flags: MapFlags) -> Outcome {
    let mapped = kernel.map(pages.clone(), MapFlags { populate: false, ..flags });
    let advised = joined(mapped, kernel.advise(pages.clone(), Advice::HugePage));
    let populate = match (flags.populate, flags.protection.is_writable()) {
        (false, _) => return advised,
        (true, true) => Advice::PopulateWrite,
        (true, false) => Advice::PopulateRead,
    };
    joined(advised, kernel.advise(pages.clone(), populate))
}

/// Two calls as one; the first error counts.
fn joined(first: Outcome, second: Outcome) -> Outcome {
    let mut installs = first.installs;
    installs.extend(second.installs);
    let result: Result<(), Errno> = first.result.and(second.result);
    Outcome { result, installs }
}

impl Advise {
    /// Whether a new mapping is advised.
    fn covers(self, usage: Use, pages: u64) -> bool {
        match self {
            Self::Recorded | Self::Nothing => false,
            Self::All => true,
            Self::Heap => usage == Use::Heap,
            Self::AtLeastBytes(bytes) => pages * PAGE_BYTES >= bytes,
        }
    }
}
