//! System time: a predicted range, and the measured time beside it.

use serde::{Deserialize, Serialize};

use crate::price::{Locality, Price, Work, neighbours};
use crate::profile::{BETWEEN, Profile};

/// Seconds, as text in milliseconds.
pub fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

/// What the two times of a design with huge pages mean; `None` if none of the times has new huge pages.
pub fn states<'a>(mut times: impl Iterator<Item = &'a SystemTime>) -> Option<String> {
    let is_two = times.any(|time| time.cold.is_some() || time.cold_skipped.is_some());
    is_two.then(|| {
        "system time holds for memory that the machine has (warm); cold: the host of a virtual machine has to back new huge \
         pages first, since they were free for some seconds or never used"
            .to_string()
    })
}

/// A range as text.
fn range(Price { low_s, median_s, high_s }: Price) -> String {
    let [low, median, high] = [low_s, median_s, high_s].map(milliseconds);
    format!("{low} to {high} (median {median})")
}

/// The system time of a design on a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemTime {
    /// The predicted range; absent if the profile lacks a cost.
    #[serde(flatten)]
    pub price: Option<Price>,
    /// The range if the host of a virtual machine has to back new huge pages first; absent without such pages, or if
    /// that was not measured.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<Price>,
    /// Why that was not measured.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold_skipped: Option<String>,
    /// The profile's processor.
    pub machine: String,
    /// The profile's kernel.
    pub kernel_release: String,
    /// The measured time, if it was measured.
    #[serde(flatten)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Whether the measured time is inside the range; absent if it is not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<bool>,
    /// Why it is not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// A measured system time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds per run.
    pub measured_s: f64,
    /// The relative standard error.
    pub measured_error_share: f64,
    /// Runs.
    pub measured_runs: usize,
    /// How much slower the machine was than at calibration: the duration of the warm-up before each run divided by its
    /// duration according to the profile (1: equally fast). The measured time is divided by it before the comparison.
    pub drift: f64,
}

impl SystemTime {
    /// The system time of some work on the machine of a profile.
    pub fn of(work: &Work, profile: &Profile) -> SystemTime {
        let (machine, kernel) = (profile.machine.clone(), profile.kernel.clone());
        let (price, skipped) = match work.price(profile) {
            Ok(price) if price.median_s < 0.0 => (None, Some("the profile's costs contradict each other".into())),
            Ok(price) => (Some(price), None),
            Err(why) => (None, Some(why.to_string())),
        };
        let (cold, cold_skipped) = match work.cold_price(profile) {
            Ok(cold) => (cold, None),
            Err(why) => (None, skipped.is_none().then(|| why.to_string())),
        };
        SystemTime { price, cold, cold_skipped, machine, kernel_release: kernel, measured: None, inside: None, skipped }
    }

    /// The median of the range in seconds, as a sort key; infinite if there is no range.
    pub fn rank_s(&self) -> f64 {
        self.price.map_or(f64::INFINITY, |price| price.median_s)
    }

    /// Notes why the time was not measured.
    pub fn not_measured(self, why: String) -> SystemTime {
        SystemTime { skipped: Some(why), ..self }
    }

    /// The system time as a cell of a table: the median, then the ends, then the median with cold memory.
    pub fn cell(&self) -> String {
        let Some(Price { low_s, median_s, high_s }) = self.price else { return "skipped".into() };
        let cold = self.cold.map_or(String::new(), |cold| format!(", cold {}", milliseconds(cold.median_s)));
        format!("{} ({:.2}-{:.2}){cold}", milliseconds(median_s), low_s * 1e3, high_s * 1e3)
    }

    /// The system time as text, in one line.
    pub fn text(&self) -> String {
        let Some(price) = self.price else {
            return format!("skipped: {}", self.skipped.as_deref().unwrap_or_default());
        };
        let measured = self.measured.map_or(String::new(), |measured| {
            let error = measured.measured_error_share * 100.0;
            let [time, then] = [measured.measured_s, measured.measured_s / measured.drift].map(milliseconds);
            format!(
                "; measured {time}, {then} at the speed of the calibration (standard error {error:.0} %, {})",
                speed(measured.drift)
            )
        });
        let verdict = match (&self.skipped, self.inside) {
            (Some(why), _) => format!(", skipped: {why}"),
            (None, Some(true)) => ", inside".into(),
            (None, Some(false)) => ", OUTSIDE".into(),
            (None, None) => String::new(),
        };
        let cold = match (self.cold, &self.cold_skipped) {
            (Some(cold), _) => format!("; cold {}", range(cold)),
            (None, Some(why)) => format!("; cold not known: {why}"),
            (None, None) => String::new(),
        };
        format!("{}{measured}{verdict}{cold}", range(price))
    }
}

