//! Page faults over time, by region.

use std::path::Path;

use anyhow::Result;
use hksim_trace::import::faults::{FaultReport, RegionKind};
use plotters::prelude::*;

use super::live::time_unit;
use super::scatter::drawing;
use super::style::{GRID, INK, Look, SMALL_PX, text, tick};

const SIZE: (u32, u32) = (900, 420);
const TITLE_HEIGHT: i32 = 44;

/// Draws the faults of a script into a file: stacked bars, one for each stretch of time.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, name: &str, report: &FaultReport) -> Result<()> {
    crate::output::file::write(path, svg(name, report)?.as_bytes())
}

fn svg(name: &str, report: &FaultReport) -> Result<String> {
    let (unit, unit_name) = time_unit(report.duration_ns);
    let width_ns = report.timeline.get(1).map_or(report.duration_ns.max(1), |second| second.from_ns);
    let end = (width_ns * report.timeline.len() as u64) as f64 / unit;
    let highest = report.timeline.iter().map(|moment| moment.faults.iter().sum::<u64>()).max().unwrap_or(0);
    let mut svg = String::new();
    {
        let page = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        page.fill(&WHITE).map_err(drawing)?;
        let (title, below) = page.split_vertically(TITLE_HEIGHT);
        title.draw_text(&format!("{name}: page faults"), &text(18, &INK), (20, 16)).map_err(drawing)?;
        let mut chart = ChartBuilder::on(&below)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..highest.max(1) as f64 * 1.08)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc(unit_name)
            .y_desc("faults")
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .label_style(text(SMALL_PX, &INK))
            .axis_desc_style(text(SMALL_PX + 1, &INK))
            .draw()
            .map_err(drawing)?;
        for kind in RegionKind::ALL {
            if report.timeline.iter().all(|moment| moment.faults[kind as usize] == 0) {
                continue;
            }
            let colour = Look::of(kind as usize).colour;
            let bars = report.timeline.iter().map(|moment| {
                let below: u64 = moment.faults[..kind as usize].iter().sum();
                let (left, top) = (moment.from_ns as f64 / unit, below + moment.faults[kind as usize]);
                let right = (moment.from_ns + width_ns) as f64 / unit;
                Rectangle::new([(left, below as f64), (right, top as f64)], colour.filled())
            });
            let series = chart.draw_series(bars).map_err(drawing)?;
            let key = move |(x, y): (i32, i32)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled());
            series.label(kind.word()).legend(key);
        }
        let labels = &mut chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).label_font(text(SMALL_PX, &INK));
        labels.background_style(WHITE.mix(0.8)).draw().map_err(drawing)?;
        page.present().map_err(drawing)?;
    }
    Ok(svg)
}
