//! `hksim mark`: marks moments of a running recording or trial, and pauses and restarts a recording.

use anyhow::{Result, bail};
use hksim_record::RecordError;
use hksim_record::control::{Control, EndReason};

use crate::output::warn;

/// Arguments of `mark`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim mark 4711 loaded\n  hksim mark 4711 --stop")]
pub struct Args {
    /// Act on the recording or the trial of this process (a process of the program, not hksim)
    #[arg(value_name = "PID")]
    pid: u32,
    /// Mark this moment with a name in every trace of the recording, or in the trial
    #[arg(value_name = "NAME", required_unless_present_any = ["start", "stop", "end"])]
    name: Option<String>,
    /// Restart recording
    #[arg(long, conflicts_with = "stop")]
    start: bool,
    /// Pause recording in all processes
    #[arg(long)]
    stop: bool,
    /// End the recording: hksim record writes the traces, and the program continues
    #[arg(long, conflicts_with_all = ["start", "stop"])]
    end: bool,
}

/// Marks, pauses or restarts.
///
/// # Errors
/// The process is neither recorded nor tried, or belongs to another user.
pub fn run(args: &Args) -> Result<()> {
    let only_name = args.name.as_ref().filter(|_| !(args.start || args.stop || args.end));
    let control = match (Control::of_process(args.pid), only_name) {
        (Err(RecordError::NotRecorded { .. }), Some(name)) if hksim_trial::mark(args.pid, name)? => return Ok(()),
        (control, _) => control?,
    };
    if let Some(name) = &args.name {
        control.mark(name)?;
    }
    if args.stop && !control.stop()? {
        warn("recording was already paused");
    }
    if args.end && !control.end(EndReason::Request)? {
        warn("the recording had already ended");
    }
    if args.start && !control.start()? {
        if control.has_ended()? {
            bail!("process {}: its recording has ended and cannot restart; record the program again", args.pid);
        }
        warn("recording is already running");
    }
    Ok(())
}
