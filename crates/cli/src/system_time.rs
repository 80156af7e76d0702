//! Counts made into system time, by a machine's profile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use hksim_cost_model::{FirstTouch, Operation, Pace, Price, Profile, Work};
use hksim_policy::vocabulary::Prefault;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::{SmallMemory, SystemEffort, SystemRuns, WarmUp};
use hksim_sim::SimReport;
use hksim_sim::work::FaultSpacing;
use serde::Serialize;

/// How long a replay is measured.
pub const EFFORT: SystemEffort = SystemEffort { error_share: 0.05, time_max: Duration::from_secs(10) };

/// A measured time with a larger standard error is not judged.
const ERROR_SHARE_MAX: f64 = 0.1;
/// Nor is one by a profile of fewer rounds, which tell no dispersion.
const ROUNDS_MIN: u32 = 8;
/// Nor is a wider range. What is not counted makes each 1.48 wide at the least.
const FACTOR_MAX: f64 = 1.5;
/// Nor is a design that has less memory in huge pages or folios, unless most of it is in single pages: a cache holds it or does not,
/// by what the program and its neighbours do, and a huge page of a cached one took 42 to 200 us where this was measured.
const LARGE_BYTES_MIN: u64 = 32 << 20;
/// Nor is a run on a machine that is so much faster or slower than when it was calibrated that it may be another one.
const DRIFT_MAX: f64 = 2.0;

/// The flag of commands that print system time.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Print system time too, as a range, by a profile of `hksim calibrate`
    #[arg(long, value_name = "FILE.toml")]
    profile: Option<PathBuf>,
}

impl ProfileArgs {
    /// Its file.
    pub fn path(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// The profile, where one is named.
    ///
    /// # Errors
    /// A file that is none.
    pub fn read(&self) -> Result<Option<Profile>> {
        Ok(self.profile.as_deref().map(|path: &Path| Profile::read(path)).transpose()?)
    }
}

/// Seconds, for people.
pub fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

/// The system time of a design on a trace.
#[derive(Clone, Debug, Serialize)]
pub struct SystemTime {
    /// Predicted; absent where the profile lacks a cost.
    #[serde(flatten)]
    pub price: Option<Price>,
    /// The profile's processor.
    pub machine: String,
    /// The profile's kernel.
    pub kernel: String,
    /// Measured, where it was.
    #[serde(flatten)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Whether the measured time lay inside; absent where that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<bool>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// A measured system time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Seconds of a run.
    pub measured_s: f64,
    /// Its standard error, as a share of it.
    pub measured_error_share: f64,
    /// Runs.
    pub measured_runs: usize,
    /// How much slower the machine was than when it was calibrated: what the warm-up right before each run took, by what it should by
    /// the profile (1: as fast). The measured time divided by it is what is held against the range.
    pub drift: f64,
}

/// What a replay touches and gives back before it is measured: as much memory as the design will have.
pub fn warm_up(report: &SimReport) -> WarmUp {
    let (huge_bytes, pool_bytes) = (report.huge_pages_peak * HUGE_PAGE_BYTES, report.hugetlb_bytes_peak);
    let small = match folio_bytes(report) {
        Some(bytes) => SmallMemory::Folios(bytes),
        None if report.kernel_work.populated_pages > report.installs.by_kind.base_4k / 2 => SmallMemory::Populated,
        None => SmallMemory::Pages,
    };
    WarmUp { small_bytes: small_bytes(report), small, huge_bytes, pool_bytes }
}

/// Peak of memory in neither huge pages nor the pool's.
fn small_bytes(report: &SimReport) -> u64 {
    report.rss_bytes_peak.saturating_sub(report.huge_pages_peak * HUGE_PAGE_BYTES + report.hugetlb_bytes_peak)
}

/// What a warm-up has to do: each of its parts goes through the caches alone.
fn warm_up_work(up: WarmUp) -> Work {
    let pace = Pace::default();
    let pages = up.small_bytes / PAGE_BYTES;
    let (small, number) = match up.small {
        SmallMemory::Pages => (FirstTouch::Pages(pace), pages),
        SmallMemory::Populated => (FirstTouch::Populated, pages),
        SmallMemory::Folios(bytes) => (FirstTouch::Folios(bytes, pace), up.small_bytes.div_ceil(bytes)),
    };
    let mut work = Work::default();
    work.add_first_touches(small, number, up.small_bytes);
    work.add_first_touches(FirstTouch::Huge(pace), up.huge_bytes / HUGE_PAGE_BYTES, up.huge_bytes);
    work.add_first_touches(FirstTouch::Pool(pace), up.pool_bytes / HUGE_PAGE_BYTES, up.pool_bytes);
    work
}

/// Bytes of a folio between a page and a huge page; of several sizes, the power of two below their mean.
fn folio_bytes(report: &SimReport) -> Option<u64> {
    let pages = report.kernel_work.folio_pages.checked_div(report.installs.by_kind.mthp)?;
    Some(PAGE_BYTES << pages.max(1).ilog2())
}

impl SystemTime {
    /// Of a prediction.
    pub fn predicted(report: &SimReport, profile: &Profile) -> SystemTime {
        let (machine, kernel) = (profile.machine.clone(), profile.kernel.clone());
        let (price, skipped) = match work(report).price(profile) {
            Ok(price) if price.median_s < 0.0 => (None, Some("the profile's costs contradict each other".into())),
            Ok(price) => (Some(price), None),
            Err(why) => (None, Some(why.to_string())),
        };
        SystemTime { price, machine, kernel, measured: None, inside: None, skipped }
    }

