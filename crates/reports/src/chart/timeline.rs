//! Residency over time, with the live bytes below it.

use crate::error::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::canvas::{Area, Canvas};
use super::data::{Panel, Progress, Sample, Series};
use super::head::{self, Entry, Key};
use super::hits::Hit;
use super::scatter::drawing;
use super::style::{Look, byte_unit, event_unit, labels_along, plain, tick, time_unit};

/// Colour of the live bytes.
const LIVE: RGBColor = RGBColor(214, 214, 214);

/// What the lines of a timeline show, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Resident memory, with the live bytes below it.
    Rss,
    /// Memory in huge pages.
    Huge,
}

impl Quantity {
    fn name(self) -> &'static str {
        match self {
            Quantity::Rss => "RSS",
            Quantity::Huge => "in huge pages",
        }
    }

    /// Its amount in a sample.
    pub fn of(self, sample: &Sample) -> u64 {
        match self {
            Quantity::Rss => sample.rss_bytes,
            Quantity::Huge => sample.huge_bytes,
        }
    }

    fn live(self, sample: &Sample) -> u64 {
        if self == Quantity::Rss { sample.live_bytes } else { 0 }
    }

    fn has_live(self, panel: &Panel) -> bool {
        panel.series.iter().flat_map(|series| &series.timeline).any(|sample| self.live(sample) > 0)
    }
}

/// Draws the lines of a panel. Returns their places.
pub fn draw(area: &Area, panel: &Panel, quantity: Quantity) -> Result<Vec<Hit>> {
    let samples = || panel.series.iter().flat_map(|series| &series.timeline);
    let end = samples().map(|sample| sample.at).max().unwrap_or(0).max(1);
    let most = samples().map(|sample| quantity.of(sample).max(quantity.live(sample))).max();
    let bytes_max = most.unwrap_or(0).max(1);
    let (unit, unit_name) = byte_unit(bytes_max);
    let (unit_of_time, time_name) = match panel.progress {
        Progress::Events => event_unit(end),
        Progress::Time => time_unit(end),
    };
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end as f64 / unit_of_time, 0.0..bytes_max as f64 / unit * 1.08)
        .map_err(drawing)?;
    let point = |sample: &Sample, bytes: u64| (sample.at as f64 / unit_of_time, bytes as f64 / unit);
    if quantity.has_live(panel) {
        draw_live(&mut chart, panel, point)?;
    }
    let mut mesh = chart.configure_mesh();
    plain(&mut mesh)
        .x_desc(time_name)
        .y_desc(format!("{} ({unit_name})", quantity.name()))
        .x_labels(labels_along(area))
        .y_labels(6)
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .draw()
        .map_err(drawing)?;
    let line = |series: &Series| -> Vec<(f64, f64)> {
        steps(series.timeline.iter().map(|sample| point(sample, quantity.of(sample))))
    };
    for series in panel.series.iter().rev() {
        let look = Look::of(series.rank);
        if look.is_dashed {
            chart.draw_series(DashedLineSeries::new(line(series), 6, 4, look.line())).map_err(drawing)?;
        } else {
            chart.draw_series(LineSeries::new(line(series), look.line())).map_err(drawing)?;
        }
    }
    let hit = |series: &Series| Hit::of(chart.plotting_area(), series, &line(series));
    Ok(panel.series.iter().map(hit).collect())
}

type Chart<'a, 'page> = ChartContext<'a, Canvas<'page>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Fills the area below the live bytes, which are the same for all designs.
fn draw_live(chart: &mut Chart, panel: &Panel, point: impl Fn(&Sample, u64) -> (f64, f64)) -> Result<()> {
    let live = panel.series.first().map(|series| series.timeline.as_slice()).unwrap_or_default();
    let top = steps(live.iter().map(|sample| point(sample, sample.live_bytes)));
    let corners = [live.first(), live.last()].map(|sample| sample.map(|sample| point(sample, 0)));
    let outline: Vec<(f64, f64)> = corners[0].into_iter().chain(top).chain(corners[1]).collect();
    chart.draw_series([Polygon::new(outline, LIVE.filled())]).map_err(drawing).map(drop)
}

/// The corners of a line on which each value holds until the next.
fn steps(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (at, value) in points {
        corners.extend(corners.last().map(|&(_, before)| (at, before)));
        corners.push((at, value));
    }
    corners
}

/// Whether the line of a series is below the same line of another series, which is drawn later.
fn is_hidden(panel: &Panel, series: &Series, quantity: Quantity) -> bool {
    let corners = |series: &Series| -> Vec<(u64, u64)> {
        let mut corners: Vec<(u64, u64)> = Vec::new();
        for (at, bytes) in series.timeline.iter().map(|sample| (sample.at, quantity.of(sample))) {
            if corners.last().is_none_or(|&(_, before)| before != bytes) {
                corners.push((at, bytes));
            }
        }
        corners
    };
    let own = corners(series);
    panel.series.iter().take_while(|other| !std::ptr::eq(*other, series)).any(|other| corners(other) == own)
}

/// The names of the lines' colours, for an area of this width in pixels.
pub fn key(width: u32, panel: &Panel, quantity: Quantity) -> Key {
    let mut entries = Vec::new();
    if quantity.has_live(panel) {
        entries.push(Entry { name: "live bytes".to_string(), sample: head::Sample::Fill(LIVE) });
    }
    let (named, others): (Vec<&Series>, Vec<&Series>) =
        panel.series.iter().partition(|series| Look::of(series.rank).is_named);
    for series in named {
        let look = Look::of(series.rank);
        let sample = if look.is_dashed { head::Sample::Dashes } else { head::Sample::Line };
        let front = if series.is_front && panel.series.len() > 1 { " (front)" } else { "" };
        let hidden = if is_hidden(panel, series, quantity) { " (hidden: same as another)" } else { "" };
        entries.push(Entry { name: format!("{}{front}{hidden}", series.label), sample: sample(look.line()) });
    }
    if let Some(other) = others.first() {
        let sample = head::Sample::Line(Look::of(other.rank).line());
        entries.push(Entry { name: format!("{} other designs", others.len()), sample });
    }
    Key::new(width, entries)
}
