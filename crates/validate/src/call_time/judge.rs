//! Whether measured times agree with predicted ones, and which part does not.

use hksim_time_model::{ORDER_ERROR_SHARE, Time};
use hksim_timing::{Estimate, Verdict as Measured};
use serde::{Deserialize, Serialize};

use super::{MeasuredTime, PredictedTime};

/// The verdict on a design's time. The first design is judged by its time per call, the others by their ratio to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeVerdict {
    /// Prediction and measurement agree within their errors.
    Ok,
    /// Neither of them separates the design from the first.
    Tie,
    /// They do not agree, mostly because of the time in user mode: instructions and memory.
    OffUser,
    /// They do not agree, mostly because of the time in the kernel.
    OffKernel,
    /// They do not agree, and the parts could not be measured.
    Off,
    /// The replay crashed.
    Failed,
    /// It was not predicted, or not measured.
    Skipped,
}

impl TimeVerdict {
    /// Its text in tables.
    pub fn word(self) -> &'static str {
        match self {
            TimeVerdict::Ok => "ok",
            TimeVerdict::Tie => "tie",
            TimeVerdict::OffUser => "off: user",
            TimeVerdict::OffKernel => "off: kernel",
            TimeVerdict::Off => "off",
            TimeVerdict::Failed => "failed",
            TimeVerdict::Skipped => "skipped",
        }
    }

    /// Whether prediction and measurement do not agree.
    pub fn is_off(self) -> bool {
        matches!(self, TimeVerdict::OffUser | TimeVerdict::OffKernel | TimeVerdict::Off)
    }
}

/// Prediction minus measurement of both parts of a time. For the first design they are shares of its measured time; for
/// the others, of the first design's time: by how much each part moves the ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeResidual {
    /// Instructions and memory.
    pub user_share: f64,
    /// The kernel.
    pub kernel_share: f64,
}

impl TimeResidual {
    /// The verdict on times that do not agree.
    fn verdict(residual: Option<TimeResidual>) -> TimeVerdict {
        match residual {
            None => TimeVerdict::Off,
            Some(TimeResidual { user_share, kernel_share }) if kernel_share.abs() > user_share.abs() => {
                TimeVerdict::OffKernel
            }
            Some(_) => TimeVerdict::OffUser,
        }
    }
}

/// A design's time, predicted and measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) predicted: &'a PredictedTime,
    pub(super) measured: &'a MeasuredTime,
}

/// User and kernel, as shares of `total`.
fn shares(user: f64, kernel: f64, total: f64) -> [f64; 2] {
    [user / total, kernel / total]
}

impl Pair<'_> {
    /// Predicted and measured parts, each as shares of a total of its own.
    fn shares(&self, [predicted_ns, measured_ns]: [f64; 2]) -> Option<[[f64; 2]; 2]> {
        let parts = self.predicted.time.parts_ns_per_call;
        let (user, kernel) = (self.measured.user_ns_per_call?, self.measured.system_ns_per_call?);
        Some([
            shares(parts.instructions + parts.memory, parts.kernel, predicted_ns),
            shares(user.median, kernel.median, measured_ns),
        ])
    }

    fn totals(&self) -> [f64; 2] {
        [self.predicted.time.ns_per_call.median, self.measured.ns_per_call.median]
    }

    /// The verdict on a time per call: it is right if the measured interval meets the predicted range. `None` without an
    /// interval.
    pub(super) fn judge_level(&self) -> Option<(TimeVerdict, Option<TimeResidual>)> {
        let [_, measured_ns] = self.totals();
        let residual = self.shares([measured_ns; 2]).map(|[predicted, measured]| minus(predicted, measured));
        let range = self.predicted.time.ns_per_call;
        let (low, high) = self.measured.ns_per_call.interval()?;
        let verdict =
            if low <= range.high && range.low <= high { TimeVerdict::Ok } else { TimeResidual::verdict(residual) };
        Some((verdict, residual))
    }

    /// The verdict on the ratio to the first design. `None` without a measured interval.
    pub(super) fn judge_ratio(&self, first: &Pair<'_>) -> Option<(TimeVerdict, Option<TimeResidual>)> {
        let predicted = self.predicted.ratio_to_first?;
        let (low, high) = self.measured.ratio_to_first?.interval()?;
        let residual = self.shares(first.totals()).zip(first.shares(first.totals())).map(|(own, first)| {
            let [predicted, measured] = [0, 1].map(|side| [0, 1].map(|part| own[side][part] - first[side][part]));
            minus(predicted, measured)
        });
        let is_predicted_tie = (predicted - 1.0).abs() <= ORDER_ERROR_SHARE;
        let error = predicted * ORDER_ERROR_SHARE;
        let verdict = if is_predicted_tie && self.measured.verdict == Some(Measured::Tie) {
            TimeVerdict::Tie
        } else if low <= predicted + error && predicted - error <= high {
            TimeVerdict::Ok
        } else {
            TimeResidual::verdict(residual)
        };
        Some((verdict, residual))
    }
}

