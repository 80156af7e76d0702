//! The parent's side of a process that executes scripts.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use hksim_linux_mm::script::Script;
use thiserror::Error;

use crate::child::CHILD_ARGUMENT;
use crate::observation::Observation;
use crate::unobservable::Unobservable;

/// Maximum duration of an operation.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(20);

/// A script that could not be executed to its end.
#[derive(Debug, Error)]
pub enum ExecuteError {
    /// The process cannot be started, or does not respond.
    #[error("cannot run the process that executes scripts: {source}")]
    Process {
        /// The cause.
        #[from]
        source: io::Error,
    },
    /// The process died.
    #[error("the process that executed the script died ({status}); the script:\n{script}")]
    Died {
        /// Its exit status.
        status: ExitStatus,
        /// The script.
        script: String,
    },
    /// An operation timed out.
    #[error("an operation took longer than {} s, and the process was ended; the script:\n{script}", OPERATION_TIMEOUT.as_secs())]
    Hung {
        /// The script.
        script: String,
    },
    /// The process reported an error.
    #[error("{reason}; the script:\n{script}")]
    Failed {
        /// The cause.
        reason: String,
        /// The script.
        script: String,
    },
}

/// The measurements of one script.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) observations: Vec<Observation>,
    /// Pages that khugepaged collapsed during the script, machine-wide.
    pub(crate) collapsed: u64,
    /// Signs of memory shortage during the script, machine-wide; 0 if there were none.
    pub(crate) shortage: u64,
}

/// The result of starting a process.
pub(crate) enum Start {
    /// The process is ready, and cannot observe these facts.
    Ready(Session, Vec<Unobservable>),
    /// Scripts cannot be executed here, for this reason.
    Unsupported(String),
}

/// A running process that executes scripts.
pub(crate) struct Session {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Session {
    /// Starts a process.
    pub(crate) fn start() -> Result<Start, ExecuteError> {
        let mut child =
            Command::new("/proc/self/exe").arg(CHILD_ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        let (sender, lines) = channel();
        // The thread ends with the process whose output it reads.
        std::thread::spawn(move || {
            let sent = |line: io::Result<String>| line.is_ok_and(|line| sender.send(line).is_ok());
            BufReader::new(stdout).lines().all(sent)
        });
        let mut session = Session { child, stdin, lines };
        let first = session.line(&Script::default())?;
        Ok(match first.strip_prefix("skipped: ") {
            Some(reason) => Start::Unsupported(reason.to_string()),
            None => Start::Ready(session, Unobservable::of_words(&first)),
        })
    }

    /// Executes a script on a new arena. After an error the session is unusable.
    pub(crate) fn execute(&mut self, script: &Script) -> Result<Measured, ExecuteError> {
        // If this fails, the process has died. Its status is reported below.
        let sent = writeln!(self.stdin, "{script}end").and_then(|()| self.stdin.flush());
        let mut observations = Vec::with_capacity(script.steps.len());
        loop {
            let line = self.line(script)?;
            let observation = match line.split_once(' ') {
                Some(("op", op)) => {
                    let state = self.line(script)?;
                    state.strip_prefix("st ").and_then(|state| Observation::read(op, state))
                }
                Some(("end", disturbances)) => {
                    sent?;
                    let mut counts = disturbances.split(' ').map(|count| count.parse().unwrap_or(0));
                    let (collapsed, shortage) = (counts.next().unwrap_or(0), counts.next().unwrap_or(0));
                    return Ok(Measured { observations, collapsed, shortage });
                }
                Some(("failed:", reason)) => {
                    return Err(ExecuteError::Failed { reason: reason.into(), script: script.to_string() });
                }
                _ => None,
            };
            match observation {
                Some(observation) => observations.push(observation),
                None => {
                    let reason = format!("unexpected output of the process that executes scripts: `{line}`");
                    return Err(ExecuteError::Failed { reason, script: script.to_string() });
                }
            }
        }
    }

    fn line(&mut self, script: &Script) -> Result<String, ExecuteError> {
        match self.lines.recv_timeout(OPERATION_TIMEOUT) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Disconnected) => {
                Err(ExecuteError::Died { status: self.child.wait()?, script: script.to_string() })
            }
            Err(RecvTimeoutError::Timeout) => Err(ExecuteError::Hung { script: script.to_string() }),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
