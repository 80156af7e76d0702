//! Counts made into system time, by a machine's profile.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_cost::{Price, Profile, Work};
use hksim_drive::Huge;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_sim::SimReport;
use serde::Serialize;

/// Processor time below which the kernel does not tell user and system time apart: it looks at each tick, up to 10 ms, which of
/// them it is.
const TOLD_APART_S: f64 = 0.1;

/// The flag of commands that print system time.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Print system time too, as a range, by a profile of `hksim calibrate`
    #[arg(long, value_name = "FILE.toml")]
    profile: Option<PathBuf>,
}

impl ProfileArgs {
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
    /// Predicted.
    #[serde(flatten)]
    pub price: Price,
    /// The profile's processor.
    pub machine: String,
    /// The profile's kernel.
    pub kernel: String,
    /// Measured, where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_s: Option<f64>,
    /// Whether the measured time lay inside; absent where the run was too short to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<bool>,
}

impl SystemTime {
    /// Of a prediction.
    ///
    /// # Errors
    /// The profile lacks a cost.
    pub fn predicted(report: &SimReport, profile: &Profile) -> Result<SystemTime> {
        let (machine, kernel) = (profile.machine.clone(), profile.kernel.clone());
        Ok(SystemTime { price: work(report).price(profile)?, machine, kernel, measured_s: None, inside: None })
    }

    /// Beside a measurement: user and system seconds.
    pub fn beside(self, user_s: Option<f64>, sys_s: Option<f64>) -> SystemTime {
        let told = sys_s.zip(user_s).filter(|(sys_s, user_s)| sys_s + user_s >= TOLD_APART_S);
        SystemTime { measured_s: sys_s, inside: told.map(|(sys_s, _)| self.price.contains(sys_s)), ..self }
    }

    /// For people.
    pub fn text(&self) -> String {
        let Price { low_s, median_s, high_s } = self.price;
        let [low, median, high] = [low_s, median_s, high_s].map(milliseconds);
        let measured = match (self.measured_s, self.inside) {
            (None, _) => String::new(),
            (Some(seconds), None) => format!("; measured {}, too short a run to tell", milliseconds(seconds)),
            (Some(seconds), Some(inside)) => {
                format!("; measured {}, {}", milliseconds(seconds), if inside { "inside" } else { "OUTSIDE" })
            }
        };
        format!("system time {low} to {high} (median {median}){measured}")
    }
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
    ///
    /// # Errors
    /// The profile lacks a cost.
    pub fn new(report: SimReport, profile: Option<&Profile>) -> Result<Priced> {
        let system_time = profile.map(|profile| SystemTime::predicted(&report, profile)).transpose()?;
        Ok(Priced { report, system_time })
    }
}

/// What a simulated design made the kernel do. What was given back is what was installed and is not there at the end.
fn work(report: &SimReport) -> Work {
    let kinds = report.installs.by_kind;
    let order = report.policy.huge.mthp_order().unwrap_or(0);
    let larger = kinds.thp + kinds.hugetlb + kinds.mthp;
    let populated = report.installs.by_reason.populated;
    let populated_pages = populated.saturating_sub(larger).min(kinds.base_4k);
    let huge_end = report.timeline.last().map_or(0, |sample| sample.huge_pages);
    let hugetlb = matches!(report.policy.huge, Huge::Hugetlb | Huge::HugetlbPlain) && kinds.hugetlb > 0;
    let small_end_bytes = report.rss_bytes_end.saturating_sub(huge_end * HUGE_PAGE_BYTES);
    let small_end_bytes = if hugetlb { small_end_bytes % HUGE_PAGE_BYTES } else { small_end_bytes };
    let small_pages = kinds.base_4k + kinds.cow + (kinds.mthp << order);
    let calls = report.os_calls;
    Work {
        faulted_pages: kinds.base_4k - populated_pages,
        populated_pages,
        mid_folios: kinds.mthp,
        mid_bytes: PAGE_BYTES << order,
        huge_pages_new: kinds.thp.min(report.huge_pages_peak),
        huge_pages_again: kinds.thp.saturating_sub(report.huge_pages_peak),
        hugetlb_pages: kinds.hugetlb,
        zero_pages: kinds.zero,
        zero_pages_written: kinds.cow,
        dropped_pages: small_pages.saturating_sub(small_end_bytes / PAGE_BYTES),
        dropped_huge_pages: kinds.thp.saturating_sub(huge_end + report.splits),
        splits: report.splits,
        mmap_calls: calls.mmap,
        munmap_calls: calls.munmap,
        madvise_calls: calls.madvise,
    }
}
