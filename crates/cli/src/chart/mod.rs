//! Charts of results: installs against peak residency, and below it residency over time.
//!
//! - [`figure`]: the figures that a result can be drawn as: [`designs`], [`page_map`], [`occupancy`], [`bars`],
//!   [`miss_curves`].
//! - [`live`]: live bytes of a trace; [`faults`]: page faults of a program; both use [`over_time`]. [`comparison`]:
//!   allocators side by side.
//! - [`data`] and [`recordings`]: the data of charts; [`scatter`] and [`timeline`]: the panels; [`names`] and [`labels`]: names of designs
//!   and their places; [`style`]: colours. [`hits`]: where designs are drawn.

mod bars;
pub mod comparison;
mod data;
mod designs;
pub mod faults;
mod figure;
mod hits;
mod labels;
pub mod live;
mod miss_curves;
mod names;
mod occupancy;
mod over_time;
mod page_map;
mod recordings;
mod scatter;
mod style;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use serde_json::Value;

pub use figure::Figure;
pub use hits::{Hit, Picture, Shape};

/// Reads the name of a picture, for clap. Pictures are always SVG.
///
/// # Errors
/// The name has another extension.
pub fn parse_picture(name: &str) -> Result<PathBuf, String> {
    // `-` is refused with its own message when the file is created.
    if name == "-" || name.to_ascii_lowercase().ends_with(".svg") {
        return Ok(name.into());
    }
    Err("pictures are SVG: name a file that ends in .svg (rsvg-convert or a browser converts it to PNG)".to_string())
}

/// Draws a result as SVG. A result with several designs has a scatter and timelines, one with a single design its
/// timeline.
///
/// # Errors
/// The result is not from `sweep`, `sim` or `explain`.
pub fn svg(result: &Value) -> Result<String> {
    let picture = designs::draw(result)?;
    picture.map(|picture| picture.svg).ok_or_else(|| anyhow!("the result has no rows to draw"))
}

/// Draws a result into a file.
///
/// # Errors
/// The result is not from `sweep` or `sim`, or the file cannot be written.
pub fn write(path: &Path, result: &Value) -> Result<()> {
    crate::output::file::write(path, svg(result)?.as_bytes())
}
