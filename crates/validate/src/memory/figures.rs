//! The figures of one address space, predicted or measured.

use hksim_memory_sim::Prediction;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use super::measure::Run;
use hksim_text::units::count;

/// A statistical claim also holds within this share of the measured median.
const TOLERANCE: f64 = 0.01;

/// Figures of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// #PF exceptions in anonymous memory.
    pub traps: u64,
    /// Resident bytes of anonymous memory at the exit, hugetlb included.
    pub rss_bytes_end: u64,
    /// Transparent huge pages at the exit.
    pub huge_pages_end: u64,
    /// Highest resident bytes of anonymous memory; measured: the least that is possible. `None` if not measured.
    pub rss_bytes_peak: Option<u64>,
    /// The most that is possible: the kernel counts this memory together with stacks and written pages of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes_peak_max: Option<u64>,
}

impl Figures {
    /// What is predicted: with khugepaged settled, if that was asked for.
    pub fn predicted(prediction: &Prediction) -> Self {
        let settled = prediction.khugepaged_settled;
        Self {
            traps: prediction.traps,
            rss_bytes_end: settled.map_or(prediction.rss_bytes_end, |settled| settled.rss_bytes),
            huge_pages_end: settled.map_or(prediction.huge_pages_end, |settled| settled.huge_pages),
            rss_bytes_peak: Some(prediction.rss_bytes_peak),
            rss_bytes_peak_max: None,
        }
    }

    /// What is measured. `has_peak` says whether the kernel's peak is that of the memory that is predicted.
    pub(crate) fn measured(run: &Run, has_peak: bool) -> Self {
        let snapshot = run.snapshot.as_ref();
        let peak = run.rss_bytes_peak.filter(|_| has_peak);
        Self {
            traps: run.traps,
            rss_bytes_end: snapshot.map_or(0, |snapshot| snapshot.rss_bytes()),
            huge_pages_end: snapshot.map_or(0, |snapshot| snapshot.huge_bytes() / HUGE_PAGE_BYTES),
            rss_bytes_peak: peak.map(|[least, _]| least),
            rss_bytes_peak_max: peak.map(|[_, most]| most),
        }
    }

    /// |prediction - measurement| over traps, huge pages and resident pages at the exit.
    pub fn distance(&self, other: &Self) -> u64 {
        self.traps.abs_diff(other.traps)
            + self.huge_pages_end.abs_diff(other.huge_pages_end)
            + self.rss_bytes_end.abs_diff(other.rss_bytes_end) / PAGE_BYTES
    }

    /// The figures that differ, with all their digits.
    pub fn differences(&self, measured: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |name: &str, own: u64, theirs: u64, show: fn(u64) -> String| {
            if own != theirs {
                differences.push(format!("{name} {} predicted, {} measured", show(own), show(theirs)));
            }
        };
        compare("traps", self.traps, measured.traps, count);
        compare("huge pages", self.huge_pages_end, measured.huge_pages_end, count);
        compare("RSS at the exit", self.rss_bytes_end, measured.rss_bytes_end, kib);
        if let (false, Some(own), Some(least)) =
            (self.peak_holds(measured), self.rss_bytes_peak, measured.rss_bytes_peak)
        {
            let most = measured.rss_bytes_peak_max.unwrap_or(least);
            differences.push(format!("peak RSS {} predicted, {} to {} measured", kib(own), kib(least), kib(most)));
        }
        differences
    }

    /// What may be predicted for this measurement.
    pub fn bounds(&self) -> Bounds {
        let most = self.rss_bytes_peak_max.or(self.rss_bytes_peak);
        Bounds {
            traps: [self.traps; 2],
            rss_bytes_end: [self.rss_bytes_end; 2],
            rss_bytes_peak: self.rss_bytes_peak.zip(most).map(|(least, most)| [least, most]),
        }
    }

    /// Whether a predicted peak is one of those that are possible by a measurement.
    pub fn peak_holds(&self, measured: &Self) -> bool {
        is_within(self.rss_bytes_peak, measured.bounds().rss_bytes_peak)
    }
}

