//! Page faults over time, by region.

use hksim_trace::import::faults::{FaultReport, RegionKind};
use plotters::prelude::*;

use super::head::{Entry, Sample};
use super::medium::Medium;
use super::over_time::{self, Frame, Scale};
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::Look;

/// The page faults of a recorded program, as one stacked bar per time span.
pub fn sketch<'a>(name: &str, report: &'a FaultReport) -> Sketch<'a> {
    let width_ns = report.timeline.get(1).map_or(report.duration_ns.max(1), |second| second.from_ns);
    let highest = report.timeline.iter().map(|moment| moment.faults.iter().sum::<u64>()).max().unwrap_or(0);
    let has_faults = |kind: &RegionKind| report.timeline.iter().any(|moment| moment.faults[*kind as usize] > 0);
    let kinds: Vec<RegionKind> = RegionKind::ALL.into_iter().filter(has_faults).collect();
    let colour = |kind: RegionKind| Look::of(kind as usize).colour;
    let entry = |kind: &RegionKind| Entry { name: kind.word().to_string(), sample: Sample::Fill(colour(*kind)) };
    let frame = Frame {
        medium: Medium::File,
        title: format!("{name}: page faults"),
        key: kinds.iter().map(entry).collect(),
        time_note: "",
        end_ns: width_ns * report.timeline.len() as u64,
        name: "faults".to_string(),
        scale: Scale::Count(highest.max(1)),
        height: over_time::HEIGHT,
    };
    let unit = frame.unit_ns();
    frame.sketch(move |chart| {
        for &kind in &kinds {
            let bars = report.timeline.iter().map(|moment| {
                let below: u64 = moment.faults[..kind as usize].iter().sum();
                let (left, top) = (moment.from_ns as f64 / unit, below + moment.faults[kind as usize]);
                let right = (moment.from_ns + width_ns) as f64 / unit;
                Rectangle::new([(left, below as f64), (right, top as f64)], colour(kind).filled())
            });
            chart.draw_series(bars).map_err(drawing)?;
        }
        Ok(())
    })
}
