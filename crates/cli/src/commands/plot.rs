//! `hksim plot`: draws a result.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::chart;
use crate::memory;
use crate::output::{file, note};
use crate::schema_1;

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim plot sweep.json -o sweep.svg")]
pub struct Args {
    /// Draw this JSON result of `sweep` or `sim`
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Write the picture to this file
    #[arg(short, long, value_name = "FILE.svg", value_parser = chart::parse_picture)]
    output: PathBuf,
}

/// Draws the result.
///
/// # Errors
/// The file is not such a result, or the picture cannot be written.
pub fn run(args: &Args) -> Result<()> {
    memory::refuse(&args.result)?;
    let name = args.result.display();
    let text = fs::read_to_string(&args.result).with_context(|| format!("{name}: cannot read the result"))?;
    let advice = || format!("{name}: cannot draw; give a JSON result: `hksim sweep --format json -o {name}`");
    let mut result: Value = serde_json::from_str(&text).with_context(advice)?;
    schema_1::upgrade(&args.result, &mut result);
    let picture = chart::svg(&result).with_context(advice)?;
    file::write(&args.output, picture.as_bytes())?;
    note(&format!("drew {}", args.output.display()));
    Ok(())
}
