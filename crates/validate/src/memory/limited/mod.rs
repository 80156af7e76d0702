//! Memory limits: runs the program in a memory control group of its own, from before its exec, and compares whether it
//! survives, and the highest charge of the group, with the prediction.
//!
//! A prediction leaves out the kernel's own memory for a process. What that is here is found first, and each limit of a
//! group is larger by it. The program runs once without a limit, to see that it does here what it did when it was
//! recorded, and then several times under the limit.

mod judge;
mod kernel_memory;
mod kill_place;
mod peak;
mod run;

use std::collections::BTreeSet;
use std::path::Path;

use hksim_linux_mm::{KernelConfig, LimitOutcome, MemoryLimit};
use hksim_linux_probe::khugepaged::AdvisedMap;
use hksim_linux_probe::memory_group::MemoryGroup;
use hksim_linux_probe::{processor, sysfs};
use hksim_memory_sim::{Detail, Family, MemoryRow, Outside, RunFiles, Setting, predict};
use hksim_memory_trace::Reader;
use hksim_policy::PAGE_BYTES;
use hksim_text::units::{count, of};
use serde::{Deserialize, Serialize};

use self::judge::{Tried, judge};
use self::run::{Ran, Start};
use super::compare::Subject;
use super::{Options, Row};
use crate::error::ValidateError;
use crate::verdict::{Judged, Verdict};

pub use self::judge::words;
pub use self::kernel_memory::KernelMemory;
pub use self::kill_place::{Agreement, KillPlace};
pub use self::peak::PeakCharge;
pub use self::run::RunOutcome;

/// The kernel's memory for a process varies by this many pages between programs, and the least limit with it.
const VARIES_PAGES: u64 = 3;
/// With random addresses, page tables and the ends of mappings differ by about this many pages from those recorded.
const RANDOM_PAGES: u64 = 64;
/// Pages that the kernel charges in advance on each processor.
const BATCH_PAGES: u64 = 64;

/// A program under a memory limit, predicted and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitFigures {
    /// The prediction.
    pub predicted: MemoryLimit,
    /// The least limit if no page was written again that `MADV_FREE` had marked; absent where that makes no difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_limit_bytes_min: Option<u64>,
    /// What the kernel needs for a process that is not in the prediction. The limits of groups are larger by it.
    pub kernel_bytes: u64,
    /// The runs. Those at a second limit follow if the others did not end as predicted.
    pub runs: Vec<LimitedRun>,
    /// The highest charge without a limit; absent if the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<PeakCharge>,
    /// Where it is killed; absent if no kill was predicted, or if the runs did not end as predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed: Option<KillPlace>,
}

/// A run under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedRun {
    /// The limit of the group.
    pub limit_bytes: u64,
    /// How it ended.
    pub outcome: RunOutcome,
}

/// What is predicted, and how exactly it can be compared.
struct Expected {
    limit: MemoryLimit,
    least_limit_bytes_min: Option<u64>,
    /// Where it is killed, if that was predicted.
    place: Option<kill_place::Predicted>,
    /// The highest charge without a limit.
    peak_bytes: u64,
    /// The program touches memory that other processes can share, which is charged and not modelled.
    has_shared: bool,
    /// khugepaged can collapse memory of the program or its children. The kernel counts collapses of all programs together.
    is_collapsible: bool,
    /// What the kernel needs for a process, and what it can need for its children besides.
    kernel_bytes: u64,
    children_bytes: u64,
    /// The program has one process.
    is_alone: bool,
    /// It has one thread in each process.
    is_single: bool,
    /// The mappings of a run have the recorded addresses.
    is_fixed: bool,
}

