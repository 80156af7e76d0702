//! Runs a program in a memory control group of its own, in which it is from before its exec.

use std::thread;
use std::time::Duration;

use hksim_linux_probe::memory_group::MemoryGroup;
use hksim_linux_probe::processor::pin_process_here;
use hksim_linux_probe::signal_handlers::EndingSignals;
use hksim_memory_record::Launch;
use hksim_memory_trace::ExitStatus;
use serde::{Deserialize, Serialize};

use crate::error::ValidateError;
use crate::listener::Listener;
use crate::memory::supervise::Supervisor;

/// Interval between two looks at a running program.
const INTERVAL: Duration = Duration::from_millis(1);

/// How a run in a group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// As it was recorded.
    Survived,
    /// The kernel killed one of its processes because of the limit.
    Killed,
    /// Otherwise, without such a kill: a system call that did not fit failed.
    Failed,
}

/// A program that is run in groups.
pub(super) struct Start<'a> {
    /// How it is started.
    pub launch: Launch,
    /// How it ends if it survives; `None` if any end counts.
    pub status: Option<ExitStatus>,
    /// Whether it runs on one processor. It then finds all memory that the kernel has charged in advance: what busy
    /// processors hold is returned too late.
    pub is_pinned: bool,
    /// Its load, and its longest time.
    pub supervisor: &'a Supervisor,
    pub listener: &'a dyn Listener,
}

/// What became of a run.
pub(super) struct Ran {
    pub outcome: RunOutcome,
    /// How the program ended, or why it could not be started.
    pub end: Result<ExitStatus, String>,
    /// Why it is not the run that was asked for. Not known of a program that was killed.
    pub trouble: Option<String>,
    /// The highest charge of the group; `None` if the kernel does not count it.
    pub charged_bytes_peak: Option<u64>,
    /// What was charged after the end: pages of files, and records that the kernel keeps.
    pub charged_bytes_left: u64,
}

impl Start<'_> {
    /// Runs the program under a limit in bytes; `None` for no limit. The group is removed afterwards, also if a signal to
    /// this process ends the run.
    ///
    /// # Errors
    /// The group cannot be used, no process can be created, or a signal came.
    pub fn run(&self, limit_bytes: Option<u64>) -> Result<Ran, ValidateError> {
        // Until the group is removed: values are dropped in the opposite order.
        let signals = EndingSignals::begin();
        let group = MemoryGroup::create().map_err(ValidateError::Group)?;
        let failed =
            |what: &'static str| move |why: std::io::Error| ValidateError::Group(format!("cannot {what}: {why}"));
        group.set_limit(limit_bytes).map_err(failed("set its limit"))?;
        let stopped = self.launch.clone().start()?;
        let pid = stopped.pid();
        group.add(pid as u32).map_err(failed("move the program into it"))?;
        if self.is_pinned {
            // Otherwise it only runs less repeatably.
            pin_process_here(pid as u32);
        }
        let (ended, trouble) = self.supervisor.watch(self.listener, &|_| {}, |started| {
            let running = stopped.go().map_err(|why| why.to_string())?;
            started(pid);
            while !running.has_ended() {
                // The outcome is known; a parent may wait for ever for what a killed child was to do.
                if signals.came() || group.kills().is_ok_and(|kills| kills > 0) {
                    group.kill();
                }
                thread::sleep(INTERVAL);
            }
            running.wait().map_err(|why| why.to_string())
        });
        if signals.came() {
            return Err(ValidateError::Interrupted);
        }
        let end = ended.and_then(|ended| ended.exit_status().ok_or_else(|| "its end is unknown".to_string()));
        let outcome = match &end {
            _ if group.kills().map_err(failed("count its kills"))? > 0 => RunOutcome::Killed,
            Ok(status) if self.status.is_none_or(|expected| expected == *status) => RunOutcome::Survived,
            _ => RunOutcome::Failed,
        };
        Ok(Ran {
            outcome,
            end,
            trouble: trouble.filter(|_| outcome != RunOutcome::Killed),
            charged_bytes_peak: group.charged_bytes_peak().ok(),
            charged_bytes_left: group.charged_bytes().map_err(failed("read its charge"))?,
        })
    }
}
