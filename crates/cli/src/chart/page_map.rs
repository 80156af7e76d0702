//! The state of every page over time: address from the bottom up, time to the right.

use anyhow::{Context, Result};
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::over_time::{self, Axis};
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, SMALL_PX, text, time_unit};

const SIZE: (u32, u32) = (over_time::SIZE.0, 560);

#[derive(Deserialize)]
struct Map {
    cell_pages: u64,
    times_ns: Vec<u64>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    superslab: Option<u64>,
    states: String,
}

/// A state: its letter, colour and name. Colours differ in lightness, too.
const STATES: [(char, RGBColor, &str); 4] = [
    ('r', RGBColor(86, 180, 233), "resident"),
    ('h', RGBColor(0, 114, 178), "huge page"),
    ('p', RGBColor(225, 225, 225), "purged"),
    ('f', RGBColor(213, 94, 0), "resident again after a purge"),
];

/// Draws the map of an explanation; `None` if the result has none.
///
/// # Errors
/// The map is damaged.
pub fn sketch(result: &Value) -> Result<Option<Sketch<'static>>> {
    let Some(map) = result.get("page_map").filter(|map| map["rows"].as_array().is_some_and(|rows| !rows.is_empty()))
    else {
        return Ok(None);
    };
    let map = Map::deserialize(map).context("`page_map` is damaged")?;
    let end_ns = map.times_ns.last().copied().unwrap_or(0).max(1);
    let (unit, unit_name) = time_unit(end_ns);
    Ok(Some(Sketch::new(SIZE, move |page| {
        let title = format!("pages over time; a row is {} KiB, the lowest address at the bottom", map.cell_pages * 4);
        let time = Axis { name: unit_name, end: end_ns as f64 / unit };
        let rows = Axis { name: "touched pages, by address", end: map.rows.len() as f64 };
        let mut chart = over_time::chart(page, &title, &time, &rows)?;
        let at = |index: usize| map.times_ns.get(index).map_or(end_ns, |&ns| ns) as f64 / unit;
        for (number, row) in map.rows.iter().enumerate() {
            let (low, high) = (number as f64, number as f64 + 1.0);
            for (first, after, letter) in runs(&row.states) {
                let Some((_, colour, _)) = STATES.iter().find(|(known, _, _)| *known == letter) else { continue };
                let cell = Rectangle::new([(at(first), low), (at(after), high)], colour.filled());
                chart.draw_series([cell]).map_err(drawing)?;
            }
        }
        for (number, pair) in map.rows.windows(2).enumerate() {
            if pair[0].superslab != pair[1].superslab {
                let border = number as f64 + 1.0;
                let line = PathElement::new([(0.0, border), (end_ns as f64 / unit, border)], INK.mix(0.35));
                chart.draw_series([line]).map_err(drawing)?;
            }
        }
        let mut x = 300;
        for (_, colour, name) in STATES {
            page.draw(&Rectangle::new([(x, 30), (x + 14, 42)], colour.filled())).map_err(drawing)?;
            page.draw_text(name, &text(SMALL_PX, &INK), (x + 20, 30)).map_err(drawing)?;
            x += 40 + 7 * name.len() as i32;
        }
        Ok(Vec::new())
    })))
}

/// Runs of equal letters: the first index, the index after the last, and the letter.
fn runs(states: &str) -> Vec<(usize, usize, char)> {
    let mut runs: Vec<(usize, usize, char)> = Vec::new();
    for (index, letter) in states.chars().enumerate() {
        match runs.last_mut() {
            Some((_, after, last)) if *last == letter => *after = index + 1,
            _ => runs.push((index, index + 1, letter)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_all_letters() {
        assert_eq!(runs("..rrp"), [(0, 2, '.'), (2, 4, 'r'), (4, 5, 'p')]);
        assert_eq!(runs(""), []);
    }
}
