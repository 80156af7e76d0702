//! Turns counts into system time, using a machine's profile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use hksim_cost_model::{Calls, FirstTouch, KernelWork, Locality, Price, Profile, Work};
use hksim_policy::vocabulary::Prefault;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::{SmallMemory, SystemEffort, SystemRuns, WarmUp};
use hksim_sim::SimReport;
use hksim_sim::kernel_work::FaultSpacing;
use serde::{Deserialize, Serialize};

/// The precision and the time limit of a measurement.
pub const EFFORT: SystemEffort = SystemEffort { error_share: 0.05, time_max: Duration::from_secs(10) };

/// A measured time with a larger standard error is not judged.
const ERROR_SHARE_MAX: f64 = 0.1;
/// A time is not judged if the profile has fewer rounds: they do not show the dispersion.
const ROUNDS_MIN: u32 = 8;
/// A time is not judged if the range is wider. Uncounted effects make every range at least 1.48 wide.
const FACTOR_MAX: f64 = 1.5;
/// A design with less memory in huge pages or folios is not judged, unless most of its memory is in single pages.
/// Whether such memory stays in a cache depends on the program and its neighbours: faults of cached huge pages took 42
/// to 200 us.
const LARGE_BYTES_MIN: u64 = 32 << 20;
/// A time is not judged if the machine is faster or slower than at calibration by this factor: it may be another
/// machine.
const DRIFT_MAX: f64 = 2.0;

/// The flag of commands that print system time.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Also predict system time, as a range, from a profile of `hksim calibrate`
    #[arg(long, value_name = "FILE.toml", hide_short_help = true)]
    profile: Option<PathBuf>,
}