/// The least and the most that a prediction may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub traps: [u64; 2],
    pub rss_bytes_end: [u64; 2],
    /// `None` if not measured.
    pub rss_bytes_peak: Option<[u64; 2]>,
}

impl Bounds {
    /// Whether a prediction is within them.
    pub fn hold(&self, predicted: &Figures) -> bool {
        is_within(Some(predicted.traps), Some(self.traps))
            && is_within(Some(predicted.rss_bytes_end), Some(self.rss_bytes_end))
            && is_within(predicted.rss_bytes_peak, self.rss_bytes_peak)
    }
}

/// Whether a value is within its bounds, if both are known.
fn is_within(value: Option<u64>, bounds: Option<[u64; 2]>) -> bool {
    value.zip(bounds).is_none_or(|(value, [least, most])| (least..=most).contains(&value))
}

/// Bytes with all digits.
pub fn kib(bytes: u64) -> String {
    format!("{} KiB", count(bytes / 1024))
}

/// The figures whose predictions are outside the spread of the measurements, with both. `predicted` are those of one
/// recording at the addresses of each run, and `recordings` those of further ones.
pub fn outside(predicted: &[Figures], recordings: &[Figures], measured: &[Bounds]) -> Vec<String> {
    type Show = fn(u64) -> String;
    let spread = |own: fn(&Figures) -> Option<u64>, bounds: fn(&Bounds) -> Option<[u64; 2]>| {
        let all = |figures: &[Figures]| figures.iter().map(own).collect::<Option<Vec<u64>>>();
        let bounds = measured.iter().map(bounds).collect::<Option<Vec<_>>>()?;
        Spread::new(all(predicted)?, all(recordings)?, &bounds)
    };
    let rows = [
        ("traps", spread(|own| Some(own.traps), |bounds| Some(bounds.traps)), count as Show),
        ("peak RSS", spread(|own| own.rss_bytes_peak, |bounds| bounds.rss_bytes_peak), kib),
        ("RSS at the exit", spread(|own| Some(own.rss_bytes_end), |bounds| Some(bounds.rss_bytes_end)), kib),
    ];
    let failed = rows.into_iter().filter_map(|(name, spread, show)| {
        let spread = spread?;
        let predicted = spread.outside()?;
        let Spread { least, most, .. } = spread;
        Some(match least == most {
            true => format!("{name} {} predicted, {} measured", show(predicted), show(least)),
            false => format!("{name} {} predicted, {} to {} measured", show(predicted), show(least), show(most)),
        })
    });
    failed.collect()
}

/// The median, the upper one of two; `None` without values.
fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// A prediction beside the spread of measurements.
struct Spread {
    /// The prediction from the recording itself.
    own: u64,
    /// The median over all recordings.
    predicted: u64,
    least: u64,
    most: u64,
    /// The medians of the measurements' lower and upper bounds.
    medians: [u64; 2],
    /// The least and the most of measurements and further recordings.
    outcomes: [u64; 2],
    /// From the lowest to the highest lower bound, or of the predictions, if these differ more.
    range: u64,
}

impl Spread {
    /// `predicted` are of one recording at the addresses of each run. `None` without values.
    fn new(mut predicted: Vec<u64>, mut recordings: Vec<u64>, bounds: &[[u64; 2]]) -> Option<Self> {
        let [mut least, mut most] = [0, 1].map(|end| bounds.iter().map(|bounds| bounds[end]).collect::<Vec<u64>>());
        let medians = [median(&mut least)?, median(&mut most)?];
        let own = median(&mut predicted)?;
        recordings.sort_unstable();
        // The spread of the outcomes is that among further recordings: a recording that differs from all of them is of a
        // program that behaves otherwise now.
        let varied = if recordings.is_empty() { &predicted } else { &recordings };
        let [lowest, highest] = [*varied.first()?, *varied.last()?];
        let range = (least.last()? - least.first()?).max(highest - lowest);
        let [least, most] = [*least.first()?, *most.last()?];
        let outcomes = match recordings.is_empty() {
            true => [own, own],
            false => [least.min(lowest), most.max(highest)],
        };
        // Each recording is one outcome of the program, however many runs it was compared with.
        recordings.push(own);
        Some(Self { own, predicted: median(&mut recordings)?, least, most, medians, outcomes, range })
    }