fn minus(predicted: [f64; 2], measured: [f64; 2]) -> TimeResidual {
    TimeResidual { user_share: predicted[0] - measured[0], kernel_share: predicted[1] - measured[1] }
}

/// The predicted ratio of a design to the first.
pub(super) fn predicted_ratio(time: &Time, first: &Time) -> f64 {
    time.ns_per_call.median / first.ns_per_call.median
}

/// A time without the replay's own work. The interval holds both uncertainties.
pub(super) fn without_own(time: &Estimate, own: &Estimate) -> Estimate {
    let [own_low, own_high] = ends(own);
    Estimate {
        median: time.median - own.median,
        low: time.low.map(|low| low - own_high),
        high: time.high.map(|high| high - own_low),
    }
}

/// The ratio of two times without the replay's own work, from their ratio with it, which was measured in rounds. `None`
/// if the first design takes no longer than that work.
pub(super) fn ratio_without_own(ratio: &Estimate, first_ns: f64, own: &Estimate) -> Option<Estimate> {
    let less = |ratio: f64, own: f64| (ratio * first_ns - own) / (first_ns - own);
    let [own_low, own_high] = ends(own);
    if first_ns <= own_high {
        return None;
    }
    let both = |ratio: f64| [less(ratio, own_low), less(ratio, own_high)];
    Some(Estimate {
        median: less(ratio.median, own.median),
        low: ratio.low.map(|low| both(low).into_iter().fold(f64::INFINITY, f64::min)),
        high: ratio.high.map(|high| both(high).into_iter().fold(f64::NEG_INFINITY, f64::max)),
    })
}

/// The ends of an interval; twice the median without one.
fn ends(estimate: &Estimate) -> [f64; 2] {
    estimate.interval().map_or([estimate.median; 2], |(low, high)| [low, high])
}

#[cfg(test)]
mod tests {
    use hksim_cost_model::MedianRange;
    use hksim_time_model::Parts;

    use super::*;

    fn estimate(median: f64, low: f64, high: f64) -> Estimate {
        Estimate { median, low: Some(low), high: Some(high) }
    }

    fn predicted(instructions: f64, kernel: f64, first_ns: f64) -> PredictedTime {
        let ns = instructions + kernel;
        PredictedTime {
            time: Time {
                ns_per_call: MedianRange { low: ns * 0.6, median: ns, high: ns * 1.4 },
                parts_ns_per_call: Parts { instructions, memory: 0.0, kernel },
                total_s: MedianRange { low: 0.0, median: 0.0, high: 0.0 },
                profile: String::new(),
                valid_for: String::new(),
            },
            ratio_to_first: Some(ns / first_ns),
            faults: 0,
        }
    }

    /// Times with intervals of 1 % on both sides.
    fn measured(user: f64, kernel: f64, first_ns: f64) -> MeasuredTime {
        let within = |ns: f64| estimate(ns, ns * 0.99, ns * 1.01);
        let ratio = (user + kernel) / first_ns;
        let same_again = estimate(1.0, 0.99, 1.01);
        MeasuredTime {
            ns_per_call: within(user + kernel),
            user_ns_per_call: Some(within(user)),
            system_ns_per_call: Some(within(kernel)),
            ratio_to_first: Some(within(ratio)),
            verdict: Measured::of(&within(ratio), &same_again),
            faults: None,
            rounds: 9,
        }
    }

