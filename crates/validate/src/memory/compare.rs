//! Compares a prediction with measured runs.

use std::path::Path;

use hksim_linux_mm::PMD_PAGES;
use hksim_memory_sim::{Detail, MemoryRow, Prediction, RegionPrediction, RunFile, RunFiles, Setting, predict};
use hksim_memory_trace::Faults;
use serde::{Deserialize, Serialize};

use super::blind::Blind;
use super::causes::{more_faults, pinned, stale_entries};
use super::figures::{Bounds, Figures, outside};
use super::measure::{Program, Run};
use super::pages::differing_pages;
use super::place::relocated;
use super::repetition::differs;
use super::stacks::{self, StackFigures};
use crate::error::ValidateError;
use crate::listener::Listener;
use crate::verdict::{Class, Verdict};
use hksim_text::units::of;

/// Prediction and measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Predicted figures, one per measured run: with random addresses each run has its own.
    pub predicted: Vec<Figures>,
    /// Measured figures.
    pub measured: Vec<Figures>,
    /// Predicted figures of further recordings, if the program has several outcomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recordings: Vec<Figures>,
    /// The stacks that grow of each run, which the other figures leave out; empty if faults in system calls are not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<StackFigures>,
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
pub(crate) struct Judged {
    pub class: Class,
    pub verdict: Verdict,
    pub reason: Option<String>,
    pub comparison: Comparison,
}

impl Judged {
    /// The judgement if so many allocations of huge pages failed during the runs. The prediction has a huge page wherever the
    /// kernel may give one, so a difference says nothing then. The failures are counted for the whole machine.
    fn despite_failures(self, failures: u64) -> Self {
        if failures == 0 || (self.class, self.verdict) == (Class::Exact, Verdict::Ok) {
            return self;
        }
        let why = format!(
            "{} on this machine found no contiguous memory for a huge page during the runs (thp_fault_fallback)",
            of(failures, "allocation")
        );
        let verdict = if self.verdict == Verdict::Failed { Verdict::Skipped } else { self.verdict };
        let reason = Some(self.reason.map_or(why.clone(), |reason| format!("{why}; {reason}")));
        Self { verdict, reason, ..self }
    }
}

/// What is compared: a recording, and the recordings of its run.
pub(crate) struct Subject<'a> {
    pub recording: &'a RunFile,
    pub files: &'a RunFiles,
    pub program: &'a Program<'a>,
}

/// More runs and recordings before a program with several outcomes fails.
const FURTHER: u32 = 5;
/// How often runs are repeated for which the kernel lacked contiguous memory.
const REPEATS: u32 = 3;

/// Predicts each run at its own addresses, and compares. A program with several outcomes is run more often before it fails.
///
/// # Errors
/// A recording cannot be read or written, or the program cannot be run again.
pub(crate) fn compare(
    subject: &Subject<'_>,
    setting: &Setting,
    mut runs: Vec<Run>,
    folder: &Path,
) -> Result<Judged, ValidateError> {
    let sample = repeat_failures(subject, setting, &mut runs, folder)?;
    let judged = compare_runs(subject, setting, &mut runs, sample, folder)?;
    Ok(judged.despite_failures(runs.iter().map(|run| run.huge_page_failures).sum()))
}

/// If the figures differ, repeats the runs during which the kernel found no contiguous memory for a huge page.
fn repeat_failures(
    subject: &Subject<'_>,
    setting: &Setting,
    runs: &mut [Run],
    folder: &Path,
) -> Result<Sample, ValidateError> {
    let mut sample = Sample::new(subject, setting, runs, folder)?;
    for attempt in 0..REPEATS {
        if sample.comparison.holds() || runs.iter().all(|run| run.huge_page_failures == 0) {
            break;
        }
        for (number, run) in runs.iter_mut().enumerate().filter(|(_, run)| run.huge_page_failures > 0) {
            let again = subject.program.run(&folder.join(format!("repeated-{attempt}-{number}.hkm")))?;
            // Another disturbance would take the place of this one.
            if again.disturbed().is_none() {
                *run = again;
            }
        }
        sample = Sample::new(subject, setting, runs, folder)?;
    }
    Ok(sample)
}

