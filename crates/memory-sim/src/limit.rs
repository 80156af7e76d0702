//! The limit of a memory control group: memory that only the group sees, and which recorded operation exceeds the
//! limit.

use std::collections::BTreeSet;
use std::ops::Range;

use hksim_linux_mm::{Access, GroupPressure, Kernel, MemoryLimit};
use hksim_memory_trace::PAGE_BYTES;
use hksim_text::units::bytes;

use crate::family::{Family, FamilyError};
use crate::stacks::Stacks;
use crate::steps::{Action, Step};

/// Pages of private file mappings that an address space wrote: anonymous memory that is charged and not modelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenFilePages(BTreeSet<u64>);

impl WrittenFilePages {
    /// Notes the effect of a step, and charges what is not modelled to the group. Without a limit, does nothing.
    pub fn charge(&mut self, kernel: &mut Kernel, stacks: &Stacks, action: &Action) {
        if kernel.config().memory_limit_bytes.is_none() {
            return;
        }
        match action {
            Action::TouchOutside { page, written_privately: true } => _ = self.0.insert(*page),
            Action::Unmap(pages)
            | Action::MapOutside { pages }
            | Action::Map { pages, .. }
            | Action::MapStack { pages, .. }
            | Action::Advise { pages, advice: hksim_linux_mm::Advice::DontNeed, .. } => self.forget(pages),
            Action::Remap { old, new, .. } => {
                self.forget(new);
                let moved: Vec<u64> = self.0.range(old.clone()).copied().collect();
                self.forget(old);
                self.0.extend(moved.into_iter().map(|page| page - old.start + new.start));
            }
            _ => {}
        }
        kernel.charge_elsewhere(stacks.charged_bytes() + self.0.len() as u64 * PAGE_BYTES);
        kernel.note_charge();
    }

    fn forget(&mut self, pages: &Range<u64>) {
        let inside: Vec<u64> = self.0.range(pages.clone()).copied().collect();
        inside.iter().for_each(|page| _ = self.0.remove(page));
    }
}

/// The first operation that exceeded the limit of a fork family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Operations of each member so far.
    operations: Vec<u64>,
    exceeded: Option<Exceeded>,
    /// What the group met until the last end of a member.
    pressure: Option<GroupPressure>,
}

#[derive(Clone, Debug)]
struct Exceeded {
    operation: u64,
    time_ns: u64,
    by: String,
}

impl Watch {
    /// Looks at the group after a step of a member.
    pub fn note(&mut self, kernel: &Kernel, member: usize, step: &Step) {
        let Some(met) = kernel.group_pressure() else { return };
        if self.operations.len() <= member {
            self.operations.resize(member + 1, 0);
        }
        self.operations[member] += 1;
        if met.out_of_memory.is_some() && self.exceeded.is_none() {
            let by = words_of(member, &step.action);
            self.exceeded = Some(Exceeded { operation: self.operations[member], time_ns: step.time_ns, by });
        }
    }

    /// A member ends.
    pub fn end(&mut self, kernel: &Kernel) {
        self.pressure = kernel.group_pressure();
    }

    /// The family under its limit after all members have ended; `None` without one.
    pub fn report(&self, limit_bytes: Option<u64>) -> Option<MemoryLimit> {
        let limit = MemoryLimit::of(limit_bytes?, self.pressure?);
        Some(match self.exceeded.clone() {
            None => limit,
            Some(Exceeded { operation, time_ns, by }) => {
                MemoryLimit { event: Some(operation), moment_ns: Some(time_ns), by: Some(by), ..limit }
            }
        })
    }
}

/// How the words begin for an operation of a relative of the process whose recording was asked for.
pub const OF_RELATIVE: &str = "another process of the family: ";

/// The last operation of a recorded process before a limit ended it or a relative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastOperation {
    /// Its number in its process, as that of the fatal operation in a [`MemoryLimit`].
    pub number: u64,
    /// When, in nanoseconds since the start of the recording.
    pub time_ns: u64,
    /// What it requested, in words, after [`OF_RELATIVE`] for a relative.
    pub by: String,
}

impl LastOperation {
    /// The fatal operation, if a limit that is reached at `from_ns` ends a process of the family: the last one before the first
    /// end from then on. It is one of the process that ended, unless that made none since; others may go on until it has ended.
    /// `None` without such an end.
    ///
    /// # Errors
    /// A recording cannot be read.
    pub fn before_end(mut family: Family, from_ns: u64) -> Result<Option<Self>, FamilyError> {
        let (mut batch, mut operations) = (Vec::new(), vec![0; family.members()]);
        let mut last: Vec<Option<(u64, Step)>> = vec![None; family.members()];
        let mut latest = 0;
        while family.next_batch(&mut batch)? {
            for (member, step) in batch.drain(..) {
                if step.action == Action::End && step.time_ns >= from_ns {
                    let is_since = |(_, step): &(u64, Step)| step.time_ns >= from_ns;
                    let fatal = if last[member].as_ref().is_some_and(is_since) { member } else { latest };
                    return Ok(last[fatal].take().map(|(number, Step { time_ns, action, .. })| Self {
                        number,
                        time_ns,
                        by: words_of(fatal, &action),
                    }));
                }
                if step.action != Action::End {
                    operations[member] += 1;
                }
                // The parent's note of a child's end requests nothing.
                if !matches!(step.action, Action::End | Action::ChildEnded { .. }) {
                    last[member] = Some((operations[member], step));
                    latest = member;
                }
            }
        }
        Ok(None)
    }
}

/// What an operation of a member of a family requests.
fn words_of(member: usize, action: &Action) -> String {
    format!("{}{}", if member == 0 { "" } else { OF_RELATIVE }, words(action))
}

/// What an operation requests.
fn words(action: &Action) -> String {
    let on = |name: &str, pages: &Range<u64>| {
        format!("{name} of {} at {:#x}", bytes((pages.end - pages.start) * PAGE_BYTES), pages.start * PAGE_BYTES)
    };
    match action {
        Action::Touch { page, access, .. } => {
            let name = if *access == Access::Read { "read" } else { "write" };
            format!("first {name} of the page at {:#x}", page * PAGE_BYTES)
        }
        Action::TouchStack { page, .. } => format!("touch of the stack at {:#x}", page * PAGE_BYTES),
        Action::TouchOutside { page, .. } => format!("touch of a file mapping at {:#x}", page * PAGE_BYTES),
        Action::MapStack { pages, .. } => on("growth of a stack", pages),
        Action::Map { pages, .. } | Action::MapOutside { pages } => on("mmap", pages),
        Action::GrowHeap { pages, .. } => on("brk", pages),
        Action::Unmap(pages) => on("munmap", pages),
        Action::Remap { new, .. } => on("mremap", new),
        Action::Protect { pages, .. } => on("mprotect", pages),
        Action::Advise { pages, advice, .. } => on(&format!("madvise({advice:?})"), pages),
        Action::Lock { pages, .. } | Action::Unlock(pages) => on("mlock", pages),
        Action::LockAll(_) | Action::UnlockAll => "mlockall".to_string(),
        Action::Name { pages, .. } => on("prctl(PR_SET_VMA)", pages),
        Action::DisableThp(_) => "prctl(PR_SET_THP_DISABLE)".to_string(),
        Action::Fork { child_pid } => format!("fork of process {child_pid}"),
        Action::ChildEnded { .. } | Action::End => "the end of a process".to_string(),
        Action::KnowMapping { .. }
        | Action::KnowOutside { .. }
        | Action::KnowPages { .. }
        | Action::KnowProtected { .. } => "the memory that it had when the recording began".to_string(),
    }
}
