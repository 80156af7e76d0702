//! One prediction with the recording that it is for: the exported form.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_call_sites::symbols::NamedSites;
use hksim_cost_model::{Profile, SystemTime};
use hksim_linux_mm::show_sizes;
use hksim_memory_trace::{Beginning, Machine, MemoryTraceError, Reader, Visibility};
use hksim_text::units::{bytes, of};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::family::{Family, FamilyError};
use crate::named_sites::{NamedAdviser, NamedSite};
use crate::placement::{place_again, places_alike, places_differently};
use crate::price::system_time;
use crate::regions::{MappedOutside, Outside};
use crate::report::Prediction;
use crate::setting::Setting;
use crate::simulate::{Detail, MemorySimulation, simulate};
use crate::steps::MemoryAtStart;
use crate::unseen_writes;

/// The recording of a result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordingLabel {
    /// The file.
    pub file: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The process.
    pub pid: u32,
    /// How the address space began.
    pub beginning: Beginning,
    /// What the recorder could see.
    pub visibility: Visibility,
    /// The machine of the recording.
    pub machine: Machine,
    /// Whether the recording has its end, and no events were lost.
    pub complete: bool,
    /// Whether it has its end.
    #[serde(skip)]
    pub has_end: bool,
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// Forked children whose recordings are not next to the file.
    pub children_missing: u64,
    /// Recordings of programs that other processes of the same run executed, if there are any: they share a memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs_apart: Option<u64>,
    /// Recorded faults in modelled memory, with huge pages off.
    pub traps_recorded: u64,
    /// Calls that can change memory in ways that are not recorded, by name. `None`: unknown, in a part of a recording.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unrecorded_calls: BTreeMap<String, Option<u64>>,
    /// Calls with an advice that the model does not know, by `MADV_*` number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "numbered")]
    pub advice_unmodelled: BTreeMap<u32, u64>,
    /// Calls of prctl after which the recorded process could have huge pages, although the recorder had switched them
    /// off.
    pub thp_enabled: u64,
    /// What was there when the recording began in the middle of the process; absent if it began by exec or fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_start: Option<MemoryAtStart>,
}

/// Numbers as names of fields: within a flattened result, serde has them as text.
fn numbered<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u32, u64>, D::Error> {
    let named = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let number = |name: String| name.parse().map_err(serde::de::Error::custom);
    named.into_iter().map(|(name, calls)| Ok((number(name)?, calls))).collect()
}

/// Where the addresses of mappings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// The recording.
    Recorded,
    /// The rules of a kernel that places mappings differently from the recorded one.
    Modelled,
}

/// The allocator of a replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AllocatorLabel {
    /// Its name with its settings, as on the command line.
    pub name: String,
    /// The preloaded library.
    pub library: Option<PathBuf>,
    /// The environment variables of its settings.
    pub environment: BTreeMap<String, String>,
    /// The trace.
    pub trace: PathBuf,
}

/// The memory of a replay after some events of its trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterEvents {
    /// Events done.
    pub event: u64,
    /// The mark of the program after which this is; absent at other events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Requested bytes of live objects.
    pub live_bytes: u64,
    /// Resident bytes of the allocator's memory, hugetlb included.
    pub rss_bytes: u64,
    /// Transparent huge pages mapped.
    pub huge_pages: u64,
}

/// A prediction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryRow {
    /// The recording.
    pub recording: RecordingLabel,
    /// Where the mappings are.
    pub addresses: Addresses,
    /// The allocator and the trace that was replayed on it, if the recording is of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<AllocatorLabel>,
    /// The memory of a replay at the marks of its trace, or at evenly spaced points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_events: Vec<AfterEvents>,
    /// The prediction.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Recorded faults in memory that is not modelled, by kind. They are the same under all settings.
    pub traps_outside: BTreeMap<Outside, u64>,
    /// What was mapped of that memory, by kind.
    #[serde(default)]
    pub mapped_outside: BTreeMap<Outside, MappedOutside>,
    /// What the memory of each call site costs, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<NamedSite>>,
    /// Who asked for huge pages, if the costs of call sites were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advisers: Option<Vec<NamedAdviser>>,
    /// The kernel's time for modelled memory, if a profile was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
}

