//! Compares stacks that grow: the main stack, and mappings of `MAP_GROWSDOWN`.
//!
//! The kernel places the main stack, and the first frame in it, at random, so the figures of two runs differ by a few
//! pages, with huge pages by more. The prediction is the range over other addresses, and the measurement has to be in it.

use hksim_memory_sim::StackPrediction;
use hksim_policy::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::figures::kib;
use super::measure::Run;
use hksim_text::units::count;

/// Pages by which a run may lie outside the predicted range: the first frame is up to two pages lower, which may also
/// move one more page into use.
const SLACK_PAGES: u64 = 3;

/// The stacks of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFigures {
    /// Predicted #PF exceptions: the fewest and the most over other addresses.
    pub traps_predicted: [u64; 2],
    /// Measured #PF exceptions.
    pub traps_measured: u64,
    /// Predicted resident bytes at the exit, with the measured arguments and environment.
    pub rss_bytes_end_predicted: [u64; 2],
    /// Measured resident bytes at the exit.
    pub rss_bytes_end_measured: u64,
}

impl StackFigures {
    /// `None` if a run or its prediction shows no touch of a stack.
    pub(crate) fn of(predicted: Option<&StackPrediction>, run: &Run) -> Option<Self> {
        let (predicted, measured) = (predicted?, run.stack?);
        // The environment may have another size than the recorded one.
        let own = |bytes: u64| bytes.saturating_sub(predicted.arguments_bytes) + measured.arguments_bytes;
        Some(Self {
            traps_predicted: [predicted.traps_min, predicted.traps_max],
            traps_measured: measured.traps,
            rss_bytes_end_predicted: [predicted.rss_bytes_end_min, predicted.rss_bytes_end_max].map(own),
            rss_bytes_end_measured: run.snapshot.as_ref()?.stack_rss_bytes(),
        })
    }
}

/// The figures of the stacks that are outside their predictions in all runs. Runs that differ among themselves widen the
/// range.
pub fn outside(runs: &[StackFigures]) -> Vec<String> {
    type Show = fn(u64) -> String;
    let differs =
        |name: &str, predicted: fn(&StackFigures) -> [u64; 2], measured: fn(&StackFigures) -> u64, unit, show: Show| {
            let least = runs.iter().map(|run| predicted(run)[0]).min()?;
            let most = runs.iter().map(|run| predicted(run)[1]).max()?;
            let (lowest, highest) = (runs.iter().map(measured).min()?, runs.iter().map(measured).max()?);
            let slack = SLACK_PAGES * unit + (highest - lowest);
            let holds = lowest <= most.saturating_add(slack) && highest.saturating_add(slack) >= least;
            (!holds).then(|| {
                format!(
                    "stack {name} {} to {} predicted, {} to {} measured",
                    show(least),
                    show(most),
                    show(lowest),
                    show(highest)
                )
            })
        };
    let traps = differs("traps", |run| run.traps_predicted, |run| run.traps_measured, 1, count);
    let rss = |run: &StackFigures| run.rss_bytes_end_predicted;
    let rss = differs("RSS at the exit", rss, |run| run.rss_bytes_end_measured, PAGE_BYTES, kib);
    traps.into_iter().chain(rss).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(traps_predicted: [u64; 2], traps_measured: u64) -> StackFigures {
        StackFigures {
            traps_predicted,
            traps_measured,
            rss_bytes_end_predicted: [40 << 10, 44 << 10],
            rss_bytes_end_measured: 48 << 10,
        }
    }

    #[test]
    fn a_stack_is_within_its_range_and_a_few_pages() {
        assert!(outside(&[run([10, 12], 7), run([10, 12], 15)]).is_empty());
        let said = outside(&[run([1560, 1560], 538), run([1560, 1560], 538)]);
        assert_eq!(said, ["stack traps 1 560 to 1 560 predicted, 538 to 538 measured"]);
        assert_eq!(outside(&[run([10, 12], 16)]).len(), 1);
        assert!(outside(&[run([10, 12], 16), run([10, 12], 20)]).is_empty(), "the runs differ by more");
        assert!(outside(&[]).is_empty());
        let large = StackFigures { rss_bytes_end_measured: 80 << 10, ..run([10, 12], 11) };
        assert_eq!(outside(&[large]), ["stack RSS at the exit 40 KiB to 44 KiB predicted, 80 KiB to 80 KiB measured"]);
    }
}
