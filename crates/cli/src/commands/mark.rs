//! `hksim mark`: naming moments of a running recording, stopping and starting it.

use anyhow::{Result, bail};
use hksim_record::control::Control;

use crate::output::note;

/// Arguments of `mark`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of any process of the recording: of the program, not of hksim
    #[arg(value_name = "PID")]
    pid: u32,
    /// Name this moment in every trace of the recording
    #[arg(value_name = "NAME", required_unless_present_any = ["start", "stop"])]
    name: Option<String>,
    /// Start recording again
    #[arg(long, conflicts_with = "stop")]
    start: bool,
    /// Stop recording for the time being, in all processes
    #[arg(long)]
    stop: bool,
}

/// Does it.
///
/// # Errors
/// The process is not being recorded, or belongs to somebody else.
pub fn run(args: &Args) -> Result<()> {
    let control = Control::of_process(args.pid)?;
    if let Some(name) = &args.name {
        control.mark(name)?;
    }
    if args.stop && !control.stop()? {
        note("recording had stopped already");
    }
    if args.start && !control.start()? {
        if control.has_ended()? {
            bail!("process {}: its recording has ended for good; record it again", args.pid);
        }
        note("recording goes on already");
    }
    Ok(())
}
