//! A process that executes scripts, seen from outside.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use hksim_linux_mm::script::Script;
use thiserror::Error;

use crate::child::CHILD_ARGUMENT;
use crate::observation::Observation;
use crate::unobservable::Unobservable;

/// How long an operation may take.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(20);

/// A script that could not be executed to its end.
#[derive(Debug, Error)]
pub enum ExecuteError {
    /// The process cannot be started or spoken to.
    #[error("cannot run the process that executes scripts: {source}")]
    Process {
        /// Why.
        #[from]
        source: io::Error,
    },
    /// It ended on the way.
    #[error("the process that executed the script died ({status}); the script:\n{script}")]
    Died {
        /// How.
        status: ExitStatus,
        /// What it executed.
        script: String,
    },
    /// It did not go on.
    #[error("an operation took longer than {} s, and the process was ended; the script:\n{script}", OPERATION_TIMEOUT.as_secs())]
    Hung {
        /// What it executed.
        script: String,
    },
    /// It said why it could not.
    #[error("{reason}; the script:\n{script}")]
    Failed {
        /// Why.
        reason: String,
        /// What it executed.
        script: String,
    },
}

/// What the kernel did with one script.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) observations: Vec<Observation>,
    /// Pages that khugepaged collapsed meanwhile, on the whole machine.
    pub(crate) collapsed: u64,
    /// Signs that memory was short meanwhile, on the whole machine; 0 where it was not.
    pub(crate) shortage: u64,
}

/// How a process begins.
pub(crate) enum Start {
    /// It executes scripts, and does not see these things.
    Ready(Session, Vec<Unobservable>),
    /// It cannot, here: why.
    Unsupported(String),
}

/// One process.
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
        // Ends with the process, whose output it reads.
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

    /// Executes a script on a fresh arena. After an error the session is of no use.
    pub(crate) fn execute(&mut self, script: &Script) -> Result<Measured, ExecuteError> {
        // Where this fails the process has died, and its status says more.
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
                    let reason = format!("the process that executes scripts said `{line}`");
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