/// Runs the program of a recording under the limit of a setting, and compares.
///
/// # Errors
/// A recording cannot be read, a group cannot be used, or a signal came.
pub(super) fn validate(
    subject: &Subject<'_>,
    setting: &Setting,
    options: &Options<'_>,
    folder: &Path,
    row: Row,
) -> Result<Row, ValidateError> {
    let expected = match Expected::of(subject, setting, options)? {
        Ok(expected) => expected,
        Err(reason) => return Ok(Row { reason: Some(reason), ..row }),
    };
    // Without it the program could be the one that wakes khugepaged up.
    let _awake = AdvisedMap::new();
    let collapses_before = sysfs::khugepaged_collapses();
    let measured = expected.measure(subject, setting, options, folder)?;
    let (figures, judged) = match measured {
        Ok(measured) => measured,
        Err(reason) => return Ok(Row { reason: Some(reason), ..row }),
    };
    let disturbed = if !super::has_modes(&setting.kernel)? {
        Some("the machine's modes changed during the runs".to_string())
    } else if expected.is_collapsible && sysfs::khugepaged_collapses() != collapses_before {
        Some("khugepaged collapsed memory during the runs; --set-modes pauses it".to_string())
    } else if expected.has_shared && judged.verdict == Verdict::Failed {
        Some("the program touches shared memory or files, which are charged and not predicted".to_string())
    } else {
        None
    };
    let row = Row { class: Some(judged.class), memory_limit: Some(figures), ..row };
    Ok(match disturbed {
        None => Row { verdict: judged.verdict, reason: judged.reason, ..row },
        Some(why) => {
            let reason = judged.reason.map_or(why.clone(), |reason| format!("{why}; {reason}"));
            Row { verdict: Verdict::Skipped, reason: Some(reason), ..row }
        }
    })
}

impl Expected {
    /// The prediction, or the reason why it cannot be compared.
    fn of(
        subject: &Subject<'_>,
        setting: &Setting,
        options: &Options<'_>,
    ) -> Result<Result<Self, String>, ValidateError> {
        let Subject { recording, files, program } = subject;
        if let Err(reason) = MemoryGroup::create() {
            return Ok(Err(reason));
        }
        if recording.header.input.is_some() {
            let why =
                "a replay's own memory would be charged, too; `hksim replay TRACE.hkt --memory-limit` leaves it out";
            return Ok(Err(why.to_string()));
        }
        let members = Family::open(&recording.path)?.members();
        if files.files().len() > members {
            let others = of((files.files().len() - members) as u64, "other program");
            return Ok(Err(format!("the program executes {others}, whose memory the group is charged for, too")));
        }
        let unlimited = KernelConfig { memory_limit_bytes: Some(u64::MAX), ..setting.kernel.clone() };
        let settings = [setting.clone(), Setting { kernel: unlimited, ..setting.clone() }];
        let predicted = predict(&recording.path, &settings, false, Detail::Figures)?;
        predicted.notes.iter().for_each(|note| options.listener.warn(note));
        let rows = predicted.rows;
        let [own, without] = <[MemoryRow; 2]>::try_from(rows).map_err(|_| ValidateError::NoPrediction)?;
        if !own.recording.complete || own.recording.children_missing > 0 {
            return Ok(Err(own.recording.gaps().join("; ")));
        }
        let children = members as u64 - 1;
        let [kernel_bytes, children_bytes] = match options.kernel_memory.bytes(&setting.kernel, children)? {
            Ok(bytes) => bytes,
            Err(reason) => return Ok(Err(reason)),
        };
        let place = kill_place::Predicted::of(&recording.path, &own, setting, program.fixes_addresses)?;
        let limits = own.prediction.memory_limit.zip(without.prediction.memory_limit);
        let (limit, unlimited) = limits.ok_or(ValidateError::NoPrediction)?;
        let shared = [Outside::Shared, Outside::SharedMemory];
        Ok(Ok(Self {
            limit,
            place,
            least_limit_bytes_min: own.prediction.unseen_writes.and_then(|unseen| unseen.least_limit_bytes_min),
            peak_bytes: unlimited.pressure.charged_bytes_peak,
            is_collapsible: without.prediction.is_collapsible,
            has_shared: shared.iter().any(|kind| own.traps_outside.get(kind).is_some_and(|traps| *traps > 0)),
            kernel_bytes,
            children_bytes,
            is_alone: children == 0,
            is_single: threads(files)? <= files.files().len() as u64,
            is_fixed: program.fixes_addresses,
        }))
    }