    /// The middle of the range in seconds, for order: what has none is behind all others.
    pub fn rank_s(&self) -> f64 {
        self.price.map_or(f64::INFINITY, |price| price.median_s)
    }

    /// Not measured, for a reason.
    pub fn not_measured(self, why: String) -> SystemTime {
        SystemTime { skipped: Some(why), ..self }
    }

    /// Beside a measurement, whose runs each had this warm-up before.
    pub fn beside(self, runs: &SystemRuns, up: WarmUp, profile: &Profile) -> SystemTime {
        let Some(price) = self.price else { return self };
        let (Some(measured_s), Some(measured_error_share)) = (runs.system_s(), runs.error_share()) else {
            return self.not_measured("noise: no moment of it was found in the kernel".into());
        };
        let due_s = match warm_up_work(up).processor_s(profile) {
            Ok(due_s) => due_s,
            Err(why) => return self.not_measured(why.to_string()),
        };
        let Some(drift) = runs.warm_up_s().filter(|_| due_s > 0.0).map(|warm_up_s| warm_up_s / due_s) else {
            return self.not_measured("noise: the memory to warm up with could not be had, or costs nothing".into());
        };
        let measured = Measured { measured_s, measured_error_share, measured_runs: runs.0.len(), drift };
        let skipped = match profile.kernel_share {
            Some(_) if profile.rounds_min() < ROUNDS_MIN => Some(format!(
                "noise: some cost was timed in {} rounds only (of {ROUNDS_MIN}); calibrate for longer",
                profile.rounds_min()
            )),
            Some(_) => noise(&price, &measured).or_else(|| few_large(up)),
            None => Some(
                "the profile counts all time as the kernel's: it was made where nobody may look at processor time"
                    .into(),
            ),
        };
        let inside = skipped.is_none().then(|| price.contains(measured_s / drift));
        SystemTime { measured: Some(measured), inside, skipped, ..self }
    }

