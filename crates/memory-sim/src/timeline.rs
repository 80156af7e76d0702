//! Samples of an address space over time.

use std::sync::Arc;

use hksim_linux_mm::{Kernel, KhugepagedAtEnd, PAGE_BYTES, PMD_PAGES};
use serde::{Deserialize, Serialize};

/// At this number of samples, the interval is doubled until some are dropped.
const SAMPLES_MAX: usize = 512;
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
    /// The most that there can be from this sample until the next one, if khugepaged works at its pace; `None` if not asked
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub khugepaged: Option<KhugepagedAtEnd>,
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
            khugepaged: kernel.khugepaged_at_end(time_ns),
        }
    }

    /// Takes into account the most that there can be later, before the next sample.
    fn note_most(&mut self, later: Option<KhugepagedAtEnd>) {
        self.khugepaged = self.khugepaged.zip(later).map(|(most, later)| most.or_more(later));
    }
}

/// Takes a sample at each of some moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtMoments {
    /// In ascending order, as times since the start of the recording.
    moments: Arc<[u64]>,
    samples: Vec<Sample>,
}

impl AtMoments {
    pub fn new(moments: Arc<[u64]>) -> Self {
        Self { moments, samples: Vec::new() }
    }

    /// Samples before an operation at `time_ns`, for each moment before it.
    #[inline]
    pub fn observe(&mut self, kernel: &Kernel, time_ns: u64) {
        while let Some(&moment) = self.moments.get(self.samples.len())
            && moment < time_ns
        {
            self.samples.push(Sample::of(kernel, moment));
        }
    }

