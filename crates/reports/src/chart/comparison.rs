//! A chart of allocators side by side: bars for their figures, and below them residency over events or time.

use hksim_replay::compare::{self, Outcome, Row, Spread};
use hksim_results::Kind;
use hksim_results::choice::ChoiceReport;
use hksim_results::replay::ComparisonReport;
use hksim_results::trial::{self, TrialReport};
use hksim_text::units::{bytes, count, of};
use hksim_timing::Estimate;
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Context, Result};

use super::canvas::Area;
use super::data::{Cost, Panel, Progress, Sample, Series};
use super::labels::label_width;
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, Look, SMALL_PX, text};
use super::timeline::{self, Quantity};

const WIDTH: u32 = 960;
const TITLE_HEIGHT: i32 = 48;
const BARS_TITLE_HEIGHT: i32 = 24;
const BAR_HEIGHT: i32 = 20;
const BARS_FOOT: i32 = 16;
const TIMELINE_HEIGHT: i32 = 320;
/// Groups of bars per row.
const COLUMNS: usize = 2;
const MARGIN: i32 = 20;

/// One figure of one allocator.
#[derive(Clone, Debug)]
struct Bar {
    /// The median, which is the length of the bar.
    value: f64,
    /// The lower quartile, or the lower end of an interval.
    low: f64,
    /// The upper quartile or end.
    high: f64,
    /// The median as text.
    label: String,
}

/// One figure for all allocators.
#[derive(Clone, Debug)]
struct Bars {
    /// The name of the figure.
    title: &'static str,
    /// One bar per allocator, in the order of the timelines; `None` if the figure was not measured.
    bars: Vec<Option<Bar>>,
}

/// The measured allocators of a comparison.
pub fn of_report(report: &ComparisonReport) -> Sketch<'static> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.outcome == Outcome::Measured).collect();
    let counted = |title, figure: fn(&Row) -> Option<Spread<u64>>, show: fn(u64) -> String| Bars {
        title,
        bars: rows.iter().map(|row| figure(row).map(|spread| bar(&spread, show))).collect(),
    };
    let timed = |title, figure: fn(&Row) -> Option<Estimate>| Bars {
        title,
        bars: rows.iter().map(|row| figure(row).map(|time| time_bar(&time))).collect(),
    };
    let bars = vec![
        timed("processor ns per call", |row| row.times.cpu_ns_per_call),
        timed("of these, in the kernel", |row| row.times.system_ns_per_call),
        counted("faults", |row| row.figures.faults, count),
        counted("peak RSS", |row| row.figures.rss_bytes_peak, bytes),
    ];
    let lines: Vec<Series> = rows.iter().enumerate().map(|(rank, row)| Series { rank, ..line(row) }).collect();
    let file = report.trace.file.as_deref().unwrap_or_default();
    let rounds = of(u64::from(report.runs), "round");
    sketch(&format!("{}, {rounds}", file.rsplit('/').next().unwrap_or(file)), bars, lines, Progress::Events)
}

/// The measured rows of a trial.
pub fn of_trial(report: &TrialReport) -> Sketch<'static> {
    let rows: Vec<&trial::Row> = report.trial.rows.iter().filter(|row| row.outcome == Outcome::Measured).collect();
    let counted = |title, figure: fn(&trial::Row) -> Option<Spread<u64>>, show: fn(u64) -> String| Bars {
        title,
        bars: rows.iter().map(|row| figure(row).map(|spread| bar(&spread, show))).collect(),
    };
    let timed = |title, figure: fn(&trial::Row) -> Option<Estimate>| Bars {
        title,
        bars: rows
            .iter()
            .map(|row| figure(row).map(|time| interval_bar(&time, format!("{:.3} s", time.median))))
            .collect(),
    };
    let bars = vec![
        timed("processor seconds", |row| row.cpu_s),
        timed("elapsed seconds", |row| row.wall_s),
        counted("faults", |row| row.faults, count),
        counted("peak RSS of the largest process", |row| row.rss_bytes_peak, bytes),
    ];
    let lines = rows.iter().enumerate().map(|(rank, row)| Series { rank, ..line_of_trial(row) }).collect();
    let program = report.program.first().map_or("", String::as_str);
    let rounds = of(u64::from(report.trial.rounds), "round");
    sketch(&format!("{}, {rounds}", program.rsplit('/').next().unwrap_or(program)), bars, lines, Progress::Time)
}

/// The chart of a measured result; `None` if it is of another kind.
///
/// # Errors
/// The result is damaged.
pub(super) fn of_result(result: &Value) -> Result<Option<Sketch<'static>>> {
    Ok(match Kind::of("", result) {
        Ok(Kind::Compare) => {
            let report = ComparisonReport::deserialize(result).context("not a result of `compare`")?;
            Some(of_report(&report))
        }
        Ok(Kind::Trial) => Some(of_trial(&TrialReport::deserialize(result).context("not a result of `trial`")?)),
        Ok(Kind::Choice) => {
            let report = ChoiceReport::deserialize(result).context("not a result of `advise --on`")?;
            report.trial.as_ref().map(of_trial)
        }
        _ => None,
    })
}

/// The median of a time, with its interval.
fn time_bar(time: &Estimate) -> Bar {
    interval_bar(time, format!("{:.1} ns", time.median))
}

