//! An explained run: an ordered replay on any `malloc` that records every page fault with its address, its instruction
//! and its moment, every system call on mappings, and where each block is.
//!
//! The child records (`run`), and the parent passes the records on in order ([`explain`]). What they mean is not
//! decided here. Traps come from the kernel's page-fault event, whose buffer is emptied after each part of an event.
//! System calls are intercepted within the process (`intercept`). Neither needs rights.

mod advice;
mod code;
mod intercept;
mod record;
mod recorder;
mod run;

pub(crate) use record::Records;
pub use record::{CALLERS, CallRecord, Moment, Place, PresentRun, Record, TrapRecord, WORDS, When};
pub(crate) use run::ExplainedRun;
pub use run::ExplainedTotals;

use crate::error::ReplayError;
use crate::parent::{checked, control_of, run, run_observed, unexpected};
use crate::protocol::Report;
use crate::spec::{HugePages, ReplaySpec, Run};

/// Replays a trace on a `malloc`, in trace order, and passes every record to `each`.
///
/// # Errors
/// The run cannot start, or the allocator is not a `malloc`; [`ReplayError::Refused`] if the kernel permits no record of page
/// faults.
pub fn explain(
    spec: &ReplaySpec,
    huge: HugePages,
    each: &mut dyn FnMut(Record),
) -> Result<ExplainedTotals, ReplayError> {
    let spec = checked(spec)?;
    let start = Run::ExplainedStart(huge);
    let control = match run(&control_of(&spec), start)?.report {
        Report::ExplainedStart(memory) => memory,
        other => return Err(unexpected(start, &other)),
    };
    let run = Run::Explained(huge);
    match run_observed(&spec, run, None, each)?.report {
        Report::Explained(totals) => Ok(totals.with_startup_beyond(control)),
        other => Err(unexpected(run, &other)),
    }
}
