//! Samples of a run over trace time: at most [`SAMPLES_MAX`], and none loses a peak.

use crate::report::Sample;

/// Maximum number of samples. At this number the interval doubles, and the samples of one interval are joined.
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

    /// Whether a sample is due at this time.
    pub(crate) fn is_due(&self, time_ns: u64) -> bool {
        time_ns >= self.next_ns
    }

    fn interval_ns(&self) -> u64 {
        INTERVAL_NS.saturating_mul(1u64.checked_shl(self.interval_log2).unwrap_or(u64::MAX))
    }

    /// Joins the samples of each interval, except the first sample, which is that of the start.
    fn join(&mut self) {
        let interval_ns = self.interval_ns();
        let start = self.samples.first().copied();
        let later = self.samples.get(1..).unwrap_or_default();
        let intervals = later.chunk_by(|one, other| one.time_ns / interval_ns == other.time_ns / interval_ns);
        self.samples = start.into_iter().chain(intervals.map(joined)).collect();
    }

    /// Adds a sample.
    pub(crate) fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
        while self.samples.len() >= SAMPLES_MAX {
            self.interval_log2 += 1;
            self.join();
        }
        let interval_ns = self.interval_ns();
        self.next_ns = (sample.time_ns - sample.time_ns % interval_ns).saturating_add(interval_ns);
    }
}

/// The last of some samples, with the highest peak.
fn joined(samples: &[Sample]) -> Sample {
    let last = samples.last().copied().unwrap_or_default();
    Sample { rss_bytes_peak: samples.iter().map(|sample| sample.rss_bytes_peak).max().unwrap_or(0), ..last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_and_the_highest_peak_stay() {
        let mut timeline = Timeline::default();
        let sample = |event: u64, time_ns| Sample { event, time_ns, ..Sample::default() };
        // A pause, then many events: the sample before the pause must not be lost. As in a run, a sample is taken when
        // one is due, and the peak is that of all events since the sample before.
        let mut rss_bytes_peak = 0;
        for event in 0..30_000 {
            let time_ns = if event < 20 { event * 700 } else { 1_000_000_000 + event * 1_000 };
            rss_bytes_peak = rss_bytes_peak.max(event % 97);
            if time_ns >= timeline.next_ns || event == 29_999 {
                timeline.push(Sample { rss_bytes_peak: std::mem::take(&mut rss_bytes_peak), ..sample(event, time_ns) });
            }
        }
        let samples = timeline.samples();
        assert!(samples.len() < SAMPLES_MAX && samples.len() > SAMPLES_MAX / 4, "{}", samples.len());
        assert_eq!((samples[0].event, samples[samples.len() - 1].event), (0, 29_999));
        assert!(samples[1].time_ns < 20 * 700, "{:?}", samples[1]);
        assert_eq!(samples.iter().map(|sample| sample.rss_bytes_peak).max(), Some(96));
    }
}
