//! `hksim plot`: a picture of a result.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::chart;
use crate::output::{file, note};

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Result of `sweep` or `sim`, as JSON
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Picture to write
    #[arg(short, long, value_name = "FILE.svg", value_parser = chart::parse_picture)]
    output: PathBuf,
}

/// Draws it.
///
/// # Errors
/// A file that is no such result; a picture that cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let name = args.result.display();
    let text = fs::read_to_string(&args.result).with_context(|| format!("{name}: cannot read the result"))?;
    let mend = || format!("{name}: cannot draw; give a result of `hksim sweep --format json -o {name}`");
    let result: Value = serde_json::from_str(&text).with_context(mend)?;
    let picture = chart::svg(&result).with_context(mend)?;
    file::write(&args.output, picture.as_bytes())?;
    note(&format!("drew {}", args.output.display()));
    Ok(())
}