fn compare_runs(
    subject: &Subject<'_>,
    setting: &Setting,
    runs: &mut Vec<Run>,
    mut sample: Sample,
    folder: &Path,
) -> Result<Judged, ValidateError> {
    let differs = match sample.comparison.holds() {
        true => None,
        false => match sample.mismatch.take() {
            Some(why) => Some(why),
            None if sample.has_unseen_touches => None,
            None => differs(subject, &sample.comparison, runs, folder)?,
        },
    };
    let judged = judge(subject, &sample, differs.clone(), &causes(subject, &sample, differs.is_some(), runs)?);
    if (judged.class, judged.verdict) != (Class::Statistical, Verdict::Failed) {
        return Ok(judged);
    }
    let mut recordings = Vec::new();
    for number in 0..FURTHER {
        runs.push(subject.program.run(&folder.join(format!("further-{number}.hkm")))?);
        let again = subject.program.record_again(&folder.join(format!("recording-{number}.hkm")))?;
        let Some(file) = subject.program.file_in(&again) else { continue };
        let rows = predicted(subject.program.listener, &file.path, setting, Detail::Figures)?;
        recordings.extend(rows.iter().map(|row| Figures::predicted(&row.prediction)));
    }
    if let Some(why) = runs.iter().find_map(Run::disturbed) {
        return Ok(Judged { reason: Some(why), verdict: Verdict::Skipped, ..judged });
    }
    let mut sample = Sample::new(subject, setting, runs, folder)?;
    sample.comparison.recordings = recordings;
    Ok(judge(subject, &sample, differs, &causes(subject, &sample, true, runs)?))
}

/// Predicts a recording under a setting, and passes notes about it on.
///
/// # Errors
/// The recording cannot be read.
pub(crate) fn predicted(
    listener: &dyn Listener,
    path: &Path,
    setting: &Setting,
    detail: Detail,
) -> Result<Vec<MemoryRow>, ValidateError> {
    let predicted = predict(path, std::slice::from_ref(setting), false, detail)?;
    predicted.notes.iter().for_each(|note| listener.warn(note));
    Ok(predicted.rows)
}

/// What explains a difference. `differs` says whether the program does not repeat itself.
fn causes(subject: &Subject<'_>, sample: &Sample, differs: bool, runs: &[Run]) -> Result<Vec<String>, ValidateError> {
    let Sample { comparison, predictions, gaps, .. } = sample;
    if comparison.holds() {
        return Ok(Vec::new());
    }
    let mut causes: Vec<String> = subject.program.other_environment().into_iter().collect();
    causes.extend(gaps.iter().cloned());
    causes.extend(sample.blind.first().map(Blind::text));
    if !differs {
        causes.extend(pinned(predictions, runs, subject.program)?);
    }
    causes.extend(more_faults(comparison));
    Ok(causes)
}

/// Measured runs with their predictions.
struct Sample {
    predictions: Vec<Prediction>,
    comparison: Comparison,
    /// How a run's calls differ from the recording's.
    mismatch: Option<String>,
    /// What the recording lacks.
    gaps: Vec<String>,
    /// Whether it lacks touches inside huge pages.
    has_unseen_touches: bool,
    /// What the runs do not show; empty if they show everything.
    blind: Vec<Blind>,
}

