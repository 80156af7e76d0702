//! A chart of one quantity over time: title, axes and grid. The caller draws the series.

use anyhow::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::canvas::{Area, Canvas};
use super::scatter::drawing;
use super::style::{INK, plain, text, tick};

/// The size of such a picture, in pixels.
pub const SIZE: (u32, u32) = (900, 420);
const TITLE_HEIGHT: i32 = 44;

/// Where series are drawn.
pub type Chart<'page> = ChartContext<'page, Canvas<'page>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// An axis from 0.
pub struct Axis<'a> {
    /// Its description.
    pub name: &'a str,
    /// Its end, above 0.
    pub end: f64,
}

/// A title, with axes and a grid below it.
///
/// # Errors
/// Drawing fails.
pub fn chart<'page>(page: &Area<'page>, title: &str, time: &Axis<'_>, value: &Axis<'_>) -> Result<Chart<'page>> {
    let (above, below) = page.split_vertically(TITLE_HEIGHT);
    above.draw_text(title, &text(18, &INK), (20, 16)).map_err(drawing)?;
    let mut chart = ChartBuilder::on(&below)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..time.end, 0.0..value.end * 1.08)
        .map_err(drawing)?;
    let mut mesh = chart.configure_mesh();
    plain(&mut mesh)
        .x_desc(time.name)
        .y_desc(value.name)
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .draw()
        .map_err(drawing)?;
    Ok(chart)
}