    /// The prediction that is not within the spread, widened by itself or by the tolerance.
    fn outside(&self) -> Option<u64> {
        let slack = (self.range as f64).max(self.medians[0] as f64 * TOLERANCE);
        let is_within = |value: u64, [least, most]: [u64; 2]| {
            (least as f64 - slack..=most as f64 + slack).contains(&(value as f64))
        };
        let predictions = [(self.predicted, self.medians), (self.own, self.outcomes)];
        predictions.into_iter().find(|(value, bounds)| !is_within(*value, *bounds)).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(traps: u64, peak_kib: Option<[u64; 2]>) -> Figures {
        let (rss_bytes_end, huge_pages_end) = (traps << 12, 0);
        let [least, most] = [0, 1].map(|bound| peak_kib.map(|peak| peak[bound] << 10));
        Figures { traps, rss_bytes_end, huge_pages_end, rss_bytes_peak: least, rss_bytes_peak_max: most }
    }

    #[test]
    fn a_peak_is_compared_with_what_is_possible() {
        let predicted = |kib| figures(1, Some([kib, kib]));
        let measured = figures(1, Some([100, 110]));
        let holds = [99, 100, 110, 111].map(|kib| predicted(kib).peak_holds(&measured));
        assert_eq!(holds, [false, true, true, false]);
        assert!(predicted(5).peak_holds(&figures(1, None)), "not measured");
    }

    #[test]
    fn what_is_outside_is_named_with_its_digits() {
        let measured = [figures(1000, Some([4000, 4100])), figures(1004, Some([4004, 4104]))];
        let measured = measured.map(|figures| figures.bounds());
        let said = |traps, kib| outside(&[figures(traps, Some([kib, kib]))], &[], &measured);
        assert!(said(1010, 4050).is_empty(), "within 1 %");
        assert_eq!(said(1002, 5000), ["peak RSS 5 000 KiB predicted, 4 000 KiB to 4 104 KiB measured"]);
        assert_eq!(said(900, 4050)[0], "traps 900 predicted, 1 000 to 1 004 measured");
        assert_eq!(said(900, 4050)[1], "RSS at the exit 3 600 KiB predicted, 4 000 KiB to 4 016 KiB measured");
        assert!(outside(&[figures(7, None)], &[], &[]).is_empty());
    }

    #[test]
    fn each_recording_is_one_outcome() {
        let outcome = |traps| figures(traps, None);
        let measured = [175; 8].map(|traps| outcome(traps).bounds());
        let recorded = [outcome(171); 8];
        assert_eq!(outside(&recorded, &[], &measured).len(), 2, "traps and RSS");
        let others = [175, 175, 171, 175, 175].map(outcome);
        assert!(outside(&recorded, &others, &measured).is_empty(), "most recordings are as most runs");
        let others = [171, 171, 171, 171, 175].map(outcome);
        assert!(
            outside(&recorded, &others, &measured).is_empty(),
            "a rare outcome of the recordings is usual in the runs"
        );
        assert_eq!(outside(&recorded, &[outcome(171); 5], &measured).len(), 2);
    }

    /// A program that reads the kernel's mode has one outcome in each mode.
    #[test]
    fn a_recording_unlike_all_others_and_all_runs_is_outside() {
        let outcome = |traps| figures(traps, None);
        let measured = [4896; 7].map(|traps| outcome(traps).bounds());
        assert_eq!(outside(&[outcome(885); 7], &[outcome(4896); 5], &measured).len(), 2, "traps and RSS");
    }
}
