//! Compares a prediction with measured runs.

use std::path::Path;

use anyhow::{Context, Result};
use hksim_linux_mm::PMD_PAGES;
use hksim_linux_probe::processor;
use hksim_memory_sim::{Detail, Prediction, RegionPrediction, RunFile, RunFiles};
use hksim_policy::HUGE_PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::causes::{more_faults, pinned};
use super::measure::{Program, Run};
use super::pages::differing_pages;
use super::place::relocated;
use super::repetition::differs;
use crate::memory::row::predict;
use crate::memory::settings::NamedSetting;
use crate::output::units::of;
use crate::validate::{Class, Verdict};

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
    /// Highest resident bytes of anonymous memory. The measured value is an estimate: the kernel has one peak for all
    /// memory.
    pub rss_bytes_peak: u64,
}

/// Prediction and measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Predicted figures, one per measured run: with random addresses each run has its own.
    pub predicted: Vec<Figures>,
    /// Measured figures.
    pub measured: Vec<Figures>,
    /// Sum of |prediction - measurement| over traps, huge pages and resident pages of all runs.
    pub residual: u64,
    /// Pages whose state at the exit is in the prediction only and in the measurement only, over all runs. `None` if
    /// the kernel cannot scan page tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_differ: Option<[u64; 2]>,
    /// Pages of huge pages that the prediction splits, over all runs. The kernel frees those that hold only zeros, but
    /// contents are not recorded.
    pub pages_split: u64,
    /// The first mapping with other traps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Difference>,
}

/// A mapping whose traps differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Its number, in order of creation.
    pub mapping: usize,
    /// What it is.
    #[serde(rename = "use")]
    pub usage: hksim_memory_sim::Use,
    /// Its first address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Predicted traps.
    pub traps_predicted: u64,
    /// Measured traps.
    pub traps_measured: u64,
}

/// The judgement of a row.
pub struct Judged {
    pub class: Class,
    pub verdict: Verdict,
    pub reason: Option<String>,
    pub comparison: Comparison,
}

/// What is compared: a recording, and the recordings of its run.
pub struct Subject<'a> {
    pub recording: &'a RunFile,
    pub files: &'a RunFiles,
    pub program: &'a Program,
}

/// Predicts each run at its own addresses, and compares.
///
/// # Errors
/// A recording cannot be read or written, or the program cannot be run again.
pub fn compare(subject: &Subject<'_>, named: &NamedSetting, runs: &[Run], folder: &Path) -> Result<Judged> {
    let Subject { recording, files, program } = subject;
    let (mut predictions, mut gaps) = (Vec::new(), Vec::new());
    let mut mismatch = None;
    for (number, run) in runs.iter().enumerate() {
        // Also where the kernel gives the same addresses in each run: some allocators choose random ones.
        let placed = match relocated(recording, files, &run.files, &folder.join(format!("{number}-placed.processes")))?
        {
            Ok(placed) => placed,
            Err(why) => {
                mismatch.get_or_insert(why);
                recording.path.clone()
            }
        };
        let mut rows = predict(&placed, std::slice::from_ref(named), None, Detail::Pages)?;
        let row = rows.pop().context("no prediction")?;
        gaps = row.recording.gaps();
        predictions.push(row.prediction);
    }
    let comparison = comparison(&predictions, runs);
    let differs = match comparison.is_zero() {
        true => None,
        false => match mismatch {
            Some(why) => Some(why),
            None => differs(subject, runs, folder)?,
        },
    };
    if !comparison.is_zero() {
        if differs.is_none() {
            gaps.extend(pinned(&predictions, runs, program)?);
        }
        gaps.extend(more_faults(subject, &comparison, &predictions));
    }
    // A replay reads its trace into memory of its own before it begins, which the process's peak includes.
    let has_peak = recording.header.input.is_none();
    Ok(judge(comparison, differs, has_peak, &gaps))
}

fn comparison(predictions: &[Prediction], runs: &[Run]) -> Comparison {
    let predicted: Vec<Figures> = predictions.iter().map(Figures::predicted).collect();
    let measured: Vec<Figures> = runs.iter().map(Figures::measured).collect();
    let pairs = predicted.iter().zip(&measured);
    let pages_differ = predictions.iter().zip(runs).try_fold([0; 2], |sum, (prediction, run)| {
        let present = run.snapshot.as_ref()?.present.as_ref()?;
        let [ours, theirs] = differing_pages(&prediction.pages, present);
        Some([sum[0] + ours, sum[1] + theirs])
    });
    let differences = predictions.iter().zip(runs);
    Comparison {
        residual: pairs.map(|(predicted, measured)| predicted.distance(measured)).sum(),
        pages_differ,
        pages_split: predictions.iter().map(|prediction| prediction.pmd_splits * PMD_PAGES).sum(),
        first_difference: differences.filter_map(|(prediction, run)| first_difference(&prediction.regions, run)).next(),
        predicted,
        measured,
    }
}

