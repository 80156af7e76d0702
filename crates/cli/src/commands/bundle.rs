//! `hksim bundle`: writes results with everything that repeats them into a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hksim_reports::bundle::{Source, write};

use crate::bundle::Origin;
use crate::output::{note, units};
use crate::read_result::read_result;
use crate::repeat_command::command;

/// Arguments of `bundle`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim bundle sweep.json validate.json -o study\n  hksim repeat study")]
pub struct Args {
    /// Bundle these JSON results of sim, sweep, explain, advise, validate, compare, trial or inspect
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
    let sources = args.results.iter().map(|path| source(path)).collect::<Result<Vec<Source>>>()?;
    let manifest = write(&sources, &args.output, &command)?;
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

/// A result with the files that it was made from. It must be one that can be made again.
fn source(path: &Path) -> Result<Source> {
    let (result, name) = (read_result(path)?, path.display().to_string());
    let files = Origin::of(&name, &result)?.files(&result).with_context(|| name.clone())?;
    Ok(Source { path: path.to_path_buf(), result, files })
}