/// Predictions, and what the user should know about them.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// One row for each setting.
    pub rows: Vec<MemoryRow>,
    /// What the recording lacks, which names were not found.
    pub notes: Vec<String>,
}

/// Why nothing can be predicted for a recording.
#[derive(Debug, Error)]
pub enum PredictError {
    /// The recording, or one of its relatives, cannot be read or written.
    #[error(transparent)]
    Trace(#[from] MemoryTraceError),
    /// The recordings cannot be simulated.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// Call sites were asked for, and there are none.
    #[error("{}: --by site: no call stacks were recorded; record with --memory --stacks", .0.display())]
    NoStacks(PathBuf),
    /// There is no place for a copy of the recording.
    #[error("cannot create a temporary directory; set TMPDIR")]
    Folder(#[source] io::Error),
}

/// Simulates a recording under each setting; `with_sites`: also what the memory of each call site costs.
///
/// # Errors
/// The recording cannot be read.
pub fn predict(path: &Path, settings: &[Setting], with_sites: bool, detail: Detail) -> Result<Predicted, PredictError> {
    predict_at(path, settings, &[], with_sites, detail)
}

/// The same with samples at these moments, in ascending order: times since the start of the recording.
///
/// # Errors
/// The recording cannot be read.
pub fn predict_at(
    path: &Path,
    settings: &[Setting],
    moments: &[u64],
    with_sites: bool,
    detail: Detail,
) -> Result<Predicted, PredictError> {
    let moments: Arc<[u64]> = moments.into();
    let header = Reader::open(path)?.header().clone();
    if with_sites && header.stack_depth.is_none() {
        return Err(PredictError::NoStacks(path.to_path_buf()));
    }
    let mut notes = Vec::new();
    let recorded_on = header.machine;
    let is_attached = header.beginning.is_attached();
    // Where its mappings are depends on what happened before.
    let is_elsewhere = |setting: &Setting| !is_attached && places_differently(&recorded_on, &setting.kernel.rules);
    let mut rows: Vec<Option<MemoryRow>> = settings.iter().map(|_| None).collect();
    let mut simulate_at =
        |path: &Path, chosen: &[usize], addresses, notes: &mut Vec<String>| -> Result<(), PredictError> {
            let plain: Vec<_> = chosen.iter().map(|&index| settings[index].clone()).collect();
            let mut result = simulate(Family::open(path)?.with_moments(Arc::clone(&moments)), &plain, detail)?;
            unseen_writes::complete(path, &plain, &mut result.predictions)?;
            for (&index, row) in chosen.iter().zip(rows_of(path, result, addresses, with_sites, notes)) {
                rows[index] = Some(row);
            }
            Ok(())
        };
    let (elsewhere, here): (Vec<usize>, Vec<usize>) =
        (0..settings.len()).partition(|&index| is_elsewhere(&settings[index]));
    if !here.is_empty() {
        simulate_at(path, &here, Addresses::Recorded, &mut notes)?;
    }
    let mut elsewhere = elsewhere;
    while let Some(&first) = elsewhere.first() {
        // Kernels that place alike share one copy of the recording.
        let rules = |index: usize| &settings[index].kernel.rules;
        let (alike, others) = elsewhere.iter().partition(|&&index| places_alike(rules(index), rules(first)));
        elsewhere = others;
        let folder = tempfile::tempdir().map_err(PredictError::Folder)?;
        let placed = folder.path().join("placed.hkm");
        if Family::open(path)?.members() > 1 {
            notes.push(format!(
                "{}: forked processes keep their recorded addresses; Linux {} would place mappings elsewhere",
                path.display(),
                settings[first].kernel.rules.version.word()
            ));
            simulate_at(path, &alike, Addresses::Recorded, &mut notes)?;
        } else {
            let aligned = place_again(path, &settings[first].kernel, &placed)?;
            let words = || {
                format!(
                    "{}: the program aligned memory within {}; where Linux {} places them, it is aligned again",
                    path.display(),
                    of(aligned, "mapping"),
                    settings[first].kernel.rules.version.word()
                )
            };
            notes.extend((aligned > 0).then(words));
            simulate_at(&placed, &alike, Addresses::Modelled, &mut notes)?;
        }
    }
    Ok(named(path, rows.into_iter().flatten().collect(), notes))
}

/// The rows, named by their recording, with what it lacks.
fn named(path: &Path, mut rows: Vec<MemoryRow>, mut notes: Vec<String>) -> Predicted {
    for row in &mut rows {
        row.recording.file = path.display().to_string();
    }
    if let Some(MemoryRow { recording, .. }) = rows.first() {
        notes.extend(recording.gaps().iter().map(|gap| format!("{}: {gap}", recording.file)));
    }
    Predicted { rows, notes }
}

fn rows_of(
    path: &Path,
    result: MemorySimulation,
    addresses: Addresses,
    with_sites: bool,
    notes: &mut Vec<String>,
) -> Vec<MemoryRow> {
    let recording = label(path, &result);
    let MemorySimulation { predictions, traps_outside, mapped_outside, sites, .. } = result;
    let mut names = sites.as_ref().filter(|_| with_sites).map(NamedSites::new);
    let mut named = |prediction: &Prediction| {
        let (names, sites) = (names.as_mut()?, prediction.sites.as_ref()?);
        let sites: Vec<_> = sites.iter().map(|site| NamedSite::of(names, site)).collect();
        let advisers: Vec<_> = prediction.advisers.iter().map(|adviser| NamedAdviser::of(names, *adviser)).collect();
        Some((sites, advisers))
    };
    let row = |prediction| {
        let (sites, advisers) = named(&prediction).unzip();
        MemoryRow {
            sites,
            advisers,
            recording: recording.clone(),
            addresses,
            allocator: None,
            over_events: Vec::new(),
            prediction,
            system_time: None,
            traps_outside: traps_outside.clone(),
            mapped_outside: mapped_outside.clone(),
        }
    };
    let rows = predictions.into_iter().map(row).collect();
    notes.extend(names.iter().flat_map(NamedSites::notes));
    rows
}

fn label(path: &Path, result: &MemorySimulation) -> RecordingLabel {
    let header = result.header.clone();
    let footer = result.footer.clone();
    RecordingLabel {
        file: path.display().to_string(),
        command: header.command,
        pid: header.pid,
        beginning: header.beginning,
        visibility: header.visibility,
        machine: header.machine,
        complete: footer.is_some() && result.lost_events == 0,
        has_end: footer.is_some(),
        lost_events: result.lost_events,
        children_missing: result.children_missing,
        programs_apart: Some(result.programs_apart).filter(|&programs| programs > 0),
        traps_recorded: result.traps_recorded,
        unrecorded_calls: footer.map(|footer| footer.unrecorded_calls).unwrap_or_default(),
        advice_unmodelled: result.advice_unmodelled.clone(),
        thp_enabled: result.thp_enabled,
        at_start: result.at_start,
    }
}

/// What lost events mean for every figure of a recording; `None` without any.
pub fn losses(lost_events: u64) -> Option<String> {
    let words = || format!("the recorder lost {}; figures are too small", of(lost_events, "event"));
    (lost_events > 0).then(words)
}

impl RecordingLabel {
    /// What the recording lacks, and what is not simulated.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        if !self.has_end {
            gaps.push("the end is missing; continuing with the events before it".to_string());
        }
        gaps.extend(losses(self.lost_events));
        if self.children_missing > 0 {
            gaps.push(format!(
                "{} of forked children missing; pages shared with them are simulated as if they touched none; keep the \
                 files of a recording together",
                of(self.children_missing, "recording")
            ));
        }
        let not_simulated = |calls: Option<u64>, name: &str| match calls {
            Some(calls) => format!("{} of {name} are not simulated", of(calls, "call")),
            None => format!("calls of {name}, an unknown number in this part, are not simulated"),
        };
        gaps.extend(self.unrecorded_calls.iter().map(|(call, &calls)| not_simulated(calls, call)));
        let advice = self.advice_unmodelled.iter();
        gaps.extend(advice.map(|(advice, &calls)| not_simulated(Some(calls), &format!("madvise({advice})"))));
        gaps.extend(self.middle());
        if self.thp_enabled > 0 && self.has_unseen_touches() {
            gaps.push(
                "the program switched huge pages on for itself (prctl), so touches inside a huge page were not seen; \
                 record with /sys/kernel/mm/transparent_hugepage/enabled set to never"
                    .to_string(),
            );
        }
        gaps
    }

