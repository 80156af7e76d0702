//! The state of every page over time: address from the bottom up, time to the right.

use crate::error::{Context, Result};
use hksim_policy::PAGE_BYTES;
use hksim_results::explain::{MapResult, MapRowResult};
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::head::{Entry, Sample};
use super::medium::Medium;
use super::over_time::{Band, Frame, Scale};
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::INK;

/// Height of the chart in pixels.
const HEIGHT: i32 = 500;

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
pub fn sketch(result: &Value, medium: Medium) -> Result<Option<Sketch<'static>>> {
    let Some(map) = result.get("page_map").filter(|map| map["rows"].as_array().is_some_and(|rows| !rows.is_empty()))
    else {
        return Ok(None);
    };
    let MapResult { cell_pages, times_ns, rows } = MapResult::deserialize(map).context("`page_map` is damaged")?;
    let end_ns = times_ns.last().copied().unwrap_or(0).max(1);
    let is_drawn = |letter: char| rows.iter().any(|row| row.states.contains(letter));
    let key = STATES.into_iter().filter(|&(letter, ..)| is_drawn(letter));
    let frame = Frame {
        medium,
        title: format!(
            "touched pages over time, {} KiB a row, lowest address at the bottom",
            cell_pages * (PAGE_BYTES >> 10)
        ),
        key: key
            .map(|(_, colour, name)| (colour, name))
            .chain(rows.iter().any(|row| row.states.contains('.')).then_some((WHITE, "untouched")))
            .map(|(colour, name)| Entry { name: name.to_string(), sample: Sample::Fill(colour) })
            .collect(),
        time_note: "",
        end_ns,
        name: "SuperSlab".to_string(),
        scale: Scale::Bands(bands(&rows)),
        height: HEIGHT,
    };
    let unit = frame.unit_ns();
    Ok(Some(frame.sketch(move |chart| {
        let at = |index: usize| times_ns.get(index).map_or(end_ns, |&ns| ns) as f64 / unit;
        for (number, row) in rows.iter().enumerate() {
            let (low, high) = (number as f64, number as f64 + 1.0);
            for (first, after, letter) in runs(&row.states) {
                let Some((_, colour, _)) = STATES.iter().find(|(known, _, _)| *known == letter) else { continue };
                let cell = Rectangle::new([(at(first), low), (at(after), high)], colour.filled());
                chart.draw_series([cell]).map_err(drawing)?;
            }
        }
        let mut border = 0.0;
        for band in bands(&rows) {
            let line = PathElement::new([(0.0, border), (end_ns as f64 / unit, border)], INK.mix(0.35));
            chart.draw_series([line]).map_err(drawing)?;
            border += band.rows as f64;
        }
        Ok(())
    })))
}

/// Rows of one SuperSlab each. Those of the allocator's tables have no name.
fn bands(rows: &[MapRowResult]) -> Vec<Band> {
    let same = rows.chunk_by(|a, b| a.superslab == b.superslab);
    let name = |row: &MapRowResult| row.superslab.map(|superslab| superslab.to_string()).unwrap_or_default();
    same.map(|rows| Band { name: name(&rows[0]), rows: rows.len() as u64 }).collect()
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
