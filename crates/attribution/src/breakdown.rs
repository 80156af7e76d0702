//! Faults by every key that explains them. The sums over each key are equal.

use std::collections::BTreeMap;

use hksim_sim::explain::INTERVALS;

use crate::functions::FunctionId;
use crate::mappings::Source;
use crate::pages::Removed;
use crate::reason::Reason;

/// The program's access, or the call of the allocator in which a fault was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum During {
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
}

/// Everything that is known of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultKey {
    /// What it was for.
    pub what: What,
    /// The bytes of the request; `None` without a request.
    pub request_bytes: Option<u64>,
    /// The call site that allocated the event's object; 0 if it is unknown.
    pub site: u32,
    /// The thread of the event.
    pub thread: u32,
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
    pub site: BTreeMap<u32, u64>,
    /// By thread.
    pub thread: BTreeMap<u32, u64>,
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
}

impl Breakdown {
    /// Adds faults with equal keys.
    pub fn add(&mut self, key: FaultKey, faults: u64) {
        let FaultKey { what, request_bytes, site, thread, phase, interval } = key;
        let What { reason, function, mapping, page_bytes, after, during } = what;
        let class = request_bytes.map(class_of);
        self.total += faults;
        *self.reason.entry(reason).or_default() += faults;
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
        let cause = self.causes.entry(CauseKey { reason, function }).or_default();
        cause.installs += faults;
        *cause.classes.entry(class).or_default() += faults;
        *cause.after.entry(after).or_default() += faults;
        if let Some(bytes) = request_bytes {
            cause.request_bytes_min = Some(cause.request_bytes_min.map_or(bytes, |least| least.min(bytes)));
            cause.request_bytes_max = Some(cause.request_bytes_max.map_or(bytes, |most| most.max(bytes)));
        }
    }

    /// The causes, the largest first.
    pub fn largest_causes(&self) -> Vec<(CauseKey, &CauseCounts)> {
        let mut causes: Vec<_> = self.causes.iter().map(|(&key, counts)| (key, counts)).collect();
        causes.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.installs));
        causes
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
    fn classes_are_those_of_the_allocator() {
        let examples = [(0, 16), (16, 16), (17, 32), (128, 128), (129, 160), (256, 256), (257, 320), (5000, 5120)];
        for (bytes, class) in examples.into_iter().chain([(65536, 65536), (65537, 81920), (1 << 20, 1 << 20)]) {
            assert_eq!(class_of(bytes), class, "{bytes}");
        }
    }
}