    /// For people.
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

/// How fast the machine was, for people.
fn speed(drift: f64) -> String {
    let (times, word) = if drift < 1.0 { (1.0 / drift, "faster") } else { (drift, "slower") };
    format!("the machine {times:.2} times {word} than when it was calibrated")
}

/// Why a measured time is not judged, if it is not.
fn noise(price: &Price, measured: &Measured) -> Option<String> {
    if !(1.0 / DRIFT_MAX..=DRIFT_MAX).contains(&measured.drift) {
        return Some(format!("noise: {}", speed(measured.drift)));
    }
    if measured.measured_error_share > ERROR_SHARE_MAX {
        return Some(format!(
            "noise: too short a run, its standard error is {:.0} %",
            measured.measured_error_share * 100.0
        ));
    }
    (price.factor() > FACTOR_MAX)
        .then(|| format!("noise: the range is a factor of {:.3} wide; calibrate on a quieter machine", price.factor()))
}

/// Why the time of little memory in large pages is not judged.
fn few_large(up: WarmUp) -> Option<String> {
    let folios = if matches!(up.small, SmallMemory::Folios(_)) { up.small_bytes } else { 0 };
    let large = folios + up.huge_bytes + up.pool_bytes;
    let is_most = large > up.small_bytes - folios;
    (is_most && large < LARGE_BYTES_MIN).then(|| {
        let [large, least] = [large, LARGE_BYTES_MIN].map(|bytes| bytes >> 20);
        format!("noise: {large} MiB in huge pages or folios (below {least}), which a cache may hold or not")
    })
}

/// A simulation, and its system time where a profile of costs was named.
#[derive(Clone, Debug, Serialize)]
pub struct Priced {
    /// The simulation.
    #[serde(flatten)]
    pub report: SimReport,
    /// The time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
}

impl Priced {
    /// Prices a report.
    pub fn new(report: SimReport, profile: Option<&Profile>) -> Priced {
        let system_time = profile.map(|profile| SystemTime::predicted(&report, profile));
        Priced { report, system_time }
    }
}

/// Events between two first touches with which the kernel's way of a fault is still in the caches, and with which it is not.
const FAULT_EVENTS: [u64; 2] = [32, 512];
/// The same of memory to be made a huge page, which the outer cache keeps for longer.
const HUGE_EVENTS: [u64; 2] = [256, 8192];

/// The same with which nothing that a huge page needs is in any cache.
const FAR_EVENTS: [u64; 2] = [8192, 1 << 17];

/// How far a number of events lies on the way from one to another, by the logarithm: 0 to 1.
fn way(events: u64, [near, far]: [u64; 2]) -> f64 {
    (f64::from((events.max(near) / near).ilog2()) / f64::from((far / near).ilog2())).min(1.0)
}

/// What the program does between first touches of huge pages.
fn huge_pace(gaps: &FaultSpacing) -> Pace {
    let Pace { filling, apart, .. } = pace(gaps, 0, HUGE_EVENTS);
    let (all, far) = gaps.iter().fold((0.0, 0.0), |(all, far), (events, installs)| {
        (all + installs as f64, far + installs as f64 * way(events, FAR_EVENTS))
    });
    let far = far / f64::max(all, 1.0);
    // What is far is apart, too.
    Pace { filling, apart: (apart - far).max(0.0), far }
}

/// What the program does between first touches, by the events between them. In one event it writes an object from end to end.
/// `by_hand` of them write a byte of each page in turn.
fn pace(gaps: &FaultSpacing, by_hand: u64, ends: [u64; 2]) -> Pace {
    let mut pace = Pace::default();
    let mut all = 0.0;
    for (events, installs) in gaps.iter() {
        all += installs as f64;
        if events == 0 {
            pace.filling += installs.saturating_sub(by_hand) as f64;
        } else {
            pace.apart += installs as f64 * way(events, ends);
        }
    }
    let all = f64::max(all, 1.0);
    Pace { filling: pace.filling / all, apart: pace.apart / all, far: 0.0 }
}

/// What a simulated design made the kernel do. Memory that the process had before costs what as much costs as was given back with it.
fn work(report: &SimReport) -> Work {
    let (kinds, done, calls) = (report.installs.by_kind, &report.kernel_work, report.os_calls);
    let footprint = report.rss_bytes_peak;
    let mut work = Work::default();
    let by_hand = if report.policy.prefault == Prefault::Touch { report.installs.by_reason.prefault } else { 0 };
    let huge_pace = huge_pace(&done.huge_gaps);
    let pace = pace(&done.gaps, by_hand, FAULT_EVENTS);

    let collapsed = done.collapsed_blocks;
    let huge = kinds.thp.saturating_sub(collapsed);
    let small = kinds.base_4k.saturating_sub(done.populated_pages);
    let of = &done.refaults;
    let folios = folio_bytes(report).map(|bytes| (FirstTouch::Folios(bytes, pace), kinds.mthp, &of.folios));
    for (touch, number, refaults) in [
        (FirstTouch::Huge(huge_pace), huge, &of.huge),
        (FirstTouch::Populated, done.populated_pages, &of.populated),
        (FirstTouch::Pool(huge_pace), kinds.hugetlb, &of.pool),
    ]
    .into_iter()
    .chain(folios)
    {
        work.add_first_touches(touch, number.saturating_sub(refaults.total()), footprint);
        refaults.iter().for_each(|(bytes, number)| work.add_first_touches(touch, number, bytes));
    }
    work.add_first_touches(FirstTouch::Pages(pace), small.saturating_sub(of.pages.total()), footprint);
    of.pages.iter().for_each(|(bytes, number)| work.add_refaults(number, pace, bytes));
    work.add_collapses(collapsed, done.collapsed_pages);

    for (operation, number) in [
        (Operation::HugetlbDrop, done.unmapped_hugetlb),
        (Operation::ZeroReadFault, kinds.zero),
        (Operation::WriteAfterZero, kinds.cow.saturating_sub(report.installs.by_reason.copied_after_fork)),
        (Operation::PageTable, done.page_tables),
        (Operation::DontneedPage, done.dontneed_pages),
        (Operation::DontneedHuge, done.dontneed_huge),
        (Operation::FreePage, done.freed_pages.saturating_sub(done.freed_again_pages)),
        (Operation::FreePageAgain, done.freed_again_pages),
        (Operation::FreeHuge, done.freed_huge.saturating_sub(done.freed_again_huge)),
        (Operation::FreeHugeAgain, done.freed_again_huge),
        (Operation::MunmapPage, done.unmapped_pages),
        (Operation::MunmapHuge, done.unmapped_huge),
        (Operation::MoveTable, done.moved_tables),
        (Operation::MoveHuge, done.moved_huge),
        (Operation::SplitHuge, report.splits - report.forks.iter().map(|fork| fork.split_huge).sum::<u64>()),
        (Operation::MmapCall, calls.mmap),
        (Operation::MunmapCall, calls.munmap),
        (Operation::MadviseCall, calls.madvise),
    ] {
        work.add(operation, number);
    }
    for fork in &report.forks {
        work.add(Operation::ForkCall, 1);
        work.add(Operation::ForkPage, fork.shared_pages);
        work.add(Operation::SplitAfterFork, fork.split_huge);
        work.add(Operation::CopyAfterFork, fork.copies - fork.split_huge);
        work.add(Operation::ReuseAfterFork, fork.reuses);
    }
    work
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
