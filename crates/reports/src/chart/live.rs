//! Live bytes of a trace over time.

use hksim_trace::header::Clock;
use hksim_trace::info::Info;
use plotters::prelude::*;

use super::medium::Medium;
use super::over_time::{self, Frame, Scale};
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{Look, byte_unit};

/// Live bytes of a trace over time.
pub fn sketch<'a>(name: &str, info: &'a Info) -> Sketch<'a> {
    let (unit, unit_name) = byte_unit(info.live_bytes_peak);
    let frame = Frame {
        medium: Medium::File,
        title: format!("{name}: live bytes"),
        key: Vec::new(),
        time_note: match info.clock {
            Clock::Measured => "",
            Clock::PerEvent => ", assumed",
        },
        end_ns: info.duration_ns.max(1),
        name: format!("live bytes ({unit_name})"),
        scale: Scale::Amount(info.live_bytes_peak.max(1) as f64 / unit),
        height: over_time::HEIGHT,
    };
    let line = steps(info, frame.unit_ns(), unit);
    frame.sketch(move |chart| {
        let foot = line.last().map(|&(end, _)| (end, 0.0));
        let look = Look::of(0);
        let outline: Vec<(f64, f64)> = line.iter().copied().chain(foot).collect();
        chart.draw_series([Polygon::new(outline, look.colour.mix(0.15).filled())]).map_err(drawing)?;
        chart.draw_series(LineSeries::new(line.iter().copied(), look.line())).map_err(drawing)?;
        Ok(())
    })
}

/// Live bytes as steps: each value holds until the next.
fn steps(info: &Info, second: f64, unit: f64) -> Vec<(f64, f64)> {
    let mut line = vec![(0.0, 0.0)];
    for point in &info.over_time {
        let (time, bytes) = (point.time_ns as f64 / second, point.live_bytes as f64 / unit);
        line.extend(line.last().map(|&(_, before)| (time, before)));
        line.push((time, bytes));
    }
    line
}