fn interval_bar(time: &Estimate, label: String) -> Bar {
    let (low, high) = time.interval().unwrap_or((time.median, time.median));
    Bar { value: time.median, low, high, label }
}

fn bar(spread: &Spread<u64>, show: fn(u64) -> String) -> Bar {
    Bar {
        value: spread.median as f64,
        low: spread.quartile_low as f64,
        high: spread.quartile_high as f64,
        label: show(spread.median),
    }
}

fn line(row: &Row) -> Series {
    let sample = |sample: &compare::Sample| {
        let rss_bytes = sample.rss_bytes?;
        Some(Sample { at: sample.event, live_bytes: sample.live_bytes, rss_bytes, huge_bytes: 0 })
    };
    let rss_bytes_peak = row.figures.rss_bytes_peak.map_or(0, |spread| spread.median);
    let timeline = row.timeline.iter().filter_map(sample).collect();
    Series { label: row.allocator.clone(), rss_bytes_peak, is_front: false, timeline, ..Series::default() }
}

fn line_of_trial(row: &trial::Row) -> Series {
    let sample = |point: &trial::Point| Sample {
        at: (point.at_s * 1e9) as u64,
        live_bytes: 0,
        rss_bytes: point.rss_bytes,
        huge_bytes: point.huge_bytes,
    };
    let label = [row.allocator.as_str()].into_iter().chain(row.setting.as_deref()).collect::<Vec<_>>().join(" ");
    let rss_bytes_peak = row.tree_rss_bytes_peak.unwrap_or_default();
    let timeline = row.timeline.iter().map(sample).collect();
    Series { label, rss_bytes_peak, is_front: false, timeline, ..Series::default() }
}

/// Allocators side by side: a group of bars for each figure, and below them residency over time.
fn sketch(title: &str, figures: Vec<Bars>, lines: Vec<Series>, progress: Progress) -> Sketch<'static> {
    let panel = Panel { title: title.to_string(), floor_bytes: 0, series: lines, progress, cost: Cost::Installs };
    let bars_height = BARS_TITLE_HEIGHT + BAR_HEIGHT * panel.series.len() as i32 + BARS_FOOT;
    let figures_height = bars_height * figures.len().div_ceil(COLUMNS) as i32;
    let key = timeline::key(WIDTH, &panel, Quantity::Rss);
    let height = TITLE_HEIGHT + figures_height + TIMELINE_HEIGHT + key.height();
    Sketch::new((WIDTH, height as u32), move |page| {
        let (head, rest) = page.split_vertically(TITLE_HEIGHT);
        head.draw_text(&panel.title, &text(20, &INK), (MARGIN, 16)).map_err(drawing)?;
        let (bars, rest) = rest.split_vertically(figures_height);
        let areas = bars.split_evenly((figures.len().div_ceil(COLUMNS), COLUMNS));
        for (area, figure) in areas.iter().zip(&figures) {
            draw_bars(area, figure, &panel.series)?;
        }
        let (lines, legend) = rest.split_vertically(TIMELINE_HEIGHT);
        timeline::draw(&lines, &panel, Quantity::Rss)?;
        key.draw(&legend)?;
        Ok(Vec::new())
    })
}

/// Draws bars that start at zero. The allocator's name is to the left of its bar and the median to the right; a thin
/// line marks the quartiles.
fn draw_bars(area: &Area, figure: &Bars, lines: &[Series]) -> Result<()> {
    area.draw_text(figure.title, &text(SMALL_PX + 2, &INK), (MARGIN, 2)).map_err(drawing)?;
    let widest = |labels: &mut dyn Iterator<Item = &str>| labels.map(|label| label_width(label, SMALL_PX)).max();
    let names = widest(&mut lines.iter().map(|line| line.label.as_str())).unwrap_or(0);
    let figures = widest(&mut figure.bars.iter().flatten().map(|bar| bar.label.as_str())).unwrap_or(0);
    let left = MARGIN + names + 8;
    let room = (area.dim_in_pixel().0 as i32 - left - figures - MARGIN - 8).max(1);
    let longest = figure.bars.iter().flatten().map(|bar| bar.high).fold(0.0, f64::max);
    let at = |value: f64| left + if longest > 0.0 { (value / longest * f64::from(room)) as i32 } else { 0 };
    for (index, (bar, line)) in figure.bars.iter().zip(lines).enumerate() {
        let top = BARS_TITLE_HEIGHT + BAR_HEIGHT * index as i32;
        let middle = top + BAR_HEIGHT / 2;
        area.draw_text(&line.label, &text(SMALL_PX, &INK), (MARGIN, top + 3)).map_err(drawing)?;
        let Some(bar) = bar else {
            area.draw_text("not measured", &text(SMALL_PX, &INK), (left, top + 3)).map_err(drawing)?;
            continue;
        };
        let look = Look::of(line.rank);
        let body = [(left, top + 3), (at(bar.value).max(left + 1), top + BAR_HEIGHT - 3)];
        area.draw(&Rectangle::new(body, look.colour.filled())).map_err(drawing)?;
        let quartiles = PathElement::new([(at(bar.low), middle), (at(bar.high), middle)], INK.stroke_width(1));
        area.draw(&quartiles).map_err(drawing)?;
        let label_x = at(bar.value.max(bar.high)) + 6;
        area.draw_text(&bar.label, &text(SMALL_PX, &INK), (label_x, top + 3)).map_err(drawing)?;
    }
    Ok(())
}
