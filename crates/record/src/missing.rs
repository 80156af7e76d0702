//! What a recording lacks: programs executed without the recorder, and processes that outlived the recording.

use std::collections::HashSet;

use hksim_linux_probe::process_words::command_of;

use crate::clock::ClockPair;
use crate::error::RecordError;
use crate::event_log::{Control, ORIGIN_EXEC};
use crate::process_tree::{Execution, Started};
use crate::report::UnseenImage;
use crate::selection::Selection;
use crate::session::Session;
use crate::traces::is_running;

/// Time in which a program that was just executed may still load the recorder.
const LOADING_NS: u64 = 200_000_000;

/// How much is missing. It is noted in the trace of the program itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Programs executed without the recorder.
    pub programs: u64,
    /// Processes that outlived the recording.
    pub processes: u64,
}

/// What is missing.
#[derive(Debug, Default)]
pub struct Unrecorded {
    /// Programs executed without the recorder.
    pub programs: Vec<UnseenImage>,
    /// Processes that outlived the recording, without the program itself.
    pub processes: Vec<UnseenImage>,
    /// Why this is unknown; `None` if it is known.
    pub unobserved: Option<String>,
}

impl Unrecorded {
    /// Compares what was started and selected with the session's logs.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn of<'a>(
        session: &Session,
        started: Result<Started, String>,
        selection: &Selection,
        logs: impl Iterator<Item = &'a Control>,
    ) -> Result<Self, RecordError> {
        let started = match started {
            Err(why) => return Ok(Self { unobserved: Some(why), ..Self::default() }),
            Ok(started) => started,
        };
        let to_ns = session.to_monotonic_ns()?;
        let executed = logs.filter(|log| log.origin == ORIGIN_EXEC);
        let mut logs: Vec<(u32, u64)> = executed.map(|log| (log.pid, to_ns(log.start_ticks))).collect();
        logs.sort_by_key(|&(_, start_ns)| start_ns);
        let running: HashSet<u32> = started.running.keys().copied().filter(|&pid| is_running(pid)).collect();
        let page = session.control.page()?;
        let ended_ns = match page.ended_ticks {
            0 => ClockPair::now().ns,
            ticks => to_ns(ticks),
        };
        let root = session.info.root_pid;
        let is_due = |execution: &Execution| {
            let until_ns = if running.contains(&execution.pid) { LOADING_NS } else { 0 };
            let is_loaded = execution.time_ns.saturating_add(until_ns) < ended_ns;
            is_loaded && !may_be_killed(execution, &started.signals_ns)
        };
        let unseen = started.without_log(&logs).into_iter();
        let unseen = unseen.filter(|execution| selection.is_wanted(execution, root) && is_due(execution));
        let image =
            |execution: Execution| UnseenImage { pid: execution.pid, command: vec![selection.shown(&execution)] };
        let mut programs: Vec<UnseenImage> = unseen.map(image).collect();
        // Those that loaded the recorder, but could not create a log, are counted elsewhere.
        programs.truncate(programs.len().saturating_sub(page.unrecorded as usize));
        let mut pids: Vec<u32> = running.into_iter().filter(|&pid| Some(pid) != root).collect();
        pids.sort_unstable();
        let processes = pids.into_iter().map(|pid| UnseenImage { pid, command: command_of(pid) });
        let is_wanted = |image: &UnseenImage| selection.is_running_wanted(image.pid, root, &image.command);
        let processes = processes.filter(is_wanted).collect();
        let unobserved = started.is_incomplete.then(|| "the kernel's records were read too late".to_string());
        Ok(Self { programs, processes, unobserved })
    }

    /// How much is missing.
    pub fn missing(&self) -> Missing {
        Missing { programs: self.programs.len() as u64, processes: self.processes.len() as u64 }
    }
}

/// Whether one of these signals, which reach the program's children too, may have ended a program before it loaded the
/// recorder. Its parent's terminal and the recorder get the signal at about the same time.
fn may_be_killed(execution: &Execution, signals_ns: &[u64]) -> bool {
    let Some(ended_ns) = execution.ended_ns else { return false };
    let is_short = ended_ns.saturating_sub(execution.time_ns) < LOADING_NS;
    is_short && signals_ns.iter().any(|signal_ns| signal_ns.abs_diff(ended_ns) < LOADING_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_a_signal_may_have_ended_is_not_missing() {
        let second = 1_000_000_000;
        let ended = |after_ns: u64| Execution { ended_ns: Some(second + after_ns), ..Execution::new(second, 7, "ls") };
        let signals = [second + 3_000_000];
        assert!(may_be_killed(&ended(2_000_000), &signals));
        assert!(!may_be_killed(&ended(2_000_000), &[]), "it ended by itself");
        assert!(!may_be_killed(&ended(2_000_000), &[3 * second]), "long before the signal");
        assert!(!may_be_killed(&ended(2 * second), &[3 * second]), "it had the time to load the recorder");
        assert!(!may_be_killed(&Execution::new(second, 7, "ls"), &signals), "it still runs");
    }
}
