//! Writes figures to files.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use hksim_reports::chart::{self, Figure, Sketch, Subject};
use serde_json::Value;

use crate::output::file;

/// The name of a picture.
///
/// # Errors
/// The name has another ending than .svg or .png.
pub fn parse_picture(name: &str) -> Result<PathBuf, String> {
    chart::parse_picture(name)
}

/// Writes a figure to a file, in the format that its ending states.
///
/// # Errors
/// Drawing fails, or the file cannot be written.
pub fn write(path: &Path, sketch: &Sketch<'_>) -> Result<()> {
    file::write(path, &sketch.bytes(path)?)
}

/// Draws the designs of a result into a file.
///
/// # Errors
/// The result has no designs, or the file cannot be written.
pub fn write_designs(path: &Path, result: &Value) -> Result<()> {
    let subject = Subject::of(result)?;
    write(path, &chart::designs(&subject).ok_or_else(|| anyhow!("the result has no rows to draw"))?)
}

/// A figure as the value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FigureWord(pub Figure);

impl ValueEnum for FigureWord {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [FigureWord; Figure::ALL.len()] = {
            let mut all = [FigureWord(Figure::Designs); Figure::ALL.len()];
            let mut index = 0;
            while index < all.len() {
                all[index] = FigureWord(Figure::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.word()).help(self.0.help()))
    }
}