impl ProfileArgs {
    /// The file of the profile.
    pub fn path(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// The profile, if one is given.
    ///
    /// # Errors
    /// The file is not a profile.
    pub fn read(&self) -> Result<Option<Profile>> {
        Ok(self.profile.as_deref().map(|path: &Path| Profile::read(path)).transpose()?)
    }
}

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

/// The warm-up of a replay: it touches and returns as much memory as the design will use.
pub fn warm_up(report: &SimReport) -> WarmUp {
    let (huge_bytes, pool_bytes) = (report.huge_pages_peak * HUGE_PAGE_BYTES, report.hugetlb_bytes_peak);
    let small = match folio_bytes(report) {
        Some(bytes) => SmallMemory::Folios(bytes),
        None if report.page_operations.operations.populated_pages > report.installs.by_kind.base_4k / 2 => {
            SmallMemory::Populated
        }
        None => SmallMemory::Pages,
    };
    WarmUp { small_bytes: small_bytes(report), small, huge_bytes, pool_bytes }
}

/// Peak memory outside huge pages and the hugetlb pool.
fn small_bytes(report: &SimReport) -> u64 {
    report.rss_bytes_peak.saturating_sub(report.huge_pages_peak * HUGE_PAGE_BYTES + report.hugetlb_bytes_peak)
}

/// The work of a warm-up. Its parts run one after the other, so each has the caches to itself.
fn warm_up_work(up: WarmUp) -> Work {
    let locality = Locality::default();
    let pages = up.small_bytes / PAGE_BYTES;
    let (small, number) = match up.small {
        SmallMemory::Pages => (FirstTouch::Pages(locality), pages),
        SmallMemory::Populated => (FirstTouch::Populated, pages),
        SmallMemory::Folios(bytes) => (FirstTouch::Folios(bytes, locality), up.small_bytes.div_ceil(bytes)),
    };
    let mut work = Work::default();
    work.add_first_touches(small, number, up.small_bytes);
    work.add_first_touches(FirstTouch::Huge(locality), up.huge_bytes / HUGE_PAGE_BYTES, up.huge_bytes);
    work.add_first_touches(FirstTouch::Pool(locality), up.pool_bytes / HUGE_PAGE_BYTES, up.pool_bytes);
    work
}

/// Bytes of a folio larger than a page and smaller than a huge page; for several sizes, the power of two below their
/// mean.
fn folio_bytes(report: &SimReport) -> Option<u64> {
    let pages = report.page_operations.operations.mthp_pages.checked_div(report.installs.by_kind.mthp)?;
    Some(PAGE_BYTES << pages.max(1).ilog2())
}

impl SystemTime {
    /// The system time of a prediction.
    pub fn predicted(report: &SimReport, profile: &Profile) -> SystemTime {
        let (machine, kernel) = (profile.machine.clone(), profile.kernel.clone());
        let (price, skipped) = match work(report).price(profile) {
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

    /// Adds a measurement. Each of its runs began with this warm-up.
    pub fn beside(self, runs: &SystemRuns, up: WarmUp, profile: &Profile) -> SystemTime {
        let Some(price) = self.price else { return self };
        let (Some(measured_s), Some(measured_error_share)) = (runs.system_s(), runs.error_share()) else {
            return self.not_measured("noise: no sample was taken in the kernel".into());
        };
        let due_s = match warm_up_work(up).processor_s(profile) {
            Ok(due_s) => due_s,
            Err(why) => return self.not_measured(why.to_string()),
        };
        let Some(drift) = runs.warm_up_s().filter(|_| due_s > 0.0).map(|warm_up_s| warm_up_s / due_s) else {
            return self.not_measured("noise: the warm-up's memory was not available, or costs nothing".into());
        };
        let measured = Measured { measured_s, measured_error_share, measured_runs: runs.0.len(), drift };
        let skipped = match profile.kernel_share {
            Some(_) if profile.rounds_min() < ROUNDS_MIN => Some(format!(
                "noise: a cost was timed in only {} rounds, fewer than {ROUNDS_MIN}; calibrate for longer",
                profile.rounds_min()
            )),
            Some(_) => noise(&price, &measured).or_else(|| few_large(up)),
            None => Some(
                "the profile counts all time as kernel time, because it was calibrated without permission to sample processor time"
                    .into(),
            ),
        };
        let inside = skipped.is_none().then(|| price.contains(measured_s / drift));
        SystemTime { measured: Some(measured), inside, skipped, ..self }
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
fn speed(drift: f64) -> String {
    let (times, word) = if drift < 1.0 { (1.0 / drift, "faster") } else { (drift, "slower") };
    format!("the machine {times:.2} times {word} than at calibration")
}

/// Why a measured time is too noisy to judge, if it is.
fn noise(price: &Price, measured: &Measured) -> Option<String> {
    if !(1.0 / DRIFT_MAX..=DRIFT_MAX).contains(&measured.drift) {
        return Some(format!("noise: {}", speed(measured.drift)));
    }
    if measured.measured_error_share > ERROR_SHARE_MAX {
        return Some(format!(
            "noise: the run is too short, its standard error is {:.0} %",
            measured.measured_error_share * 100.0
        ));
    }
    (price.factor() > FACTOR_MAX)
        .then(|| format!("noise: the range is a factor of {:.3} wide; calibrate on a quieter machine", price.factor()))
}

/// The reason not to judge a time if most memory is in large pages but there is little of it.
fn few_large(up: WarmUp) -> Option<String> {
    let folios = if matches!(up.small, SmallMemory::Folios(_)) { up.small_bytes } else { 0 };
    let large = folios + up.huge_bytes + up.pool_bytes;
    let is_most = large > up.small_bytes - folios;
    (is_most && large < LARGE_BYTES_MIN).then(|| {
        let [large, least] = [large, LARGE_BYTES_MIN].map(|bytes| bytes >> 20);
        format!("noise: only {large} MiB in huge pages or folios (below {least}), which may or may not stay in a cache")
    })
}

/// A simulation, with its system time if a profile was given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Priced {
    /// The simulation.
    #[serde(flatten)]
    pub report: SimReport,
    /// The system time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
}

impl Priced {
    /// Adds the system time to a report.
    pub fn new(report: SimReport, profile: Option<&Profile>) -> Priced {
        let system_time = profile.map(|profile| SystemTime::predicted(&report, profile));
        Priced { report, system_time }
    }
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

/// The locality of first touches of huge pages.
fn huge_locality(gaps: &FaultSpacing) -> Locality {
    let Locality { filling, apart, .. } = locality(gaps, 0, HUGE_EVENTS);
    let (all, far) = gaps.iter().fold((0.0, 0.0), |(all, far), (events, installs)| {
        (all + installs as f64, far + installs as f64 * position(events, FAR_EVENTS))
    });
    let far = far / f64::max(all, 1.0);
    // Far touches were also counted as apart.
    Locality { filling, apart: (apart - far).max(0.0), far }
}

/// The locality of first touches, from the number of events between them. Within one event, the program writes an
/// object from end to end. `by_hand` counts the touches that write one byte of each page in turn.
fn locality(gaps: &FaultSpacing, by_hand: u64, ends: [u64; 2]) -> Locality {
    let mut locality = Locality::default();
    let mut all = 0.0;
    for (events, installs) in gaps.iter() {
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

/// The kernel's work for a simulated design.
fn work(report: &SimReport) -> Work {
    let (kinds, done, calls) = (report.installs.by_kind, &report.page_operations, report.os_calls);
    let by_hand = if report.policy.prefault == Prefault::Touch { report.installs.by_reason.prefault } else { 0 };
    Work::from(&KernelWork {
        installs: [kinds.base_4k, kinds.mthp, kinds.thp, kinds.hugetlb, kinds.zero, kinds.cow],
        operations: &done.operations,
        refaults: &done.refaults,
        small: locality(&done.fault_spacing, by_hand, FAULT_EVENTS),
        huge: huge_locality(&done.huge_fault_spacing),
        footprint_bytes: report.rss_bytes_peak,
        pmd_splits: report.pmd_splits,
        reuses: report.forks.iter().map(|fork| fork.cow_reuses).sum(),
        calls: Calls { map: calls.mmap, unmap: calls.munmap, advise: calls.madvise },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_in_large_pages_is_not_judged() {
        const MIB: u64 = 1 << 20;
        let judged = |small_bytes, small, huge_bytes, pool_bytes| {
            few_large(WarmUp { small_bytes, small, huge_bytes, pool_bytes }).is_none()
        };
        let folios = SmallMemory::Folios(64 << 10);
        assert!(judged(MIB, SmallMemory::Pages, 0, 0) && judged(15 * MIB, SmallMemory::Pages, 14 * MIB, 0));
        assert!(!judged(MIB, SmallMemory::Pages, 14 * MIB, 0) && judged(MIB, SmallMemory::Pages, 32 * MIB, 0));
        assert!(!judged(MIB, SmallMemory::Populated, 0, 30 * MIB) && judged(0, SmallMemory::Pages, 16 * MIB, 16 * MIB));
        assert!(!judged(20 * MIB, folios, 0, 0) && judged(32 * MIB, folios, 0, 0));
    }
}