/// The speed of the machine, as text.
pub fn speed(drift: f64) -> String {
    let (times, word) = if drift < 1.0 { (1.0 / drift, "faster") } else { (drift, "slower") };
    format!("the machine {times:.2} times {word} than at calibration")
}

/// Range of the number of events between two first touches. At the lower end the kernel's fault path is still in the
/// caches; at the upper end it no longer is.
const FAULT_EVENTS: [u64; 2] = [32, 512];
/// The same range for memory that becomes a huge page. The outer cache keeps the data it needs for longer.
const HUGE_EVENTS: [u64; 2] = [256, 8192];

/// The same range for far touches of huge pages; at its upper end no cache holds anything that the fault needs.
const FAR_EVENTS: [u64; 2] = [8192, 1 << 17];

/// The position of a number of events between `near` and `far` on a logarithmic scale: 0 to 1.
fn position(events: u64, [near, far]: [u64; 2]) -> f64 {
    (f64::from((events.max(near) / near).ilog2()) / f64::from((far / near).ilog2())).min(1.0)
}

/// The locality of first touches of huge pages, as of [`locality`].
pub fn huge_locality(gaps: impl Iterator<Item = (u64, u64)> + Clone) -> Locality {
    let Locality { filling, apart, .. } = spread(gaps.clone(), 0, |events| position(events, HUGE_EVENTS));
    let (all, far) = gaps.clone().fold((0.0, 0.0), |(all, far), (events, installs)| {
        (all + installs as f64, far + installs as f64 * position(events, FAR_EVENTS))
    });
    let far = far / f64::max(all, 1.0);
    // Far touches were also counted as apart.
    Locality { filling, apart: (apart - far).max(0.0), far, ..Locality::default() }
}

/// The locality of first touches of pages, from the number of events between them and the touches with that number.
/// `by_hand` counts the touches that write one byte of each page in turn.
pub fn locality(gaps: impl Iterator<Item = (u64, u64)>, by_hand: u64) -> Locality {
    spread(gaps, by_hand, |events| position(events, FAULT_EVENTS))
}

/// The same for a program whose time is predicted, in user mode and in the kernel. `between` has the bytes that were accessed
/// between two touches, and the touches with that amount, of those that did not come in the event of the one before.
pub fn program_locality(
    gaps: impl Iterator<Item = (u64, u64)> + Clone,
    by_hand: u64,
    between: impl Iterator<Item = (u64, u64)>,
) -> Locality {
    let mut locality = spread(gaps.clone(), by_hand, |_| 0.0);
    let all = gaps.map(|(_, installs)| installs).sum::<u64>().max(1) as f64;
    for (bytes, touches) in between {
        for (at, share) in neighbours(&BETWEEN.map(|(bytes, _)| bytes), bytes) {
            locality.between[at] += share * touches as f64 / all;
        }
    }
    locality
}

/// The locality of first touches, from the number of events between them. Within one event, the program writes an
/// object from end to end. `by_hand` counts the touches that write one byte of each page in turn. `apart` is the share by
/// which touches after so many events are apart.
fn spread(gaps: impl Iterator<Item = (u64, u64)>, by_hand: u64, apart: impl Fn(u64) -> f64) -> Locality {
    let mut locality = Locality::default();
    let mut all = 0.0;
    for (events, installs) in gaps {
        all += installs as f64;
        if events == 0 {
            locality.filling += installs.saturating_sub(by_hand) as f64;
        } else {
            locality.apart += installs as f64 * apart(events);
        }
    }
    let all = f64::max(all, 1.0);
    Locality { filling: locality.filling / all, apart: locality.apart / all, ..Locality::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_after_other_work_are_shared_between_the_amounts_around_it() {
        // Of 20 touches, 8 were in the event of the one before, and 10 have a known distance.
        let gaps = [(0, 8), (4, 12)];
        let between = [(1 << 10, 1), (32 << 10, 2), (64 << 10, 4), (1 << 30, 3)];
        let found = program_locality(gaps.into_iter(), 3, between.into_iter());
        assert_eq!((found.filling, found.apart, found.far), (0.25, 0.0, 0.0));
        let expected = [0.05, 0.1 + 0.1, 0.1, 0.0, 0.0, 0.15];
        let error = found.between.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
        assert!(error.fold(0.0, f64::max) < 1e-9, "{:?}", found.between);
    }
}