    /// What a recording that began in the middle of the process does not know.
    fn middle(&self) -> Option<String> {
        let MemoryAtStart { resident_bytes, huge_bytes } = self.at_start?;
        let start = format!(
            "the recording began in the middle of the process: {} of anonymous memory were resident, {} of them in huge \
             pages, and keep their state in every prediction until a recorded operation changes them; other figures count \
             what followed",
            bytes(resident_bytes),
            bytes(huge_bytes)
        );
        let unseen = "; huge pages were on, so touches inside a huge page were not seen: figures for settings with fewer \
                      huge pages are too small (`record --memory -p PID --no-huge-pages` switches them off for the \
                      process)";
        let lazy = match self.beginning {
            Beginning::Attached { lazy_unknown_bytes, .. } if lazy_unknown_bytes > 0 => format!(
                "; of {} it is unknown whether MADV_FREE had given them up, so a memory limit may reclaim as much more or less",
                bytes(lazy_unknown_bytes)
            ),
            _ => String::new(),
        };
        Some(start + if self.has_unseen_touches() { unseen } else { "" } + &lazy)
    }

    /// Whether touches inside huge pages are missing, because the program switched huge pages on for itself, or because the
    /// recording began in the middle and left them on. Another recording, in another mode, then has other touches.
    pub fn has_unseen_touches(&self) -> bool {
        // Without a mode that gives huge pages, the program's own choice had no effect.
        let has_mode = self.machine.thp_mode.as_deref() != Some("never");
        let is_on = match self.at_start {
            Some(_) => !self.machine.thp_disabled,
            None => self.thp_enabled > 0 && self.machine.thp_disabled,
        };
        is_on && has_mode
    }
}