    /// The samples: those of moments after the end are like the end.
    pub fn finish(mut self, kernel: &Kernel) -> Vec<Sample> {
        self.observe(kernel, u64::MAX);
        self.samples
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
                self.sample_pace(kernel, time_ns);
            }
            self.sample(kernel, time_ns);
        }
    }

    /// Samples in a pause that ends at `end_ns`, at each sleep of khugepaged or at intervals: it works on meanwhile.
    fn sample_pace(&mut self, kernel: &Kernel, end_ns: u64) {
        let sleep_ns = kernel.config().khugepaged.scan_sleep_ms.saturating_mul(1_000_000);
        let next = |samples: &[Sample], interval_ns: u64| {
            let step_ns = sleep_ns.max(interval_ns);
            samples.last().map_or(end_ns, |last| (last.time_ns / step_ns + 1).saturating_mul(step_ns))
        };
        while self.samples.last().is_some_and(|last| last.khugepaged.is_some())
            && next(&self.samples, self.interval_ns) < end_ns
        {
            self.sample(kernel, next(&self.samples, self.interval_ns));
        }
    }

    #[cold]
    fn sample(&mut self, kernel: &Kernel, time_ns: u64) {
        // The bound at the end of a sample's time is also that of a moment just before.
        let before = kernel.khugepaged_at_end(time_ns.saturating_sub(1));
        self.samples.iter_mut().last().into_iter().for_each(|sample| sample.note_most(before));
        self.samples.push(Sample::of(kernel, time_ns));
        while self.samples.len() >= SAMPLES_MAX {
            self.interval_ns *= 2;
            self.thin_out();
        }
        self.next_ns = time_ns - time_ns % self.interval_ns + self.interval_ns;
    }

    /// Keeps one sample in each interval, and the last one before each pause: otherwise the memory of a pause would seem to
    /// be that of a moment long before it.
    fn thin_out(&mut self) {
        let interval_ns = self.interval_ns;
        let mut kept_in = None;
        let times: Vec<u64> = self.samples.iter().map(|sample| sample.time_ns).collect();
        let mut next_ns = times[1..].iter().copied().chain([u64::MAX]);
        let mut kept: Vec<Sample> = Vec::with_capacity(self.samples.len());
        for sample in self.samples.drain(..) {
            let is_before_pause = next_ns.next().is_none_or(|next_ns| next_ns - sample.time_ns >= interval_ns);
            let interval = Some(sample.time_ns / interval_ns);
            match kept.last_mut().filter(|_| !is_before_pause && kept_in == interval) {
                Some(earlier) => earlier.note_most(sample.khugepaged),
                None => kept.push(sample),
            }
            kept_in = interval;
        }
        self.samples = kept;
    }

    /// The samples, the last one at the end.
    pub fn finish(mut self, kernel: &Kernel, time_ns: u64) -> Vec<Sample> {
        self.samples.retain(|sample| sample.time_ns < time_ns);
        self.sample(kernel, time_ns);
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use hksim_linux_mm::{Access, Content, KernelConfig, Khugepaged, KhugepagedWork, MapFlags, ThpConfig, ThpMode};

    use super::*;

    #[test]
    fn each_moment_has_the_state_of_its_time() {
        let kernel = Kernel::new(KernelConfig::default());
        let mut at = AtMoments::new([3, 3, 8, 20].into());
        [3, 4, 8].iter().for_each(|&time_ns| at.observe(&kernel, time_ns));
        assert_eq!(at.samples.len(), 2, "what happens at a moment is before it");
        let times: Vec<u64> = at.finish(&kernel).iter().map(|sample| sample.time_ns).collect();
        assert_eq!(times, [3, 3, 8, 20]);
    }

    #[test]
    fn a_pause_keeps_the_sample_before_it() {
        let kernel = Kernel::new(KernelConfig::default());
        let mut timeline = Timeline::new();
        let (mut last_ns, pause_ns) = (0, 10_000_000_000);
        // A burst, a pause, and so many events that samples are dropped several times.
        let burst = (1..=7).map(|number| 40_000_000 + number * 90_000);
        let after = (0..50_000).map(|number| pause_ns + number * 110_000);
        for time_ns in burst.chain(after) {
            timeline.observe(&kernel, last_ns, time_ns);
            last_ns = time_ns;
        }
        let samples = timeline.finish(&kernel, last_ns);
        let times: Vec<u64> = samples.iter().map(|sample| sample.time_ns).collect();
        assert!((SAMPLES_MAX / 4..=SAMPLES_MAX).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted() && times.contains(&40_630_000) && times.contains(&pause_ns), "{:?}", &times[..9]);
    }

    /// A page in each of 64 ranges, then 45 s of rest: khugepaged scans 8 of them at once and 8 more every 10 s.
    #[test]
    fn the_bound_grows_in_a_pause() {
        let khugepaged = Khugepaged { work: KhugepagedWork::Bound, ..Khugepaged::default() };
        let thp = ThpConfig::new(ThpMode::Always);
        let mut kernel = Kernel::new(KernelConfig { thp, khugepaged, ..KernelConfig::default() });
        for range in 0..64 {
            let page = 2 * range * PMD_PAGES;
            kernel.map(page..page + PMD_PAGES / 2, MapFlags::READ_WRITE).result.expect("room");
            kernel.touch(page, Access::Write(Content::NonZero)).expect("mapped");
            kernel.map(page + PMD_PAGES / 2..page + PMD_PAGES, MapFlags::READ_WRITE).result.expect("room");
        }
        let (mut timeline, second_ns) = (Timeline::new(), 1_000_000_000);
        timeline.observe(&kernel, 1_000_000, 45 * second_ns);
        let samples = timeline.finish(&kernel, 45 * second_ns);
        for (seconds, huge_pages) in [(1, 8), (9, 8), (10, 16), (19, 16), (25, 24), (44, 40), (45, 40)] {
            let sample = samples.iter().rfind(|sample| sample.time_ns <= seconds * second_ns).expect("a sample");
            assert_eq!(sample.khugepaged.map(|most| most.huge_pages_max), Some(huge_pages), "{seconds} s: {sample:?}");
        }
        assert!(samples.len() < 10, "a sample for each sleep");
    }
}
