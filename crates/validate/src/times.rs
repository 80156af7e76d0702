//! Compares a predicted system time with a measured one.

use std::time::Duration;

use hksim_cost_model::system_time::speed;
use hksim_cost_model::{FirstTouch, Locality, Measured, Price, Profile, SystemTime, Work};
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::{SmallMemory, SystemEffort, SystemRuns, WarmUp};
use hksim_sim::SimReport;

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

/// Adds a measurement. Each of its runs began with this warm-up.
pub fn beside(time: SystemTime, runs: &SystemRuns, up: WarmUp, profile: &Profile) -> SystemTime {
    let Some(price) = time.price else { return time };
    let (Some(measured_s), Some(measured_error_share)) = (runs.system_s(), runs.error_share()) else {
        return time.not_measured("noise: no sample was taken in the kernel".into());
    };
    let due_s = match warm_up_work(up).processor_s(profile) {
        Ok(due_s) => due_s,
        Err(why) => return time.not_measured(why.to_string()),
    };
    let Some(drift) = runs.warm_up_s().filter(|_| due_s > 0.0).map(|warm_up_s| warm_up_s / due_s) else {
        return time.not_measured("noise: the warm-up's memory was not available, or costs nothing".into());
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
    SystemTime { measured: Some(measured), inside, skipped, ..time }
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
