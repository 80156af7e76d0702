//! Faults by every key that explains them. The sums over each key are equal.

use std::collections::BTreeMap;

use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::StartMemory;
use hksim_sim::explain::{INTERVALS, Origin};

use crate::functions::FunctionId;
use crate::mappings::Source;
use crate::pages::Removed;
use crate::reason::Reason;

/// The program's access, or the call of the allocator in which a fault was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum During {
    /// Before the first event.
    Start,
    /// The program used its block.
    Touch,
    /// The allocator performed this function.
    Call(&'static str),
}

/// What a fault was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// Why it was taken.
    pub reason: Reason,
    /// The function of the allocator that is responsible.
    pub function: FunctionId,
    /// The mapping; `None` if it is not known.
    pub mapping: Option<Source>,
    /// Bytes of the page; `None` if the kernel cannot tell.
    pub page_bytes: Option<u64>,
    /// The call that removed the page before; `None` if it is present for the first time.
    pub after: Option<Removed>,
    /// In which call.
    pub during: During,
    /// The instruction, if the reason is a conclusion from its accesses: `settle` compares them.
    pub instruction: Option<u64>,
}

/// Everything that is known of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultKey {
    /// What it was for.
    pub what: What,
    /// The bytes of the request; `None` without a request.
    pub request_bytes: Option<u64>,
    /// The call site that allocated the event's object; 0 if it is unknown.
    pub site: Origin<u32>,
    /// The thread of the event.
    pub thread: Origin<u32>,
    /// The last mark before, a number of the trace's list of mark names.
    pub phase: Option<u32>,
    /// The interval of the trace's time, 0 to [`INTERVALS`] - 1.
    pub interval: usize,
}

/// What one cause of faults has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CauseKey {
    /// The reason.
    pub reason: Reason,
    /// The function of the allocator that is responsible.
    pub function: FunctionId,
}

/// The faults of a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseCounts {
    /// How many.
    pub installs: u64,
    /// By size class.
    pub classes: BTreeMap<Option<u64>, u64>,
    /// The smallest request.
    pub request_bytes_min: Option<u64>,
    /// The largest request.
    pub request_bytes_max: Option<u64>,
    /// The calls after which the pages faulted again.
    pub after: BTreeMap<Option<Removed>, u64>,
}

/// The accesses of one instruction of the allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Accesses {
    /// By the cause that the accesses of each call showed.
    causes: BTreeMap<CauseKey, CauseCounts>,
    /// Accesses to memory without blocks where a block was later.
    before_blocks: u64,
}

/// Faults by every key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// All.
    pub total: u64,
    /// By reason.
    pub reason: BTreeMap<Reason, u64>,
    /// By size class of the request.
    pub class: BTreeMap<Option<u64>, u64>,
    /// By call site.
    pub site: BTreeMap<Origin<u32>, u64>,
    /// By thread.
    pub thread: BTreeMap<Origin<u32>, u64>,
    /// By the last mark before.
    pub phase: BTreeMap<Option<u32>, u64>,
    /// By interval of time.
    pub time: [u64; INTERVALS],
    /// By function of the allocator.
    pub function: BTreeMap<FunctionId, u64>,
    /// By mapping.
    pub mapping: BTreeMap<Option<Source>, u64>,
    /// By size of the page.
    pub page_bytes: BTreeMap<Option<u64>, u64>,
    /// By the call that removed the page before.
    pub after: BTreeMap<Option<Removed>, u64>,
    /// By the call in which they were taken.
    pub during: BTreeMap<During, u64>,
    /// By reason and function.
    pub causes: BTreeMap<CauseKey, CauseCounts>,
    /// Faults that are not among the reasons and causes yet, by instruction.
    unsettled: BTreeMap<u64, Accesses>,
}

impl CauseCounts {
    fn add(&mut self, class: Option<u64>, request_bytes: Option<u64>, after: Option<Removed>, faults: u64) {
        self.installs += faults;
        *self.classes.entry(class).or_default() += faults;
        *self.after.entry(after).or_default() += faults;
        self.widen(request_bytes, request_bytes);
    }

