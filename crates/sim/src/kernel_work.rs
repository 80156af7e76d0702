//! The kernel's work of a placement: what the kernel model counts, and how far apart the faults are.

use hksim_linux_mm::{PageOperations, RefaultsByKind};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Histogram (log2) of the number of events between an install and the previous one. The first class counts installs in
/// the same event as the previous install. The n-th class after it counts installs 2^(n-1) to 2^n - 1 events later. The
/// last class includes all longer distances. The distance matters because the program's own work evicts the kernel's
/// fault path from the caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSpacing([u64; FaultSpacing::NUMBER]);

/// One bucket of [`FaultSpacing`] in JSON. Empty buckets are omitted.
#[derive(Serialize, Deserialize)]
struct SpacingBucket {
    /// Lower bound of the events since the previous install.
    events_min: u64,
    /// Number of installs.
    installs: u64,
}

impl Serialize for FaultSpacing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.iter().filter(|&(_, installs)| installs > 0);
        serializer.collect_seq(filled.map(|(events_min, installs)| SpacingBucket { events_min, installs }))
    }
}

impl<'de> Deserialize<'de> for FaultSpacing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spacing = FaultSpacing::default();
        for SpacingBucket { events_min, installs } in Vec::deserialize(deserializer)? {
            let class = spacing.iter().position(|(bound, _)| bound == events_min);
            let class =
                class.ok_or_else(|| D::Error::custom(format!("{events_min} is not a bound of fault_spacing")))?;
            spacing.0[class] = installs;
        }
        Ok(spacing)
    }
}

impl FaultSpacing {
    const NUMBER: usize = 19;

    /// Adds installs at one event, the first of them this many events after the previous install.
    pub(crate) fn add(&mut self, events: u64, installs: u64) {
        let class = events.checked_ilog2().map_or(0, |log| log as usize + 1);
        self.0[class.min(FaultSpacing::NUMBER - 1)] += installs.min(1);
        self.0[0] += installs.saturating_sub(1);
    }

    /// For each class, the lower bound of events since the previous install, and the number of installs.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + Clone {
        self.0.iter().enumerate().map(|(n, &installs)| ((1 << n) >> 1, installs))
    }
}

/// Counters of kernel work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelWork {
    /// Pages dropped, marked, moved, collapsed and copied.
    #[serde(flatten)]
    pub operations: PageOperations,
    /// Spacing of the installs by accesses, except huge pages.
    pub fault_spacing: FaultSpacing,
    /// Spacing of the installs of huge pages and hugetlb pages, by accesses and calls.
    pub huge_fault_spacing: FaultSpacing,
    /// Installs of memory that the process had before.
    pub refaults: RefaultsByKind,
}
