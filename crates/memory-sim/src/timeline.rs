//! Samples of an address space over time.

use hksim_linux_mm::{Kernel, PAGE_BYTES, PMD_PAGES};
use serde::{Deserialize, Serialize};

/// Maximum number of samples; at twice this number every second one is dropped.
const SAMPLES_MAX: usize = 256;
/// The first interval between two samples: 0.1 ms.
const INTERVAL_NS: u64 = 100_000;

/// The state of an address space at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the start of the recording.
    pub time_ns: u64,
    /// Resident bytes of modelled memory, hugetlb included.
    pub rss_bytes: u64,
    /// Transparent huge pages mapped.
    pub huge_pages: u64,
    /// Resident bytes in pages of the hugetlb pool.
    #[serde(default)]
    pub hugetlb_bytes: u64,
    /// Installs so far.
    pub installs: u64,
    /// #PF exceptions so far.
    pub traps: u64,
    /// Mappings.
    pub vmas: u64,
}

impl Sample {
    pub(crate) fn of(kernel: &Kernel, time_ns: u64) -> Self {
        Self {
            time_ns,
            rss_bytes: kernel.resident_bytes(),
            huge_pages: kernel.huge_pages(),
            hugetlb_bytes: kernel.hugetlb_pages() * PMD_PAGES * PAGE_BYTES,
            installs: kernel.counters().installs_total(),
            traps: kernel.counters().traps,
            vmas: kernel.vma_count(),
        }
    }
}

/// Takes samples at intervals that grow with the length of the recording.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    samples: Vec<Sample>,
    interval_ns: u64,
    next_ns: u64,
}

impl Timeline {
    pub fn new() -> Self {
        Self { samples: Vec::new(), interval_ns: INTERVAL_NS, next_ns: 0 }
    }

    /// Samples before an operation at `time_ns`, if the time for a sample has come. After a pause since the operation
    /// before at `last_ns`, also at the beginning of the pause: nothing changed meanwhile.
    #[inline]
    pub fn observe(&mut self, kernel: &Kernel, last_ns: u64, time_ns: u64) {
        if time_ns >= self.next_ns {
            if last_ns.saturating_add(self.interval_ns) <= time_ns {
                self.sample(kernel, last_ns);
            }
            self.sample(kernel, time_ns);
        }
    }

    #[cold]
    fn sample(&mut self, kernel: &Kernel, time_ns: u64) {
        self.samples.push(Sample::of(kernel, time_ns));
        if self.samples.len() == 2 * SAMPLES_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval_ns *= 2;
        }
        self.next_ns = time_ns - time_ns % self.interval_ns + self.interval_ns;
    }

    /// The samples, the last one at the end.
    pub fn finish(mut self, kernel: &Kernel, time_ns: u64) -> Vec<Sample> {
        self.samples.retain(|sample| sample.time_ns < time_ns);
        self.samples.push(Sample::of(kernel, time_ns));
        self.samples
    }
}
