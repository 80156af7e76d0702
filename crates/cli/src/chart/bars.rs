//! Installs by reason or class, as bars.

use anyhow::Result;
use plotters::prelude::*;
use serde_json::Value;

use super::labels::label_width;
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, Look, SMALL_PX, text};
use super::subject::Subject;
use crate::output::units::{count, percent};

/// At most this many bars; the rest is one bar.
const BARS_MAX: usize = 14;
const BAR_HEIGHT: i32 = 24;
const TOP: i32 = 48;
const WIDTH: i32 = 740;
/// Space for a figure to the right of a bar.
const FIGURE_WIDTH: i32 = 150;

/// Installs by reason; `None` if the result has no installs.
///
/// # Errors
/// Drawing fails.
pub fn reasons(subject: &Subject<'_>) -> Result<Option<Sketch<'static>>> {
    let by_reason = subject.result["installs"]["by_reason"].as_object();
    let named = |(name, value): (&String, &Value)| Some((name.replace('_', " "), value.as_u64()?));
    bars(subject.rank(), "installs by reason", by_reason.into_iter().flatten().filter_map(named).collect())
}

/// Installs by size class; `None` if the result is no explanation.
///
/// # Errors
/// Drawing fails.
pub fn classes(subject: &Subject<'_>) -> Result<Option<Sketch<'static>>> {
    let classes = subject.result["by"]["class"].as_array();
    let named = |part: &Value| Some((part["name"].as_str()?.to_string(), part["installs"].as_u64()?));
    bars(
        subject.rank(),
        "installs by size class (bytes of its blocks)",
        classes.into_iter().flatten().filter_map(named).collect(),
    )
}

fn bars(rank: usize, title: &'static str, mut parts: Vec<(String, u64)>) -> Result<Option<Sketch<'static>>> {
    parts.retain(|&(_, installs)| installs > 0);
    parts.sort_by_key(|&(_, installs)| std::cmp::Reverse(installs));
    let total: u64 = parts.iter().map(|&(_, installs)| installs).sum();
    if parts.is_empty() {
        return Ok(None);
    }
    let rest = parts.split_off(parts.len().min(BARS_MAX));
    if !rest.is_empty() {
        parts.push((format!("{} more", rest.len()), rest.iter().map(|&(_, installs)| installs).sum()));
    }
    let names_width = parts.iter().map(|(name, _)| label_width(name, SMALL_PX)).max().unwrap_or(0) + 24;
    let most = parts.iter().map(|&(_, installs)| installs).max().unwrap_or(1).max(1);
    let height = TOP + BAR_HEIGHT * parts.len() as i32 + 12;
    let size = (WIDTH as u32, height as u32);
    Ok(Some(Sketch::new(size, move |page| {
        page.draw_text(title, &text(18, &INK), (20, 16)).map_err(drawing)?;
        let room = (WIDTH - names_width - FIGURE_WIDTH) as f64;
        for (number, (name, installs)) in parts.iter().enumerate() {
            let y = TOP + BAR_HEIGHT * number as i32;
            let end = names_width + (room * *installs as f64 / most as f64).ceil() as i32;
            let bar = Rectangle::new([(names_width, y), (end, y + BAR_HEIGHT - 8)], Look::of(rank).colour.filled());
            page.draw(&bar).map_err(drawing)?;
            page.draw_text(name, &text(SMALL_PX, &INK), (16, y + 2)).map_err(drawing)?;
            let figure = format!("{} ({})", count(*installs), percent(*installs, total));
            page.draw_text(&figure, &text(SMALL_PX, &INK), (end + 6, y + 2)).map_err(drawing)?;
        }
        Ok(Vec::new())
    })))
}