    /// Runs the program without a limit and under it; the inner error says why nothing can be compared.
    fn measure(
        &self,
        subject: &Subject<'_>,
        setting: &Setting,
        options: &Options<'_>,
        folder: &Path,
    ) -> Result<Result<(LimitFigures, Judged), String>, ValidateError> {
        let program = subject.program;
        let errors = folder.join("limited.errors");
        let start = |errors| Start {
            launch: program.launch(errors),
            status: program.status,
            is_pinned: self.is_single,
            supervisor: &program.supervisor,
            listener: program.listener,
        };
        let first = start(Some(errors.clone())).run(None)?;
        let unlike = match (&first.end, &first.trouble) {
            (_, Some(trouble)) => Some(trouble.clone()),
            (Err(why), None) => Some(format!("the program cannot be run: {why}")),
            (Ok(status), None) => program.unlike(*status, &errors),
        };
        if let Some(why) = unlike {
            return Ok(Err(why));
        }
        let start = start(None);
        let peak = self.peak(first, &start, options.runs)?;
        let at = |limit_bytes: u64| -> Result<(Tried, Option<String>), ValidateError> {
            let (mut outcomes, mut trouble) = (Vec::new(), None);
            for _ in 0..options.runs {
                let ran = start.run(Some(limit_bytes))?;
                outcomes.push(ran.outcome);
                trouble = trouble.or(ran.trouble);
            }
            Ok((Tried { limit_bytes, outcomes }, trouble))
        };
        let predicted = self.limit.outcome;
        let (first, mut trouble) = at(self.limit.limit_bytes.saturating_add(self.kernel_bytes))?;
        let again_bytes = self.limit_with_room().filter(|_| !first.holds(predicted));
        let again = again_bytes.map(at).transpose()?.map(|(tried, why)| {
            trouble = trouble.take().or(why);
            tried
        });
        if let Some(trouble) = trouble {
            return Ok(Err(trouble));
        }
        let killed = match first.holds(predicted) {
            true => self.kill_place(program, setting, folder)?,
            false => None,
        };
        let judged = with_peak(judge(predicted, &first, again.as_ref()), peak.as_ref());
        let judged = self.with_place(judged, killed.as_ref());
        let runs = [Some(first), again].into_iter().flatten().flat_map(|Tried { limit_bytes, outcomes }| {
            outcomes.into_iter().map(move |outcome| LimitedRun { limit_bytes, outcome })
        });
        let figures = LimitFigures {
            predicted: self.limit.clone(),
            least_limit_bytes_min: self.least_limit_bytes_min,
            kernel_bytes: self.kernel_bytes,
            runs: runs.collect(),
            peak,
            killed,
        };
        Ok(Ok((figures, judged)))
    }

    /// A kill elsewhere is an error of the model, too.
    fn with_place(&self, judged: Judged, killed: Option<&KillPlace>) -> Judged {
        let Some(KillPlace { agreement: Agreement::Differs, event, by, .. }) = killed else { return judged };
        let place = |event: Option<u64>, by: &Option<String>| {
            let by = by.as_ref().map_or(String::new(), |by| format!(", {by}"));
            format!("operation {}{by}", event.map_or("-".to_string(), count))
        };
        let [predicted, real] = [place(self.limit.event, &self.limit.by), place(*event, by)];
        failed_too(judged, &format!("predicted to be killed in {predicted}; killed in {real}"))
    }

    /// The limit at which a run must end as predicted if it does not at the predicted one: what is not known exactly has
    /// room there. `None` if nothing is predicted.
    fn limit_with_room(&self) -> Option<u64> {
        // What processors hold; and the order of threads, on which it depends how much a program has at a time.
        let threads_pages = if self.is_single { 0 } else { BATCH_PAGES * processor::online().len() as u64 };
        let random_pages = if self.is_fixed { 0 } else { RANDOM_PAGES };
        let room_bytes = (VARIES_PAGES + random_pages + threads_pages) * PAGE_BYTES;
        match self.limit.outcome {
            LimitOutcome::Survives => {
                let room_bytes = self.kernel_bytes + self.children_bytes + room_bytes;
                Some(self.limit.limit_bytes.saturating_add(room_bytes))
            }
            LimitOutcome::Killed => Some(self.limit.limit_bytes.saturating_sub(room_bytes)),
            LimitOutcome::Unknown => None,
        }
    }

