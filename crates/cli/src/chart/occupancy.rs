//! Live bytes of each SuperSlab over time: the darker, the fuller.

use anyhow::{Context, Result};
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::over_time::{self, Axis};
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::time_unit;

#[derive(Deserialize)]
struct SuperSlab {
    superslab: u64,
    live_bytes: Vec<u64>,
}

/// The colour of a full SuperSlab.
const FULL: RGBColor = RGBColor(0, 114, 178);

/// Draws the occupancy of an explanation; `None` if the result has none.
///
/// # Errors
/// The data are damaged.
pub fn sketch(result: &Value) -> Result<Option<Sketch<'static>>> {
    let Some(list) = result.get("occupancy").filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) else {
        return Ok(None);
    };
    let superslabs: Vec<SuperSlab> = Deserialize::deserialize(list).context("`occupancy` is damaged")?;
    let times_ns: Vec<u64> = Deserialize::deserialize(&result["page_map"]["times_ns"]).context("no `times_ns`")?;
    let superslab_bytes = result["policy"]["superslab_bytes"].as_u64().context("no `superslab_bytes`")?;
    let end_ns = times_ns.last().copied().unwrap_or(0).max(1);
    let (unit, unit_name) = time_unit(end_ns);
    let rows = superslabs.iter().map(|one| one.superslab).max().unwrap_or(0) + 1;
    Ok(Some(Sketch::new(over_time::SIZE, move |page| {
        let time = Axis { name: unit_name, end: end_ns as f64 / unit };
        let axis = Axis { name: "SuperSlab", end: rows as f64 };
        let title = "live bytes in each SuperSlab (white: empty; dark: full)";
        let mut chart = over_time::chart(page, title, &time, &axis)?;
        for SuperSlab { superslab, live_bytes } in &superslabs {
            let row = *superslab as f64;
            for (index, &bytes) in live_bytes.iter().enumerate().filter(|&(_, &bytes)| bytes > 0) {
                let at = |index: usize| times_ns.get(index).map_or(end_ns, |&ns| ns) as f64 / unit;
                // A huge block counts in its first SuperSlab.
                let share = (bytes as f64 / superslab_bytes as f64).min(1.0);
                let colour = FULL.mix(0.08 + 0.92 * share);
                let cell = Rectangle::new([(at(index), row), (at(index + 1), row + 1.0)], colour.filled());
                chart.draw_series([cell]).map_err(drawing)?;
            }
        }
        Ok(Vec::new())
    })))
}
