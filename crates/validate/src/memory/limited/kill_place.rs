//! Where a program is killed: in which of its operations, predicted and recorded in a run under the limit.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hksim_linux_mm::{KernelConfig, LimitOutcome, MemoryLimit};
use hksim_linux_probe::memory_group::MemoryGroup;
use hksim_linux_probe::processor::pin_process_here;
use hksim_linux_probe::signal_handlers::EndingSignals;
use hksim_memory_sim::{Detail, Family, LastOperation, MemoryRow, OF_RELATIVE, RunFiles, Setting, simulate};
use hksim_policy::PAGE_BYTES;
use hksim_text::units::count;
use serde::{Deserialize, Serialize};

use super::{Expected, RANDOM_PAGES, VARIES_PAGES, threads};
use crate::error::ValidateError;
use crate::memory::measure::Program;

/// Interval between two looks at the signals.
const INTERVAL: Duration = Duration::from_millis(1);
/// Time in which a killed process ends: its end shows which one it was.
const DYING: Duration = Duration::from_millis(200);
/// Pages that the kernel needs for a thread: its stack of 16 KiB, and its record.
const THREAD_PAGES: u64 = 7;
/// Runs that are recorded if the first is not killed where it was predicted.
const RUNS: usize = 2;

/// Whether a program was killed where it was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// In the predicted operation.
    Same,
    /// In another one, within what the kernel's own memory and the addresses of a run can differ.
    Within,
    /// In another order than the recorded one, of threads or processes: where the model puts it in that order.
    OwnOrder,
    /// Elsewhere.
    Differs,
    /// This cannot be said.
    Unknown,
}

/// Where a program is killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillPlace {
    /// Whether it is where it was predicted.
    pub agreement: Agreement,
    /// The operation, counted as in the prediction; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// What that requested, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The first operation in which it can be killed if the prediction is right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_min: Option<u64>,
    /// The last one; absent if it could also survive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_max: Option<u64>,
    /// Why nothing can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl KillPlace {
    fn unknown(reason: &str) -> Self {
        let (event, by, event_min, event_max) = (None, None, None, None);
        Self { agreement: Agreement::Unknown, event, by, event_min, event_max, reason: Some(reason.to_string()) }
    }

    /// In words, for tables.
    pub fn words(&self) -> String {
        let event = self.event.map_or("-".to_string(), count);
        match self.agreement {
            Agreement::Same => format!("{event}, same"),
            Agreement::Within => format!("{event}, within"),
            Agreement::OwnOrder => format!("{event}, own order"),
            Agreement::Differs => format!("{event}, differs"),
            Agreement::Unknown => "unknown".to_string(),
        }
    }
}

/// What is predicted about the place.
pub(super) struct Predicted {
    event: u64,
    event_min: u64,
    event_max: Option<u64>,
    /// What the predicted operation requests, in words.
    by: String,
    /// One fault can install more than one page, so a run has other operations than the recording.
    has_large: bool,
    /// It depends on writes that the recording does not have.
    has_unseen: bool,
}

impl Predicted {
    /// Of a row that is killed; `None` for others.
    pub fn of(path: &Path, row: &MemoryRow, setting: &Setting, is_fixed: bool) -> Result<Option<Self>, ValidateError> {
        let prediction = &row.prediction;
        let killed = prediction.memory_limit.as_ref().filter(|limit| limit.outcome == LimitOutcome::Killed);
        let Some((limit, event)) = killed.and_then(|limit| Some((limit, limit.event?))) else { return Ok(None) };
        let pages = VARIES_PAGES + if is_fixed { 0 } else { RANDOM_PAGES };
        let around = around(path, setting, limit.limit_bytes, [pages * PAGE_BYTES; 2])?;
        let [earlier, later] = around.map(|limit| limit.and_then(|limit| limit.event));
        let kinds = &prediction.installs.by_kind;
        Ok(Some(Self {
            event,
            event_min: earlier.map_or(event, |earlier| earlier.min(event)),
            event_max: later.map(|later| later.max(event)),
            by: limit.by.clone().unwrap_or_default(),
            has_large: kinds.thp + kinds.mthp > 0,
            has_unseen: prediction.unseen_writes.is_some(),
        }))
    }

