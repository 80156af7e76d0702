//! `hksim plot`: draws a result.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::chart::{self, Figure, Medium, Subject};
use crate::memory;
use crate::named_file;
use crate::output::stamp::refuse_other_schema;
use crate::output::{file, note};
use crate::result_numbers;

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim plot sweep.json -o sweep.svg\n  hksim plot explain.json --figure page-map -o map.png"
)]
pub struct Args {
    /// Draw this JSON result
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Draw this figure
    #[arg(long, value_enum, default_value = "designs")]
    figure: Figure,
    /// Write the picture to this file, whose name ends in .svg or .png
    #[arg(short, long, value_name = "PICTURE", value_parser = chart::parse_picture)]
    output: PathBuf,
}

/// Draws the result.
///
/// # Errors
/// The file is not such a result, or the picture cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let name = args.result.display();
    let result = read_result(&args.result)?;
    let advice = || format!("{name}: cannot draw; give a JSON result, as {WRITE_RESULT} writes it");
    let subject = Subject::of(&result).with_context(advice)?;
    let is_without_huge = args.figure == Figure::Huge && !subject.panels.is_empty();
    let Some(sketch) = args.figure.sketch(&subject, Medium::File).with_context(advice)? else {
        if is_without_huge {
            bail!("{name}: no design of it ever has memory in huge pages, so there is nothing to draw");
        }
        bail!(
            "{name}: has no data for --figure {}; see `hksim plot --help` for the command that has",
            args.figure.word()
        );
    };
    sketch.write(&args.output)?;
    note(&format!("drew {}", args.output.display()));
    Ok(())
}

/// A command that writes a result. Its file is none of the user's: what was named might be anything.
const WRITE_RESULT: &str = "`hksim sweep TRACE.hkt --format json -o result.json`";

/// Reads a JSON result. Old names are replaced.
///
/// # Errors
/// The file cannot be read, or is not JSON.
pub fn read_result(path: &Path) -> Result<Value> {
    memory::refuse(path)?;
    let name = path.display();
    if file::is_trace(path) {
        bail!("{name}: is a trace, not a result; predict its cost first: {WRITE_RESULT}");
    }
    let bytes = named_file::read(path).with_context(|| format!("{name}: cannot read the result"))?;
    let advice = || format!("{name}: not a JSON result; write one with {WRITE_RESULT}");
    let result: Value = serde_json::from_slice(&bytes).with_context(advice)?;
    refuse_other_schema(path, &result)?;
    result_numbers::check(&result).with_context(|| name.to_string())?;
    Ok(result)
}