    fn widen(&mut self, least: Option<u64>, most: Option<u64>) {
        self.request_bytes_min = [self.request_bytes_min, least].into_iter().flatten().min();
        self.request_bytes_max = self.request_bytes_max.max(most);
    }

    fn merge(&mut self, other: CauseCounts) {
        self.installs += other.installs;
        other.classes.into_iter().for_each(|(class, faults)| *self.classes.entry(class).or_default() += faults);
        other.after.into_iter().for_each(|(after, faults)| *self.after.entry(after).or_default() += faults);
        self.widen(other.request_bytes_min, other.request_bytes_max);
    }
}

impl Accesses {
    /// What most of the accesses were for.
    fn reason(&self) -> Option<Reason> {
        let mut votes: BTreeMap<Reason, u64> = BTreeMap::new();
        self.causes.iter().for_each(|(key, counts)| *votes.entry(key.reason).or_default() += counts.installs);
        if let Some(metadata) = votes.get_mut(&Reason::Metadata) {
            let links = self.before_blocks.min(*metadata);
            *metadata -= links;
            *votes.entry(Reason::FreeList).or_default() += links;
        }
        votes.into_iter().max_by_key(|&(reason, votes)| (votes, std::cmp::Reverse(reason))).map(|(reason, _)| reason)
    }
}

impl Breakdown {
    /// Adds the pages that the library took before the first event.
    pub(crate) fn add_startup(&mut self, startup: StartMemory) {
        let (huge_pages, pages) = startup.pages();
        for (page_bytes, pages) in [(HUGE_PAGE_BYTES, huge_pages), (PAGE_BYTES, pages)] {
            let what = What {
                reason: Reason::StartUp,
                function: FunctionId::START,
                mapping: Some(Source::Earlier),
                page_bytes: Some(page_bytes),
                after: None,
                during: During::Start,
                instruction: None,
            };
            let (site, thread) = (Origin::Start, Origin::Start);
            if pages > 0 {
                self.add(FaultKey { what, request_bytes: None, site, thread, phase: None, interval: 0 }, pages);
            }
        }
    }

    /// Adds faults with equal keys.
    pub fn add(&mut self, key: FaultKey, faults: u64) {
        let FaultKey { what, request_bytes, site, thread, phase, interval } = key;
        let What { reason, function, mapping, page_bytes, after, during, instruction } = what;
        let class = request_bytes.map(class_of);
        self.total += faults;
        *self.class.entry(class).or_default() += faults;
        *self.site.entry(site).or_default() += faults;
        *self.thread.entry(thread).or_default() += faults;
        *self.phase.entry(phase).or_default() += faults;
        self.time[interval] += faults;
        *self.function.entry(function).or_default() += faults;
        *self.mapping.entry(mapping).or_default() += faults;
        *self.page_bytes.entry(page_bytes).or_default() += faults;
        *self.after.entry(after).or_default() += faults;
        *self.during.entry(during).or_default() += faults;
        let causes = match instruction {
            Some(instruction) => &mut self.unsettled.entry(instruction).or_default().causes,
            None => {
                *self.reason.entry(reason).or_default() += faults;
                &mut self.causes
            }
        };
        causes.entry(CauseKey { reason, function }).or_default().add(class, request_bytes, after, faults);
    }

    /// An access of this instruction, to memory that held no block, was where a block is now.
    pub(crate) fn is_before_block(&mut self, instruction: u64) {
        self.unsettled.entry(instruction).or_default().before_blocks += 1;
    }

    /// Concludes what each instruction of the allocator is for: what most of its accesses were for. The accesses of one call may
    /// be too few to tell.
    pub(crate) fn settle(&mut self) {
        for (_, accesses) in std::mem::take(&mut self.unsettled) {
            let Some(reason) = accesses.reason() else { continue };
            for (CauseKey { function, .. }, counts) in accesses.causes {
                *self.reason.entry(reason).or_default() += counts.installs;
                self.causes.entry(CauseKey { reason, function }).or_default().merge(counts);
            }
        }
    }

