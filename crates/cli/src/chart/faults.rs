//! Page faults over time, by region.

use std::path::Path;

use anyhow::Result;
use hksim_trace::import::faults::{FaultReport, RegionKind};
use plotters::prelude::*;

use super::over_time::{self, Axis};
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, Look, SMALL_PX, text, time_unit};

/// Draws the faults of a script into a file, as one stacked bar per time span.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, name: &str, report: &FaultReport) -> Result<()> {
    sketch(name, report).write(path)
}

fn sketch<'a>(name: &'a str, report: &'a FaultReport) -> Sketch<'a> {
    let (unit, unit_name) = time_unit(report.duration_ns);
    let width_ns = report.timeline.get(1).map_or(report.duration_ns.max(1), |second| second.from_ns);
    let end = (width_ns * report.timeline.len() as u64) as f64 / unit;
    let highest = report.timeline.iter().map(|moment| moment.faults.iter().sum::<u64>()).max().unwrap_or(0);
    let (time, faults) = (Axis { name: unit_name, end }, Axis { name: "faults", end: highest.max(1) as f64 });
    Sketch::new(over_time::SIZE, move |page| {
        let mut chart = over_time::chart(page, &format!("{name}: page faults"), &time, &faults)?;
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
        Ok(Vec::new())
    })
}