impl Sample {
    fn new(subject: &Subject<'_>, setting: &Setting, runs: &[Run], folder: &Path) -> Result<Self, ValidateError> {
        let Subject { recording, files, .. } = subject;
        let (mut predictions, mut gaps) = (Vec::new(), Vec::new());
        let (mut mismatch, mut has_unseen_touches) = (None, false);
        for (number, run) in runs.iter().enumerate() {
            // Also where the kernel gives the same addresses in each run: some allocators choose random ones.
            let copy = folder.join(format!("{number}-placed.processes"));
            let placed = match relocated(recording, files, &run.files, &copy)? {
                Ok(placed) => placed,
                Err(why) => {
                    mismatch.get_or_insert(why);
                    recording.path.clone()
                }
            };
            let mut rows = predicted(subject.program.listener, &placed, setting, Detail::Pages)?;
            let row = rows.pop().ok_or(ValidateError::NoPrediction)?;
            gaps = row.recording.gaps();
            has_unseen_touches = row.recording.has_unseen_touches();
            predictions.push(row.prediction);
        }
        // khugepaged's work at the exit changes the peak, and the stacks.
        let settles = subject.program.settles;
        let has_peak = !settles;
        let mut comparison = comparison(&predictions, runs, has_peak);
        if subject.program.faults() != Faults::UserOnly && !settles {
            let pairs = predictions.iter().zip(runs);
            comparison.stacks =
                pairs.filter_map(|(prediction, run)| StackFigures::of(prediction.stack.as_ref(), run)).collect();
        }
        let pairs = predictions.iter().zip(runs);
        let blind = pairs.map(|(prediction, run)| Blind::of(subject.program, prediction, run));
        let blind = blind.collect::<Result<Option<Vec<Blind>>, _>>()?.unwrap_or_default();
        Ok(Self { predictions, comparison, mismatch, gaps, has_unseen_touches, blind })
    }

    /// What may be predicted for each measured run.
    fn bounds(&self) -> Vec<Bounds> {
        let measured = self.comparison.measured.iter().enumerate();
        let widened = measured.map(|(number, measured)| match self.blind.get(number) {
            Some(blind) => blind.widened(measured.bounds()),
            None => measured.bounds(),
        });
        widened.collect()
    }

    /// Why the claim is bounded, if causes that are counted explain all differences.
    fn bounded(&self, subject: &Subject<'_>) -> Option<String> {
        let comparison = &self.comparison;
        if let Some(why) = stale_entries(subject, comparison, &self.predictions) {
            return Some(why);
        }
        if let Some(pages) = comparison.pages_of_zeros() {
            return Some(format!(
                "{} hold only zeros where a huge page was split; the kernel frees them, and contents are not recorded (R10)",
                of(pages, "page")
            ));
        }
        let bounds = self.bounds();
        let are_within = comparison.pairs().zip(&bounds).all(|((predicted, measured), bounds)| {
            bounds.hold(predicted) && predicted.huge_pages_end == measured.huge_pages_end
        });
        let has_pages = comparison.pages_differ.is_none_or(|pages| Blind::explain(&self.blind, pages));
        self.blind.first().filter(|_| are_within && has_pages).map(Blind::text)
    }
}

fn comparison(predictions: &[Prediction], runs: &[Run], has_peak: bool) -> Comparison {
    let predicted: Vec<Figures> = predictions.iter().map(Figures::predicted).collect();
    // The kernel counts pages of the hugetlb pool apart.
    let has_peak = has_peak && predictions.iter().all(|prediction| prediction.hugetlb_bytes_peak == 0);
    let measured: Vec<Figures> = runs.iter().map(|run| Figures::measured(run, has_peak)).collect();
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
        recordings: Vec::new(),
        stacks: Vec::new(),
    }
}

/// The claim is exact if the program repeats itself. Otherwise the prediction must be within the spread of the runs.
/// `differs` says how the program does not repeat itself, and `gaps` what is not simulated.
fn judge(subject: &Subject<'_>, sample: &Sample, differs: Option<String>, gaps: &[String]) -> Judged {
    let judged = judge_modelled(subject, sample, differs, gaps);
    let outside = stacks::outside(&sample.comparison.stacks);
    // Causes of a bounded claim also change the faults of stacks.
    if outside.is_empty() || judged.class == Class::Bounded {
        return judged;
    }
    let reasons: Vec<String> = judged.reason.into_iter().chain(outside).collect();
    Judged { verdict: Verdict::Failed, reason: Some(reasons.join("; ")), ..judged }
}

