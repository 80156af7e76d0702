//! The samples of a design's memory over trace time.

use std::mem;

use hksim_policy::HUGE_PAGE_BYTES;

use super::Accounting;
use crate::report::Sample;
use crate::track::Moment;

impl Accounting {
    /// The samples so far.
    pub(crate) fn samples(&self) -> &[Sample] {
        self.timeline.samples()
    }

    /// Takes a sample, if one is due.
    pub(crate) fn sample_if_due(&mut self, moment: Moment) {
        if self.timeline.is_due(moment.time_ns) {
            self.sample(moment);
        }
    }

    /// Takes the last sample, unless the last one was taken at the same event.
    pub(crate) fn sample_at_end(&mut self, moment: Moment) {
        if self.samples().last().is_none_or(|last| last.event != moment.event) {
            self.sample(moment);
        }
    }

    fn sample(&mut self, moment: Moment) {
        let kernel = &self.kernel;
        self.timeline.push(Sample {
            event: moment.event,
            time_ns: moment.time_ns,
            live_bytes: moment.live.bytes,
            rss_bytes: kernel.resident_bytes(),
            rss_bytes_peak: mem::replace(&mut self.interval_peak_bytes, kernel.resident_bytes()),
            huge_pages: kernel.huge_pages(),
            hugetlb_bytes: kernel.hugetlb_pages().saturating_mul(HUGE_PAGE_BYTES),
            installs: kernel.counters().installs_total(),
            vmas: kernel.vma_count(),
        });
    }
}
