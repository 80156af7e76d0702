//! A chart of one quantity over time: title, axes and grid. The caller draws the series.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::scatter::drawing;
use super::style::{INK, plain, text, tick};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 420;
const TITLE_HEIGHT: i32 = 44;

/// Where series are drawn.
pub type Chart<'svg> = ChartContext<'svg, SVGBackend<'svg>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// The whole picture.
pub type Page<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

/// An axis from 0.
pub struct Axis<'a> {
    /// Its description.
    pub name: &'a str,
    /// Its end, above 0.
    pub end: f64,
}

/// An empty picture, which is written to `svg` when it is presented.
///
/// # Errors
/// Drawing fails.
pub fn page(svg: &mut String) -> Result<Page<'_>> {
    page_of(svg, HEIGHT)
}

/// As [`page`], of another height.
///
/// # Errors
/// Drawing fails.
pub fn page_of(svg: &mut String, height: u32) -> Result<Page<'_>> {
    let page = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    page.fill(&WHITE).map_err(drawing)?;
    Ok(page)
}

/// A title, with axes and a grid below it.
///
/// # Errors
/// Drawing fails.
pub fn chart<'svg>(page: &Page<'svg>, title: &str, time: &Axis<'_>, value: &Axis<'_>) -> Result<Chart<'svg>> {
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
