//! `hksim report`: writes results as one HTML file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::output::{file, note};
use crate::read_result::read_result;
use crate::repeat_command::command;
use hksim_reports::report::{self, Input};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim report sweep.json explain.json validate.json -o report.html")]
pub struct Args {
    /// Report these JSON results of sweep, sim, explain, validate, advise, check, compare, trial or inspect
    #[arg(value_name = "RESULT.json", required = true)]
    results: Vec<PathBuf>,
    /// Write the report to this file
    #[arg(short, long, value_name = "FILE.html", value_parser = parse_page)]
    output: PathBuf,
}

/// The file of a report.
fn parse_page(word: &str) -> Result<PathBuf, String> {
    let ending = Path::new(word).extension().map(|ending| ending.to_ascii_lowercase());
    match ending.is_some_and(|ending| ending == "html" || ending == "htm") {
        true => Ok(PathBuf::from(word)),
        false => Err("a report is HTML: name a file that ends in .html".to_string()),
    }
}

/// Writes the report.
///
/// # Errors
/// A file is not such a result, or the report cannot be written.
pub fn run(args: &Args) -> Result<()> {
    file::check(&args.output)?;
    let inputs: Vec<Option<&Path>> = args.results.iter().map(|path| Some(path.as_path())).collect();
    file::refuse_same(&[&args.output], &inputs)?;
    let input = |path: &PathBuf| -> Result<Input> {
        let name = path.display().to_string();
        let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let result = read_result(path)?;
        Ok(Input { command: command(&result, &name, &BTreeMap::new()), name, result, written })
    };
    let inputs = args.results.iter().map(input).collect::<Result<Vec<Input>>>()?;
    file::write(&args.output, report::document(&inputs)?.as_bytes())?;
    note(&format!("wrote {}", args.output.display()));
    Ok(())
}