/// The claim is exact if the program repeats itself. Otherwise the prediction must be within the spread of the runs.
/// `differs` says how the program does not repeat itself, `has_peak` whether the measured peak is that of the same memory,
/// and `gaps` what is not simulated.
fn judge(comparison: Comparison, differs: Option<String>, has_peak: bool, gaps: &[String]) -> Judged {
    if comparison.is_zero() {
        let reason = comparison
            .pages_differ
            .is_none()
            .then(|| "page sets are not compared: only Linux 6.7 and newer can scan page tables".to_string());
        return Judged { class: Class::Exact, verdict: Verdict::Ok, reason, comparison };
    }
    if let Some(pages) = comparison.pages_of_zeros() {
        let reason = format!(
            "{} hold only zeros where a huge page was split; the kernel frees them, and contents are not recorded (R10)",
            of(pages, "page")
        );
        return Judged { class: Class::Bounded, verdict: Verdict::Ok, reason: Some(reason), comparison };
    }
    let Some(differs) = differs else {
        let reason = match gaps.is_empty() {
            true => {
                "the program repeats itself, but the prediction differs; see the first differing mapping".to_string()
            }
            false => format!("the prediction differs; possible causes: {}", gaps.join("; ")),
        };
        return Judged { class: Class::Exact, verdict: Verdict::Failed, reason: Some(reason), comparison };
    };
    let Comparison { predicted, measured, .. } = &comparison;
    let outside = [
        ("traps", spread(predicted, measured, 0, |figures| figures.traps)),
        ("peak RSS", !has_peak || spread(predicted, measured, peak_error_bytes(), |figures| figures.rss_bytes_peak)),
        ("RSS at the exit", spread(predicted, measured, 0, |figures| figures.rss_bytes_end)),
    ];
    let outside: Vec<&str> = outside.into_iter().filter(|(_, is_inside)| !is_inside).map(|(name, _)| name).collect();
    let verdict = if outside.is_empty() { Verdict::Ok } else { Verdict::Failed };
    let mut reasons = vec![differs];
    if !outside.is_empty() {
        reasons.push(format!("outside the spread of the runs: {}", outside.join(", ")));
        reasons.extend(gaps.iter().cloned());
    }
    Judged { class: Class::Statistical, verdict, reason: Some(reasons.join("; ")), comparison }
}

impl Comparison {
    fn is_zero(&self) -> bool {
        self.residual == 0 && self.pages_differ.is_none_or(|pages| pages == [0, 0])
    }

    /// Pages of split huge pages that the measurement lacks, if this is the only difference.
    fn pages_of_zeros(&self) -> Option<u64> {
        let [ours, theirs] = self.pages_differ?;
        let mut pairs = self.predicted.iter().zip(&self.measured);
        let same = pairs.all(|(predicted, measured)| {
            predicted.traps == measured.traps && predicted.huge_pages_end == measured.huge_pages_end
        });
        // A page of zeros is replaced by the zero page: present in both, in another state.
        (same && ours <= self.pages_split && theirs <= ours && self.residual <= ours).then_some(ours)
    }
}

/// How far `VmHWM` may be from the true peak. Since Linux 6.2 each processor collects up to 32 pages of anonymous memory
/// and of files before it adds them to the process's counters (`percpu_counter_batch`).
fn peak_error_bytes() -> u64 {
    const BATCH_PAGES: u64 = 32;
    const COUNTERS: u64 = 2;
    processor::online().len() as u64 * COUNTERS * BATCH_PAGES * hksim_policy::PAGE_BYTES
}

/// Whether the predicted values are within the measured spread, widened by itself, by the tolerance, or by the error of
/// the measurement.
fn spread(predicted: &[Figures], measured: &[Figures], error: u64, value: impl Fn(&Figures) -> u64) -> bool {
    let sorted = |figures: &[Figures]| {
        let mut values: Vec<u64> = figures.iter().map(&value).collect();
        values.sort_unstable();
        values
    };
    let (predicted, measured) = (sorted(predicted), sorted(measured));
    let (Some(&low), Some(&high)) = (measured.first(), measured.last()) else { return false };
    let median = measured[measured.len() / 2];
    let slack = ((high - low) as f64).max(median as f64 * TOLERANCE).max(error as f64);
    predicted.get(predicted.len() / 2).is_some_and(|&own| (own as f64 - median as f64).abs() <= slack)
}

impl Figures {
    fn predicted(prediction: &Prediction) -> Self {
        Self {
            traps: prediction.traps,
            rss_bytes_end: prediction.rss_bytes_end,
            huge_pages_end: prediction.huge_pages_end,
            rss_bytes_peak: prediction.rss_bytes_peak,
        }
    }

    fn measured(run: &Run) -> Self {
        let snapshot = run.snapshot.as_ref();
        Self {
            traps: run.traps,
            rss_bytes_end: snapshot.map_or(0, |snapshot| snapshot.rss_bytes()),
            huge_pages_end: snapshot.map_or(0, |snapshot| snapshot.huge_bytes() / HUGE_PAGE_BYTES),
            rss_bytes_peak: snapshot.map_or(0, |snapshot| snapshot.rss_bytes_peak()),
        }
    }

    fn distance(&self, other: &Self) -> u64 {
        self.traps.abs_diff(other.traps)
            + self.huge_pages_end.abs_diff(other.huge_pages_end)
            + self.rss_bytes_end.abs_diff(other.rss_bytes_end) / hksim_policy::PAGE_BYTES
    }
}

/// The first region whose traps differ.
fn first_difference(regions: &[RegionPrediction], run: &Run) -> Option<Difference> {
    let measured = |region: &RegionPrediction| run.traps_by_region.get(&region.number).copied().unwrap_or(0);
    let region = regions.iter().find(|region| region.traps != measured(region))?;
    Some(Difference {
        mapping: region.number,
        usage: region.region.usage,
        address: region.region.address,
        bytes: region.region.bytes,
        traps_predicted: region.traps,
        traps_measured: measured(region),
    })
}