impl MemoryRow {
    /// The row with its system time, if there is a profile.
    pub fn priced(self, profile: Option<&Profile>) -> Self {
        let system_time = profile.map(|profile| system_time(&self.prediction, profile));
        Self { system_time, ..self }
    }

    /// The row for CSV.
    pub fn csv(&self) -> Map<String, Value> {
        [self.csv_inputs(), self.csv_figures(), self.csv_ends()].into_iter().filter_map(object).flatten().collect()
    }

    /// The columns of what was simulated.
    fn csv_inputs(&self) -> Value {
        let Prediction { setting, .. } = &self.prediction;
        json!({
            "file": self.recording.file,
            "command": self.recording.command.join(" "),
            "allocator": self.allocator.as_ref().map(|allocator| allocator.name.clone()),
            "kernel": setting.kernel.rules.version.word(),
            "thp": setting.kernel.thp.global.word(),
            "mthp": show_sizes(&setting.kernel.thp.sizes),
            "addresses": self.addresses,
            "zero_page": setting.kernel.use_zero_page,
            "defrag": setting.kernel.defrag,
            "khugepaged": setting.kernel.khugepaged.work.word(),
            "max_ptes_none": setting.kernel.khugepaged.max_ptes_none,
            "pages_to_scan": setting.kernel.khugepaged.pages_to_scan,
            "scan_sleep_ms": setting.kernel.khugepaged.scan_sleep_ms,
            "advise": setting.advise.word(),
            "thp_prctl": setting.thp_prctl.word(),
            "madv_free": setting.madv_free.word(),
        })
    }

