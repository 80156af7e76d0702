//! Charts of results: installs against peak residency, and below it residency over events.
//!
//! - [`live`]: live bytes of a trace; [`faults`]: page faults of a program; both use [`over_time`]. [`comparison`]:
//!   allocators side by side.
//! - [`data`] and [`recordings`]: the data of charts; [`scatter`] and [`timeline`]: the panels; [`names`] and [`labels`]: names of designs
//!   and their places; [`style`]: colours.

pub mod comparison;
mod data;
pub mod faults;
mod labels;
pub mod live;
mod names;
mod over_time;
mod recordings;
mod scatter;
mod style;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use plotters::prelude::*;
use serde_json::Value;

use data::{Panel, panels};
use scatter::drawing;
use style::{FRONT, INK, SMALL_PX, text};

const PANEL_WIDTH: u32 = 740;
const TITLE_HEIGHT: i32 = 64;
const SCATTER_HEIGHT: i32 = 420;
const TIMELINE_HEIGHT: i32 = 320;

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

/// Draws a `sweep` or `sim` result as SVG.
///
/// # Errors
/// The result is not from `sweep` or `sim`.
pub fn svg(result: &Value) -> Result<String> {
    let panels = panels(result)?;
    if panels.is_empty() {
        bail!("the result has no rows to draw");
    }
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let legend = panels.iter().map(timeline::legend_height).max().unwrap_or(0);
    let height = TITLE_HEIGHT + SCATTER_HEIGHT + TIMELINE_HEIGHT + legend;
    let rows = panels.len().div_ceil(columns);
    let size = (PANEL_WIDTH * columns as u32, height as u32 * rows as u32);
    let mut svg = String::new();
    {
        let page = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        page.fill(&WHITE).map_err(drawing)?;
        for (area, panel) in page.split_evenly((rows, columns)).iter().zip(&panels) {
            draw(area, panel)?;
        }
        page.present().map_err(drawing)?;
    }
    Ok(svg)
}

/// Draws a result into a file.
///
/// # Errors
/// The result is not from `sweep` or `sim`, or the file cannot be written.
pub fn write(path: &Path, result: &Value) -> Result<()> {
    crate::output::file::write(path, svg(result)?.as_bytes())
}

fn draw(area: &DrawingArea<SVGBackend, plotters::coord::Shift>, panel: &Panel) -> Result<()> {
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let (scatter_area, rest) = rest.split_vertically(SCATTER_HEIGHT);
    let (timeline_area, legend_area) = rest.split_vertically(TIMELINE_HEIGHT);
    title.draw_text(&panel.title, &text(20, &INK), (20, 16)).map_err(drawing)?;
    let caption = "filled: Pareto front of installs and peak RSS; line: designs above and right of it are dominated";
    title.draw_text(caption, &text(SMALL_PX, &FRONT), (20, 44)).map_err(drawing)?;
    scatter::draw(&scatter_area, panel)?;
    timeline::draw(&timeline_area, panel)?;
    timeline::legend(&legend_area, panel)
}