    /// What a run says that was killed in this operation; `None` if that is not where it was predicted.
    fn met(&self, run: &LastOperation) -> Option<Agreement> {
        // Operations are counted in each process.
        if run.by.starts_with(OF_RELATIVE) != self.by.starts_with(OF_RELATIVE) {
            return None;
        }
        if run.number == self.event || (self.has_large && self.by == run.by) {
            return Some(Agreement::Same);
        }
        let is_within = run.number >= self.event_min && self.event_max.is_none_or(|last| run.number <= last);
        is_within.then_some(Agreement::Within)
    }
}

/// What becomes of a recorded run under limits that are smaller and larger than this one by so many bytes.
fn around(
    path: &Path,
    setting: &Setting,
    limit_bytes: u64,
    [below, above]: [u64; 2],
) -> Result<[Option<MemoryLimit>; 2], ValidateError> {
    let at = |limit_bytes: u64| Setting {
        kernel: KernelConfig { memory_limit_bytes: Some(limit_bytes), ..setting.kernel.clone() },
        ..setting.clone()
    };
    let settings = [limit_bytes.saturating_sub(below), limit_bytes.saturating_add(above)].map(at);
    let mut limits = simulate(Family::open(path)?, &settings, Detail::Figures)?.predictions.into_iter();
    Ok([(); 2].map(|()| limits.next().and_then(|prediction| prediction.memory_limit)))
}

impl Expected {
    /// Records runs under the limit, and compares where they are killed; `None` if no kill was predicted.
    pub(super) fn kill_place(
        &self,
        program: &Program<'_>,
        setting: &Setting,
        folder: &Path,
    ) -> Result<Option<KillPlace>, ValidateError> {
        let Some(predicted) = &self.place else { return Ok(None) };
        let is_ordered = self.is_alone && self.is_single;
        let mut runs = Vec::new();
        for number in 0..RUNS {
            let path = folder.join(format!("killed-{number}.hkm"));
            if let Err(reason) = self.record_kill(program, &path)? {
                return Ok(Some(KillPlace::unknown(&reason)));
            }
            let found = match is_ordered {
                true => LastOperation::before_end(Family::open(&path)?, 0)?.map(|run| (predicted.met(&run), run)),
                false => self.in_its_own_order(predicted, setting, &path)?,
            };
            let Some((agreement, run)) = found else {
                return Ok(Some(KillPlace::unknown("it was killed before its first operation")));
            };
            let place = |agreement| KillPlace {
                agreement,
                event: Some(run.number),
                by: Some(run.by.clone()),
                event_min: Some(predicted.event_min),
                event_max: predicted.event_max,
                reason: None,
            };
            if let Some(agreement) = agreement {
                return Ok(Some(place(agreement)));
            }
            runs.push(place(Agreement::Differs));
        }
        let reason = match &runs[..] {
            _ if predicted.has_large => {
                "faults that install more than one page hide how many operations a run has made"
            }
            // The kernel kills the largest of them, and the others go on until it has ended.
            _ if !self.is_alone => {
                "several processes ran when the limit was reached, so the fatal request is not certain"
            }
            _ if predicted.has_unseen => "it depends on which pages freed by MADV_FREE were written again",
            [one, other] if is_ordered && one.event != other.event => "the program does not repeat itself",
            _ => return Ok(runs.pop()),
        };
        Ok(runs.pop().map(|place| KillPlace {
            agreement: Agreement::Unknown,
            reason: Some(reason.to_string()),
            ..place
        }))
    }