    /// The highest charge without a limit, of the first run that can be as predicted, or else of the last one.
    fn peak(&self, first: Ran, start: &Start<'_>, runs: u32) -> Result<Option<PeakCharge>, ValidateError> {
        let mut peak = self.peak_of(&first);
        for _ in 1..runs {
            if peak.is_none_or(|peak| peak.difference().is_none()) {
                break;
            }
            peak = self.peak_of(&start.run(None)?);
        }
        Ok(peak)
    }

    fn peak_of(&self, ran: &Ran) -> Option<PeakCharge> {
        let varies_bytes = VARIES_PAGES * PAGE_BYTES;
        let others_bytes = self.kernel_bytes + ran.charged_bytes_left + varies_bytes + BATCH_PAGES * PAGE_BYTES;
        Some(PeakCharge {
            predicted_bytes: self.peak_bytes,
            measured_bytes: ran.charged_bytes_peak?,
            measured_bytes_min: self.is_fixed.then(|| self.peak_bytes.saturating_sub(varies_bytes)),
            measured_bytes_max: (self.is_fixed && self.is_alone && self.is_single)
                .then(|| self.peak_bytes.saturating_add(others_bytes)),
        })
    }
}

/// A wrong charge is an error of the model, whatever became of the program.
fn with_peak(judged: Judged, peak: Option<&PeakCharge>) -> Judged {
    let Some(difference) = peak.and_then(PeakCharge::difference) else { return judged };
    failed_too(judged, &difference)
}

fn failed_too(judged: Judged, difference: &str) -> Judged {
    let reason = judged.reason.map_or(difference.to_string(), |reason| format!("{difference}; {reason}"));
    Judged { verdict: Verdict::Failed, reason: Some(reason), ..judged }
}

/// The threads with an event of all processes of a run.
fn threads(files: &RunFiles) -> Result<u64, ValidateError> {
    let (mut events, mut all) = (Vec::new(), 0);
    for file in files.files() {
        let mut reader = Reader::open(&file.path)?;
        let mut threads = BTreeSet::new();
        while reader.next_chunk(&mut events)? {
            threads.extend(events.iter().map(|event| event.thread));
        }
        all += threads.len().max(1) as u64;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use hksim_linux_mm::GroupPressure;

    use super::*;

    fn expected(outcome: LimitOutcome, is_single: bool, is_fixed: bool) -> Expected {
        let limit = MemoryLimit { outcome, ..MemoryLimit::of(1000 * PAGE_BYTES, GroupPressure::default()) };
        Expected {
            limit,
            least_limit_bytes_min: None,
            place: None,
            peak_bytes: 0,
            has_shared: false,
            is_collapsible: false,
            kernel_bytes: 2 * PAGE_BYTES,
            children_bytes: 0,
            is_alone: true,
            is_single,
            is_fixed,
        }
    }

    /// The peak of a program with threads depends on their order, so a run can need more than the recorded one, and less.
    #[test]
    fn threads_and_random_addresses_have_room_on_both_sides() {
        let batches = BATCH_PAGES * processor::online().len() as u64;
        let pages = |outcome, is_single, is_fixed| {
            expected(outcome, is_single, is_fixed).limit_with_room().map(|bytes| bytes / PAGE_BYTES)
        };
        for (is_single, is_fixed, room) in
            [(true, true, 3), (true, false, 67), (false, true, 3 + batches), (false, false, 67 + batches)]
        {
            let of = |outcome| pages(outcome, is_single, is_fixed);
            assert_eq!(of(LimitOutcome::Survives), Some(1000 + 2 + room));
            assert_eq!(of(LimitOutcome::Killed), Some(1000_u64.saturating_sub(room)));
            assert_eq!(of(LimitOutcome::Unknown), None);
        }
    }
}