    #[test]
    fn the_part_that_moves_the_ratio_is_named() {
        let first = (predicted(20.0, 20.0, 40.0), measured(22.0, 18.0, 40.0));
        let judged = |one: PredictedTime, other: MeasuredTime| {
            let first = Pair { predicted: &first.0, measured: &first.1 };
            Pair { predicted: &one, measured: &other }.judge_ratio(&first).expect("an interval")
        };
        // 1.5 is predicted, and 1.5, 1.25 and 1.75 are measured.
        assert_eq!(judged(predicted(40.0, 20.0, 40.0), measured(42.0, 18.0, 40.0)).0, TimeVerdict::Ok);
        let (verdict, residual) = judged(predicted(40.0, 20.0, 40.0), measured(32.0, 18.0, 40.0));
        let residual = residual.expect("parts");
        assert_eq!(verdict, TimeVerdict::OffUser);
        assert!((residual.user_share - 0.25).abs() < 1e-9 && residual.kernel_share.abs() < 1e-9, "{residual:?}");
        let (verdict, residual) = judged(predicted(20.0, 40.0, 40.0), measured(22.0, 48.0, 40.0));
        let residual = residual.expect("parts");
        assert_eq!(verdict, TimeVerdict::OffKernel);
        assert!((residual.kernel_share + 0.25).abs() < 1e-9 && residual.user_share.abs() < 1e-9, "{residual:?}");
        // Without samples of the processor's mode.
        let unsplit = MeasuredTime { user_ns_per_call: None, ..measured(22.0, 48.0, 40.0) };
        assert_eq!(judged(predicted(20.0, 40.0, 40.0), unsplit), (TimeVerdict::Off, None));
        // Neither separates 1.01 from 1; a measured tie is not one if the prediction separates.
        assert_eq!(judged(predicted(20.4, 20.0, 40.0), measured(22.2, 18.0, 40.0)).0, TimeVerdict::Tie);
        assert_eq!(judged(predicted(24.0, 20.0, 40.0), measured(22.2, 18.0, 40.0)).0, TimeVerdict::OffUser);
    }

    #[test]
    fn the_first_design_is_judged_by_its_time() {
        let judged = |one: PredictedTime, other: MeasuredTime| {
            Pair { predicted: &one, measured: &other }.judge_level().expect("an interval")
        };
        assert_eq!(judged(predicted(20.0, 20.0, 40.0), measured(22.0, 8.0, 30.0)).0, TimeVerdict::Ok);
        let (verdict, residual) = judged(predicted(20.0, 20.0, 40.0), measured(19.0, 61.0, 80.0));
        assert_eq!(verdict, TimeVerdict::OffKernel);
        let residual = residual.expect("parts");
        assert!((residual.user_share - 1.0 / 80.0).abs() < 1e-9 && (residual.kernel_share + 41.0 / 80.0).abs() < 1e-9);
    }

    #[test]
    fn ratios_without_an_interval_are_not_judged() {
        let (one, short) = (predicted(20.0, 20.0, 40.0), measured(20.0, 20.0, 40.0));
        let alone = Some(Estimate { median: 1.0, low: None, high: None });
        let short = MeasuredTime { ratio_to_first: alone, ..short };
        let pair = Pair { predicted: &one, measured: &short };
        assert_eq!(pair.judge_ratio(&pair), None);
    }

    #[test]
    fn the_replays_own_work_is_taken_away_from_both_times() {
        // 30 and 20 ns, of which 10 are the replay's: 20 to 10.
        let own = estimate(10.0, 9.0, 11.0);
        let ratio = ratio_without_own(&estimate(1.5, 1.45, 1.55), 20.0, &own).expect("more than the replay");
        assert!((ratio.median - 2.0).abs() < 1e-12);
        // The ends, by hand: (29 - 9) / (20 - 9) and (31 - 11) / (20 - 11).
        assert_eq!(ratio.low, Some(20.0 / 11.0));
        assert_eq!(ratio.high, Some(20.0 / 9.0));
        assert_eq!(ratio_without_own(&estimate(1.5, 1.45, 1.55), 11.0, &own), None);
        assert_eq!(without_own(&estimate(30.0, 29.0, 31.0), &own), estimate(20.0, 18.0, 22.0));
    }
}