/// The same without stacks.
fn judge_modelled(subject: &Subject<'_>, sample: &Sample, differs: Option<String>, gaps: &[String]) -> Judged {
    let comparison = sample.comparison.clone();
    let exact = |verdict, reason| Judged { class: Class::Exact, verdict, reason, comparison: comparison.clone() };
    if comparison.holds() {
        let reason = comparison
            .pages_differ
            .is_none()
            .then(|| "page sets are not compared: only Linux 6.7 and newer can scan page tables".to_string());
        return exact(Verdict::Ok, reason);
    }
    if let Some(reason) = sample.bounded(subject) {
        return Judged { class: Class::Bounded, verdict: Verdict::Ok, reason: Some(reason), comparison };
    }
    let Some(differs) = differs else {
        let reason = match gaps.is_empty() {
            true => "the program repeats itself, but the prediction differs".to_string(),
            false => format!("the prediction differs; possible causes: {}", gaps.join("; ")),
        };
        return exact(Verdict::Failed, Some(format!("{reason}; {}", comparison.differences().join("; "))));
    };
    let outside = outside(&comparison.predicted, &comparison.recordings, &sample.bounds());
    let verdict = if outside.is_empty() { Verdict::Ok } else { Verdict::Failed };
    let mut reasons = vec![differs];
    if !comparison.recordings.is_empty() {
        reasons.push(format!(
            "compared over {} and {}",
            of(comparison.recordings.len() as u64 + 1, "recording"),
            of(comparison.measured.len() as u64, "run")
        ));
    }
    if !outside.is_empty() {
        reasons.push(format!("outside the spread of the runs: {}", outside.join(", ")));
        reasons.extend(gaps.iter().cloned());
    }
    Judged { class: Class::Statistical, verdict, reason: Some(reasons.join("; ")), comparison }
}

impl Comparison {
    /// Whether everything is as predicted.
    fn holds(&self) -> bool {
        let has_residual = self.residual > 0 || self.pages_differ.is_some_and(|pages| pages != [0, 0]);
        !has_residual && self.pairs().all(|(predicted, measured)| predicted.peak_holds(measured))
    }

    /// The predictions with their measurements.
    pub fn pairs(&self) -> impl Iterator<Item = (&Figures, &Figures)> {
        self.predicted.iter().zip(&self.measured)
    }

    /// The figures that differ in the first run in which any do, with all their digits.
    fn differences(&self) -> Vec<String> {
        let differs = |(predicted, measured): &(&Figures, &Figures)| {
            predicted.distance(measured) > 0 || !predicted.peak_holds(measured)
        };
        let Some((predicted, measured)) = self.pairs().find(differs) else {
            return vec!["other pages are present at the exit".to_string()];
        };
        predicted.differences(measured)
    }

    /// Pages of split huge pages that the measurement lacks, if this is the only difference.
    fn pages_of_zeros(&self) -> Option<u64> {
        let [ours, theirs] = self.pages_differ?;
        let same = self.pairs().all(|(predicted, measured)| {
            (predicted.traps, predicted.huge_pages_end) == (measured.traps, measured.huge_pages_end)
        });
        // A page of zeros is replaced by the zero page: present in both, in another state.
        (same && ours > 0 && ours <= self.pages_split && theirs <= ours && self.residual <= ours).then_some(ours)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_allocations_of_huge_pages_are_no_fault_of_the_prediction() {
        let judged = |class, verdict| Judged {
            class,
            verdict,
            reason: Some("they differ".to_string()),
            comparison: comparison(&[], &[], false),
        };
        let failed = judged(Class::Exact, Verdict::Failed).despite_failures(13);
        assert_eq!(failed.verdict, Verdict::Skipped);
        let reason = failed.reason.expect("a reason");
        assert!(reason.starts_with("13 allocations on this machine") && reason.ends_with("they differ"), "{reason}");
        assert_eq!(judged(Class::Exact, Verdict::Failed).despite_failures(0).verdict, Verdict::Failed);
        let statistical = judged(Class::Statistical, Verdict::Ok).despite_failures(1);
        assert_eq!(statistical.verdict, Verdict::Ok);
        assert!(statistical.reason.is_some_and(|reason| reason.starts_with("1 allocation on this machine")));
        let exact = judged(Class::Exact, Verdict::Ok).despite_failures(1);
        assert_eq!(exact.reason.as_deref(), Some("they differ"), "nothing differs");
    }
}
