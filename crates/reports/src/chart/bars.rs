//! Installs by reason, class or function, as bars.

use crate::error::{Context, Result};
use hksim_results::explain::Part;
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::head::Head;
use super::labels::{label_width, shortened};
use super::medium::Medium;
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, Look, SMALL_PX, text};
use super::subject::Subject;
use hksim_text::units::{count, percent};

/// At most this many bars; the rest is one bar.
const BARS_MAX: usize = 14;
const BAR_HEIGHT: i32 = 24;
/// Height of a name above its bar.
const NAME_HEIGHT: i32 = 18;
/// Shortest space for bars beside their names.
const BAR_LENGTH_MIN: i32 = 160;
const MARGIN: i32 = 20;
const GAP: i32 = 8;

/// Installs by reason; `None` if the result has no installs.
///
/// # Errors
/// The reasons are damaged, or drawing fails.
pub fn reasons(subject: &Subject<'_>, medium: Medium) -> Result<Option<Sketch<'static>>> {
    const TITLE: &str = "installs by reason";
    let Some(by_reason) = subject.result["installs"]["by_reason"].as_object() else {
        // Only `by` has the reasons of an explained replay.
        return by_key(subject, medium, "reason", TITLE);
    };
    let named = |(name, value): (&String, &Value)| Some((name.replace('_', " "), value.as_u64()?));
    bars(subject.rank(), medium, TITLE, by_reason.into_iter().filter_map(named).collect())
}

/// Installs by size class; `None` if the result is no explanation.
///
/// # Errors
/// The classes are damaged, or drawing fails.
pub fn classes(subject: &Subject<'_>, medium: Medium) -> Result<Option<Sketch<'static>>> {
    let title = match subject.result.get("allocator") {
        Some(_) => "installs by size class (bytes of the requests)",
        None => "installs by size class (bytes of its blocks)",
    };
    by_key(subject, medium, "class", title)
}

/// Installs by function of the library; `None` if the result is not of an explained replay.
///
/// # Errors
/// The functions are damaged, or drawing fails.
pub fn functions(subject: &Subject<'_>, medium: Medium) -> Result<Option<Sketch<'static>>> {
    by_key(subject, medium, "function", "installs by function of the library")
}

/// Installs by a key of an explanation; `None` if the result does not have the key.
fn by_key(subject: &Subject<'_>, medium: Medium, key: &str, title: &'static str) -> Result<Option<Sketch<'static>>> {
    let parts = subject.result["by"].get(key).map(Vec::<Part>::deserialize).transpose();
    let parts = parts.with_context(|| format!("`by.{key}` is damaged"))?.unwrap_or_default();
    // Words of results have underscores; names of the program stay as they are.
    let name = |name: String| if key == "reason" { name.replace('_', " ") } else { name };
    bars(subject.rank(), medium, title, parts.into_iter().map(|part| (name(part.name), part.installs)).collect())
}

fn bars(
    rank: usize,
    medium: Medium,
    title: &'static str,
    mut parts: Vec<(String, u64)>,
) -> Result<Option<Sketch<'static>>> {
    parts.retain(|&(_, installs)| installs > 0);
    parts.sort_by_key(|&(_, installs)| std::cmp::Reverse(installs));
    let total: u64 = parts.iter().map(|&(_, installs)| installs).sum();
    let width = medium.width() as i32;
    if parts.is_empty() {
        return Ok(None);
    }
    let rest = parts.split_off(parts.len().min(BARS_MAX));
    if !rest.is_empty() {
        parts.push((format!("{} more", rest.len()), rest.iter().map(|&(_, installs)| installs).sum()));
    }
    parts.iter_mut().for_each(|(name, _)| *name = shortened(name, SMALL_PX, width - 2 * MARGIN));
    let most = parts.iter().map(|&(_, installs)| installs).max().unwrap_or(1).max(1);
    let figure = |installs: u64| format!("{} ({})", count(installs), percent(installs, total));
    let widest = |labels: &mut dyn Iterator<Item = i32>| labels.max().unwrap_or(0);
    let names = widest(&mut parts.iter().map(|(name, _)| label_width(name, SMALL_PX)));
    let figures = widest(&mut parts.iter().map(|&(_, installs)| label_width(&figure(installs), SMALL_PX)));
    let beside = width - 2 * MARGIN - names - figures - 2 * GAP;
    // Names go above bars that would be too short beside them.
    let (left, above, longest) = if beside >= BAR_LENGTH_MIN {
        (MARGIN + names + GAP, 0, beside)
    } else {
        (MARGIN, NAME_HEIGHT, width - 2 * MARGIN - figures - GAP)
    };
    let head = Head::new(width as u32, title, "");
    let height = head.height() + (BAR_HEIGHT + above) * parts.len() as i32 + 12;
    let labels: Vec<String> = parts.iter().map(|&(_, installs)| figure(installs)).collect();
    Ok(Some(Sketch::new((width as u32, height as u32), move |page| {
        head.draw(page)?;
        for (number, ((name, installs), label)) in parts.iter().zip(&labels).enumerate() {
            let top = head.height() + (BAR_HEIGHT + above) * number as i32;
            let y = top + above;
            let end = left + (f64::from(longest) * *installs as f64 / most as f64).ceil() as i32;
            let bar = Rectangle::new([(left, y), (end, y + BAR_HEIGHT - 8)], Look::of(rank).colour.filled());
            page.draw(&bar).map_err(drawing)?;
            page.draw_text(name, &text(SMALL_PX, &INK), (MARGIN, top + 2)).map_err(drawing)?;
            page.draw_text(label, &text(SMALL_PX, &INK), (end + GAP, y + 2)).map_err(drawing)?;
        }
        Ok(Vec::new())
    })))
}
