//! `hksim validate`: prediction beside measurement.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::flags::PolicyArgs;
use crate::output::OutputArgs;

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to replay
    #[arg(value_name = "TRACE.hkt")]
    pub trace: PathBuf,
    /// Policies to check
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Where the result goes
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Predicts, replays and compares.
///
/// # Errors
/// Bad input.
pub fn run(_args: &Args) -> Result<ExitCode> {
    bail!("validate: not built yet")
}