    /// Replaces functions by those of the same name.
    pub(crate) fn rename(&mut self, names: &BTreeMap<FunctionId, FunctionId>) {
        let removed = |removed: Option<Removed>| removed.map(|one| Removed { by: one.by.renamed(names), ..one });
        rekey(&mut self.function, |function| function.renamed(names));
        rekey(&mut self.mapping, |mapping| mapping.map(|source| source.renamed(names)));
        rekey(&mut self.after, removed);
        for (key, mut counts) in std::mem::take(&mut self.causes) {
            rekey(&mut counts.after, removed);
            let key = CauseKey { function: key.function.renamed(names), ..key };
            self.causes.entry(key).or_default().merge(counts);
        }
    }

    /// The causes, the largest first.
    pub fn largest_causes(&self) -> Vec<(CauseKey, &CauseCounts)> {
        let mut causes: Vec<_> = self.causes.iter().map(|(&key, counts)| (key, counts)).collect();
        causes.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.installs));
        causes
    }
}

/// Replaces the keys of a sum; those that become equal are added.
fn rekey<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, key: impl Fn(K) -> K) {
    for (old, faults) in std::mem::take(sums) {
        *sums.entry(key(old)).or_default() += faults;
    }
}

/// The size class of a request: 16 bytes apart up to 128 bytes, then four to each doubling. The classes are those of
/// hksim's own allocator, without an end.
pub fn class_of(bytes: u64) -> u64 {
    const FINE_MAX: u64 = 128;
    let bytes = bytes.max(1);
    if bytes <= FINE_MAX {
        return bytes.next_multiple_of(16);
    }
    let step = 1u64 << (63 - (bytes - 1).leading_zeros()) >> 2;
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_for_what_most_of_its_accesses_are_for() {
        let mut breakdown = Breakdown::default();
        let mut add = |reason, instruction, faults| {
            let (function, mapping, page_bytes, after, during) = (FunctionId::START, None, None, None, During::Touch);
            let what = What { reason, function, mapping, page_bytes, after, during, instruction };
            let (site, thread) = (Origin::Trace(0), Origin::Trace(0));
            let key = FaultKey { what, request_bytes: Some(faults), site, thread, phase: None, interval: 0 };
            breakdown.add(key, faults);
        };
        // The first is seen alone mostly, and blocks are placed there later.
        add(Reason::Metadata, Some(1), 90);
        add(Reason::FreeList, Some(1), 20);
        add(Reason::Header, Some(1), 30);
        add(Reason::Metadata, Some(2), 40);
        add(Reason::Prefault, Some(2), 39);
        add(Reason::Zeroing, None, 5);
        (0..60).for_each(|_| breakdown.is_before_block(1));
        (0..3).for_each(|_| breakdown.is_before_block(3));
        breakdown.settle();
        let reasons: Vec<(Reason, u64)> = breakdown.reason.iter().map(|(&reason, &faults)| (reason, faults)).collect();
        assert_eq!(reasons, [(Reason::FreeList, 140), (Reason::Metadata, 79), (Reason::Zeroing, 5)]);
        let (key, counts) = breakdown.largest_causes()[0];
        assert_eq!((key.reason, counts.installs), (Reason::FreeList, 140));
        assert_eq!((counts.request_bytes_min, counts.request_bytes_max), (Some(20), Some(90)));
        assert_eq!(breakdown.total, 224);
    }

    #[test]
    fn classes_are_those_of_the_allocator() {
        let examples = [(0, 16), (16, 16), (17, 32), (128, 128), (129, 160), (256, 256), (257, 320), (5000, 5120)];
        for (bytes, class) in examples.into_iter().chain([(65536, 65536), (65537, 81920), (1 << 20, 1 << 20)]) {
            assert_eq!(class_of(bytes), class, "{bytes}");
        }
    }
}
