//! `hksim plot`: draws a result.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::output::note;
use crate::pictures::{self, FigureWord};
use crate::read_result::read_result;
use hksim_reports::chart::{Figure, Medium, Subject};
use hksim_results::WRITE_RESULT;

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim plot sweep.json -o sweep.svg\n  hksim plot explain.json --figure page-map -o map.png"
)]
pub struct Args {
    /// Draw this JSON result
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Draw this figure [default: allocators for compare and trial, reasons for explain --on, ranges for inspect, else
    /// designs]
    #[arg(long, value_enum)]
    figure: Option<FigureWord>,
    /// Write the picture to this file, whose name ends in .svg or .png
    #[arg(short, long, value_name = "PICTURE", value_parser = pictures::parse_picture)]
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
    let figure = args.figure.map_or_else(|| Figure::of(&subject), |FigureWord(figure)| figure);
    let is_without_huge = figure == Figure::Huge && !subject.panels.is_empty();
    let Some(sketch) = figure.sketch(&subject, Medium::File).with_context(advice)? else {
        if is_without_huge {
            bail!("{name}: no design of it ever has memory in huge pages, so there is nothing to draw");
        }
        bail!("{name}: has no data for --figure {}; see `hksim plot --help` for the command that has", figure.word());
    };
    pictures::write(&args.output, &sketch)?;
    note(&format!("drew {}", args.output.display()));
    Ok(())
}
