//! A chart of allocators side by side: bars for their figures, and below them residency over events.

use crate::error::Result;
use plotters::prelude::*;

pub use super::data::{Sample, Series};

use super::canvas::Area;
use super::data::{Panel, Progress};
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
pub struct Bar {
    /// The median, which is the length of the bar.
    pub value: f64,
    /// The lower quartile.
    pub low: f64,
    /// The upper quartile.
    pub high: f64,
    /// The median as text.
    pub label: String,
}

/// One figure for all allocators.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The name of the figure.
    pub title: &'static str,
    /// One bar per allocator, in the order of the timelines; `None` if the figure was not measured.
    pub bars: Vec<Option<Bar>>,
}

/// Allocators side by side: a group of bars for each figure, and below them residency over time.
pub fn sketch<'a>(title: &str, figures: &'a [Bars], lines: Vec<Series>) -> Sketch<'a> {
    let panel = Panel { title: title.to_string(), floor_bytes: 0, series: lines, progress: Progress::Events };
    let bars_height = BARS_TITLE_HEIGHT + BAR_HEIGHT * panel.series.len() as i32 + BARS_FOOT;
    let figures_height = bars_height * figures.len().div_ceil(COLUMNS) as i32;
    let key = timeline::key(WIDTH, &panel, Quantity::Rss);
    let height = TITLE_HEIGHT + figures_height + TIMELINE_HEIGHT + key.height();
    Sketch::new((WIDTH, height as u32), move |page| {
        let (head, rest) = page.split_vertically(TITLE_HEIGHT);
        head.draw_text(&panel.title, &text(20, &INK), (MARGIN, 16)).map_err(drawing)?;
        let (bars, rest) = rest.split_vertically(figures_height);
        let areas = bars.split_evenly((figures.len().div_ceil(COLUMNS), COLUMNS));
        for (area, figure) in areas.iter().zip(figures) {
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