    /// The columns of the figures that every row has.
    fn csv_figures(&self) -> Value {
        let Prediction { installs, .. } = &self.prediction;
        let prediction = &self.prediction;
        json!({
            "installs": installs.total,
            "installs_base_4k": installs.by_kind.base_4k,
            "installs_mthp": installs.by_kind.mthp,
            "installs_thp": installs.by_kind.thp,
            "installs_hugetlb": installs.by_kind.hugetlb,
            "installs_zero": installs.by_kind.zero,
            "installs_cow": installs.by_kind.cow,
            "faults": prediction.faults,
            "traps": prediction.traps,
            "traps_recorded": self.recording.traps_recorded,
            "traps_outside": self.traps_outside.values().sum::<u64>(),
            "stack_traps": prediction.stack.map_or(0, |stack| stack.traps),
            "rss_bytes_peak": prediction.rss_bytes_peak,
            "rss_bytes_end": prediction.rss_bytes_end,
            "lazy_free_bytes_end_max": prediction.lazy_free_bytes_end_max,
            "hugetlb_bytes_peak": prediction.hugetlb_bytes_peak,
            "hugetlb_maps_failed": prediction.hugetlb_maps_failed,
            "huge_pages_peak": prediction.huge_pages_peak,
            "huge_pages_end": prediction.huge_pages_end,
            "pmd_splits": prediction.pmd_splits,
            "vmas_peak": prediction.vmas_peak,
            "page_table_bytes_peak": prediction.page_table_bytes_peak,
            "system_time_median_s": self.system_time.as_ref().and_then(|time| time.price).map(|price| price.median_s),
            "lost_events": self.recording.lost_events,
        })
    }

    /// The columns about khugepaged's work, a memory limit, and ranges.
    fn csv_ends(&self) -> Value {
        let Prediction { setting, khugepaged_settled, khugepaged_at_end, memory_limit, unseen_writes, .. } =
            &self.prediction;
        let most = self.prediction.at_most();
        let least_limit_bytes_min = unseen_writes.and_then(|unseen| unseen.least_limit_bytes_min);
        let limit = memory_limit.as_ref();
        json!({
            "rss_bytes_settled": khugepaged_settled.map(|settled| settled.rss_bytes),
            "huge_pages_settled": khugepaged_settled.map(|settled| settled.huge_pages),
            "rss_bytes_end_khugepaged_max": khugepaged_at_end.map(|most| most.rss_bytes_max),
            "huge_pages_end_khugepaged_max": khugepaged_at_end.map(|most| most.huge_pages_max),
            "traps_max": most.traps,
            "rss_bytes_peak_max": most.rss_bytes_peak,
            "rss_bytes_end_max": most.rss_bytes_end,
            "memory_limit_bytes": setting.kernel.memory_limit_bytes,
            "least_limit_bytes": limit.and_then(|limit| limit.least_limit_bytes),
            "least_limit_bytes_min": limit.and_then(|limit| least_limit_bytes_min.or(limit.least_limit_bytes)),
            "memory_limit_outcome": limit.map(|limit| limit.outcome),
            "memory_limit_event": limit.and_then(|limit| limit.event),
            "charged_bytes_peak": limit.map(|limit| limit.pressure.charged_bytes_peak),
        })
    }
}

/// The fields of a JSON object.
fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}
