//! A child for an observer outside this crate, such as a recorder of page operations. It replays like a timed run,
//! without observers of its own.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::ReplayError;
use crate::parent::{checked, child_arguments, died_in, unexpected};
use crate::protocol::{self, Report};
use crate::spec::{Job, ReplaySpec, Run};
use crate::window::Moments;

/// The run's name in messages.
const RUN: &str = "observed";

/// How to start the child.
#[derive(Clone, Debug)]
pub struct ObservedChild {
    /// This program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// What it reads from standard input.
    pub job: String,
}

impl ObservedChild {
    /// The child that replays a trace.
    ///
    /// # Errors
    /// The specification is invalid, or this program's path is unknown.
    pub fn of(spec: &ReplaySpec) -> Result<ObservedChild, ReplayError> {
        let failed = |action| move |source| ReplayError::Child { action, source };
        let mut spec = checked(spec)?;
        spec.trace = spec.trace.canonicalize().map_err(failed("find the trace of"))?;
        let environment = spec.on.environment();
        let arguments = child_arguments(&spec.on).map(str::to_string).collect();
        let job = serde_json::to_string(&Job { spec, run: Run::Timed, cpu: None, alone_from: 0.0, progress: None });
        Ok(ObservedChild {
            program: std::env::current_exe().map_err(failed("find the program of"))?,
            arguments,
            environment,
            job: job.map_err(|why| failed("prepare the job of")(why.into()))?,
        })
    }

    /// What the job of such a child replays.
    ///
    /// # Errors
    /// The text is not a job.
    pub fn spec_of(job: &str) -> Result<ReplaySpec, ReplayError> {
        let job: Job = serde_json::from_str(job)
            .map_err(|why| ReplayError::Child { action: "understand the job of", source: why.into() })?;
        Ok(job.spec)
    }

    /// Why the child wrote nothing to standard output, by its exit code or the signal that ended it.
    pub fn died(code: Option<i32>, signal: Option<i32>) -> ReplayError {
        died_in(RUN, code, signal)
    }

    /// Reads what the child wrote to standard output: when it passed points of the trace, if it replayed in trace order.
    ///
    /// # Errors
    /// The replay failed.
    pub fn moments(output: &[u8]) -> Result<Option<Moments>, ReplayError> {
        let run = RUN;
        match protocol::receive(output) {
            Ok(Some(received)) => match received.report {
                Report::Timed(timing) => Ok(timing.moments),
                other => Err(unexpected(Run::Timed, &other)),
            },
            Ok(None) => Err(ReplayError::Garbled { run, why: "no report".into() }),
            Err(why) => Err(ReplayError::Garbled { run, why }),
        }
    }
}
