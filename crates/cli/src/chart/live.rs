//! Live bytes of a trace over time.

use std::path::Path;

use anyhow::Result;
use hksim_trace::info::Info;
use plotters::prelude::*;

use super::scatter::drawing;
use super::style::{GRID, INK, Look, SMALL_PX, byte_unit, text, tick};

const SIZE: (u32, u32) = (900, 420);
const TITLE_HEIGHT: i32 = 44;

/// Draws the timeline of a trace into a file.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, name: &str, info: &Info) -> Result<()> {
    crate::output::file::write(path, svg(name, info)?.as_bytes())
}

fn svg(name: &str, info: &Info) -> Result<String> {
    let (unit, unit_name) = byte_unit(info.live_bytes_peak);
    let (second, second_name) = time_unit(info.duration_ns);
    let mut svg = String::new();
    {
        let page = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        page.fill(&WHITE).map_err(drawing)?;
        let (title, below) = page.split_vertically(TITLE_HEIGHT);
        title.draw_text(&format!("{name}: live bytes"), &text(18, &INK), (20, 16)).map_err(drawing)?;
        let (time_max, bytes_max) =
            (info.duration_ns.max(1) as f64 / second, info.live_bytes_peak.max(1) as f64 / unit);
        let mut chart = ChartBuilder::on(&below)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..time_max, 0.0..bytes_max * 1.08)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc(second_name)
            .y_desc(format!("live bytes ({unit_name})"))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .label_style(text(SMALL_PX, &INK))
            .axis_desc_style(text(SMALL_PX + 1, &INK))
            .draw()
            .map_err(drawing)?;
        let points = info.timeline.iter().map(|point| (point.time_ns as f64 / second, point.live_bytes as f64 / unit));
        let line: Vec<(f64, f64)> = std::iter::once((0.0, 0.0)).chain(points).collect();
        let foot = line.last().map(|&(end, _)| (end, 0.0));
        let look = Look::of(0);
        let outline: Vec<(f64, f64)> = line.iter().copied().chain(foot).collect();
        chart.draw_series([Polygon::new(outline, look.colour.mix(0.15).filled())]).map_err(drawing)?;
        chart.draw_series(LineSeries::new(line, look.line())).map_err(drawing)?;
        page.present().map_err(drawing)?;
    }
    Ok(svg)
}

/// The unit in which a time reads well: its nanoseconds, and the axis' name.
pub fn time_unit(ns: u64) -> (f64, &'static str) {
    match ns {
        0..10_000_000 => (1e3, "time (us)"),
        10_000_000..10_000_000_000 => (1e6, "time (ms)"),
        _ => (1e9, "time (s)"),
    }
}