    /// Where a run of several threads or processes is killed, whose order is another one in each run: the model is given
    /// the order of this run, and must reach the limit there, too. `None` if no process ended.
    fn in_its_own_order(
        &self,
        predicted: &Predicted,
        setting: &Setting,
        path: &Path,
    ) -> Result<Option<(Option<Agreement>, LastOperation)>, ValidateError> {
        let files = RunFiles::around(path).map_err(ValidateError::reading("reading the run under the limit"))?;
        let processes = files.files().len() as u64;
        let more_threads = threads(&files)?.saturating_sub(processes);
        // The kernel's own memory varies for each process.
        let varies_bytes = processes * VARIES_PAGES * PAGE_BYTES;
        let kernel_bytes = varies_bytes + self.children_bytes + more_threads * THREAD_PAGES * PAGE_BYTES;
        let [earlier, later] = around(path, setting, self.limit.limit_bytes, [kernel_bytes, varies_bytes])?;
        let [reached_ns, exceeded_ns] = [earlier, later].map(|limit| limit.and_then(|limit| limit.moment_ns));
        let last = LastOperation::before_end(Family::open(path)?, reached_ns.unwrap_or_default())?;
        Ok(last.map(|last| {
            let is_there = reached_ns.is_some() && exceeded_ns.is_none_or(|exceeded_ns| exceeded_ns >= last.time_ns);
            (is_there.then(|| predicted.met(&last).unwrap_or(Agreement::OwnOrder)), last)
        }))
    }

    /// Records a run under the limit that the kernel kills; the inner error says why there is none.
    fn record_kill(&self, program: &Program<'_>, path: &Path) -> Result<Result<(), String>, ValidateError> {
        // Until the group is removed: values are dropped in the opposite order.
        let signals = EndingSignals::begin();
        let group = MemoryGroup::create().map_err(ValidateError::Group)?;
        let failed =
            |what: &'static str| move |why: std::io::Error| ValidateError::Group(format!("cannot {what}: {why}"));
        let limit_bytes = self.limit.limit_bytes.saturating_add(self.kernel_bytes);
        group.set_limit(Some(limit_bytes)).map_err(failed("set its limit"))?;
        let mut added = Ok(());
        let is_over = AtomicBool::new(false);
        let recorded = thread::scope(|scope| {
            scope.spawn(|| {
                let mut killed = None;
                while !is_over.load(Ordering::SeqCst) {
                    if killed.is_none() && group.kills().is_ok_and(|kills| kills > 0) {
                        killed = Some(Instant::now());
                    }
                    // A parent may wait for ever for what a killed child was to do.
                    if signals.came() || killed.is_some_and(|at| at.elapsed() >= DYING) {
                        group.kill();
                    }
                    thread::sleep(INTERVAL);
                }
            });
            let recorded = program.record_prepared(path, &mut |pid| {
                added = group.add(pid as u32);
                pin_process_here(pid as u32);
            });
            is_over.store(true, Ordering::SeqCst);
            recorded
        });
        if signals.came() {
            return Err(ValidateError::Interrupted);
        }
        added.map_err(failed("move the program into it"))?;
        let (report, _) = recorded?;
        if group.kills().map_err(failed("count its kills"))? == 0 {
            return Ok(Err("the run that was recorded under the limit was not killed".to_string()));
        }
        if report.lost_events > 0 {
            return Ok(Err("events of the run that was recorded under the limit were lost".to_string()));
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(predicted: &Predicted, number: u64, by: &str) -> Option<Agreement> {
        predicted.met(&LastOperation { number, time_ns: 0, by: by.to_string() })
    }

    #[test]
    fn a_kill_is_where_it_was_predicted_or_within_what_can_differ() {
        let by = "mmap".to_string();
        let exact =
            Predicted { event: 100, event_min: 97, event_max: Some(105), by, has_large: false, has_unseen: false };
        let all = [96, 97, 100, 105, 106].map(|number| met(&exact, number, "mmap"));
        let (same, within) = (Some(Agreement::Same), Some(Agreement::Within));
        assert_eq!(all, [None, within, same, within, None]);
        assert_eq!(met(&exact, 100, &format!("{OF_RELATIVE}mmap")), None, "the numbers are those of another process");
        let large = Predicted { has_large: true, event_max: None, ..exact };
        assert_eq!(
            [met(&large, 7, "mmap"), met(&large, 7, "munmap"), met(&large, 999, "munmap")],
            [same, None, within]
        );
    }
}
