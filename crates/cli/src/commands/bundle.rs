//! `hksim bundle`: writes results with everything that repeats them into a folder.

use std::path::PathBuf;

use anyhow::Result;

use crate::bundle;
use crate::output::{note, units};

/// Arguments of `bundle`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim bundle sweep.json validate.json -o study\n  hksim repeat study")]
pub struct Args {
    /// Bundle these JSON results of sim, sweep, explain, advise, validate, compare or trial
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    /// Write the bundle to this new folder
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
}

/// Writes the bundle.
///
/// # Errors
/// A file is not such a result, an input is missing or changed, or the folder cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let manifest = bundle::write::write(&args.results, &args.output)?;
    let predictions: usize = manifest.results.iter().map(|result| result.predictions).sum();
    let bytes = manifest.inputs.iter().map(|input| input.bytes).sum();
    note(&format!(
        "wrote {}: {} with {}, and {} ({}); repeat it with `hksim repeat {0}`",
        args.output.display(),
        units::of(manifest.results.len() as u64, "result"),
        units::of(predictions as u64, "prediction"),
        units::of(manifest.inputs.len() as u64, "input"),
        units::bytes(bytes)
    ));
    Ok(())
}
