//! Samples of a run over trace time: at most [`SAMPLES_MAX`], and none loses a peak.

use crate::accounting::Accounting;
use crate::report::Sample;
use crate::track::Moment;

/// Maximum number of samples. At this number, each two neighbours are joined and the interval doubles.
const SAMPLES_MAX: usize = 128;
/// The first interval between two samples: 10 us.
const INTERVAL_NS: u64 = 10_000;

/// The samples so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    samples: Vec<Sample>,
    /// log2 of the interval, in units of [`INTERVAL_NS`].
    interval_log2: u32,
    next_ns: u64,
}

impl Timeline {
    /// The samples.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Takes a sample if one is due at this time.
    pub(crate) fn observe(&mut self, moment: Moment, accounting: &mut Accounting) {
        if moment.time_ns >= self.next_ns {
            self.sample(moment, accounting);
        }
    }

    /// Takes the last sample, unless the last one was taken at the same event.
    pub(crate) fn end(&mut self, moment: Moment, accounting: &mut Accounting) {
        if self.samples.last().is_none_or(|last| last.event != moment.event) {
            self.sample(moment, accounting);
        }
    }

    fn sample(&mut self, moment: Moment, accounting: &mut Accounting) {
        let rss_bytes_peak = accounting.take_interval_peak_bytes();
        let kernel = accounting.kernel();
        self.samples.push(Sample {
            event: moment.event,
            time_ns: moment.time_ns,
            live_bytes: moment.live.bytes,
            rss_bytes: kernel.resident_bytes(),
            rss_bytes_peak,
            huge_pages: kernel.huge_pages(),
            installs: kernel.counters().installs_total(),
            vmas: kernel.vma_count(),
        });
        if self.samples.len() == SAMPLES_MAX {
            self.samples = self.samples.chunks(2).map(joined).collect();
            self.interval_log2 += 1;
        }
        let interval_ns = INTERVAL_NS << self.interval_log2;
        self.next_ns = moment.time_ns - moment.time_ns % interval_ns + interval_ns;
    }
}

/// The last of two samples, with the higher peak.
fn joined(pair: &[Sample]) -> Sample {
    let last = pair.last().copied().unwrap_or_default();
    Sample { rss_bytes_peak: pair.iter().map(|sample| sample.rss_bytes_peak).max().unwrap_or(0), ..last }
}
