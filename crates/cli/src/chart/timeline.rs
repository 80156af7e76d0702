//! Residency over time, with the live bytes below it.

use anyhow::Result;
use plotters::prelude::*;

use super::canvas::Area;
use super::data::{Panel, Progress, Sample, Series};
use super::hits::Hit;
use super::scatter::drawing;
use super::style::{INK, Look, SMALL_PX, byte_unit, event_unit, plain, rss_bytes_max, text, tick, time_unit};

/// Colour of the live bytes.
const LIVE: RGBColor = RGBColor(214, 214, 214);

/// Draws the lines of a panel. Returns their places.
pub fn draw(area: &Area, panel: &Panel) -> Result<Vec<Hit>> {
    let samples = || panel.series.iter().flat_map(|series| &series.timeline);
    let live_max = samples().map(|sample| sample.live_bytes).max().unwrap_or(0);
    let end = samples().map(|sample| sample.at).max().unwrap_or(0).max(1);
    let bytes_max = rss_bytes_max(&panel.series).max(live_max).max(1);
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
    let live = panel.series.first().map(|series| series.timeline.as_slice()).unwrap_or_default();
    let live_top = steps(live.iter().map(|sample| point(sample, sample.live_bytes)));
    let corners = [live.first(), live.last()].map(|sample| sample.map(|sample| point(sample, 0)));
    let outline: Vec<(f64, f64)> = corners[0].into_iter().chain(live_top).chain(corners[1]).collect();
    chart.draw_series([Polygon::new(outline, LIVE.filled())]).map_err(drawing)?;
    let mut mesh = chart.configure_mesh();
    plain(&mut mesh)
        .x_desc(time_name)
        .y_desc(format!("RSS ({unit_name})"))
        .x_labels(7)
        .y_labels(6)
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .draw()
        .map_err(drawing)?;
    let line = |series: &Series| -> Vec<(f64, f64)> {
        steps(series.timeline.iter().map(|sample| point(sample, sample.rss_bytes)))
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

/// The corners of a line on which each value holds until the next.
fn steps(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (at, value) in points {
        corners.extend(corners.last().map(|&(_, before)| (at, before)));
        corners.push((at, value));
    }
    corners
}

/// Writes the legend, with at most `rows` rows.
pub fn legend(area: &Area, panel: &Panel) -> Result<()> {
    let columns = legend_columns(panel);
    let width = area.dim_in_pixel().0 as i32 / columns as i32;
    let spot = |index: usize| ((index % columns) as i32 * width + 20, (index / columns) as i32 * LEGEND_LINE + 4);
    if panel.series.iter().flat_map(|series| &series.timeline).any(|sample| sample.live_bytes > 0) {
        let (x, y) = spot(0);
        area.draw(&Rectangle::new([(x, y + 3), (x + 26, y + 13)], LIVE.filled())).map_err(drawing)?;
        area.draw_text("live bytes", &text(SMALL_PX, &INK), (x + 34, y + 1)).map_err(drawing)?;
    }
    let (named, others): (Vec<&Series>, Vec<&Series>) =
        panel.series.iter().partition(|series| Look::of(series.rank).is_named);
    if let Some(other) = others.first() {
        let (x, y) = spot(named.len() + 1);
        let line = Look::of(other.rank).line();
        area.draw(&PathElement::new([(x, y + 8), (x + 26, y + 8)], line)).map_err(drawing)?;
        let others = format!("{} other designs", others.len());
        area.draw_text(&others, &text(SMALL_PX, &INK), (x + 34, y + 1)).map_err(drawing)?;
    }
    for (index, series) in named.into_iter().enumerate() {
        let look = Look::of(series.rank);
        let (x, y) = spot(index + 1);
        let dashes = if look.is_dashed { vec![(0, 10), (16, 26)] } else { vec![(0, 26)] };
        for (from, to) in dashes {
            area.draw(&PathElement::new([(x + from, y + 8), (x + to, y + 8)], look.line())).map_err(drawing)?;
        }
        let name = if series.is_front { format!("{} (front)", series.label) } else { series.label.clone() };
        area.draw_text(&name, &text(SMALL_PX, &INK), (x + 34, y + 1)).map_err(drawing)?;
    }
    Ok(())
}

const LEGEND_LINE: i32 = 19;

/// The number of columns that fit the longest name.
fn legend_columns(panel: &Panel) -> usize {
    let longest = panel.series.iter().map(|series| series.label.chars().count()).max().unwrap_or(0);
    (90 / (longest + 14)).clamp(1, 4)
}

/// The height of the legend in pixels.
pub fn legend_height(panel: &Panel) -> i32 {
    let entries = 1 + panel.series.len().min(super::style::COLOURED_MAX + 1);
    entries.div_ceil(legend_columns(panel)) as i32 * LEGEND_LINE + 12
}
