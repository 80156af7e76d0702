//! System time: a predicted range, and the measured time beside it.

use serde::{Deserialize, Serialize};

use crate::price::{Locality, Price, Work};
use crate::profile::Profile;

/// Seconds, as text in milliseconds.
pub fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

/// A range as a cell of a table: the median, then the ends.
pub fn range_cell(price: Option<Price>) -> String {
    let Some(Price { low_s, median_s, high_s }) = price else { return "skipped".into() };
    format!("{} ({:.2}-{:.2})", milliseconds(median_s), low_s * 1e3, high_s * 1e3)
}

/// The system time of a design on a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemTime {
    /// The predicted range; absent if the profile lacks a cost.
    #[serde(flatten)]
    pub price: Option<Price>,
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
        SystemTime { price, machine, kernel_release: kernel, measured: None, inside: None, skipped }
    }

    /// The median of the range in seconds, as a sort key; infinite if there is no range.
    pub fn rank_s(&self) -> f64 {
        self.price.map_or(f64::INFINITY, |price| price.median_s)
    }

    /// Notes why the time was not measured.
    pub fn not_measured(self, why: String) -> SystemTime {
        SystemTime { skipped: Some(why), ..self }
    }

    /// The system time as text.
    pub fn text(&self) -> String {
        let Some(Price { low_s, median_s, high_s }) = self.price else {
            return format!("system time skipped: {}", self.skipped.as_deref().unwrap_or_default());
        };
        let [low, median, high] = [low_s, median_s, high_s].map(milliseconds);
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
        format!("system time {low} to {high} (median {median}){measured}{verdict}")
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
    let Locality { filling, apart, .. } = spread(gaps.clone(), 0, HUGE_EVENTS);
    let (all, far) = gaps.clone().fold((0.0, 0.0), |(all, far), (events, installs)| {
        (all + installs as f64, far + installs as f64 * position(events, FAR_EVENTS))
    });
    let far = far / f64::max(all, 1.0);
    // Far touches were also counted as apart.
    Locality { filling, apart: (apart - far).max(0.0), far }
}

/// The locality of first touches of pages, from the number of events between them and the touches with that number.
/// `by_hand` counts the touches that write one byte of each page in turn.
pub fn locality(gaps: impl Iterator<Item = (u64, u64)>, by_hand: u64) -> Locality {
    spread(gaps, by_hand, FAULT_EVENTS)
}

/// The locality of first touches, from the number of events between them. Within one event, the program writes an
/// object from end to end. `by_hand` counts the touches that write one byte of each page in turn.
fn spread(gaps: impl Iterator<Item = (u64, u64)>, by_hand: u64, ends: [u64; 2]) -> Locality {
    let mut locality = Locality::default();
    let mut all = 0.0;
    for (events, installs) in gaps {
        all += installs as f64;
        if events == 0 {
            locality.filling += installs.saturating_sub(by_hand) as f64;
        } else {
            locality.apart += installs as f64 * position(events, ends);
        }
    }
    let all = f64::max(all, 1.0);
    Locality { filling: locality.filling / all, apart: locality.apart / all, far: 0.0 }
}
