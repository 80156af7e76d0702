//! Live bytes of each SuperSlab over time.

use crate::error::{Context, Result};
use hksim_results::explain::Occupancy;
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::head::{Entry, Sample};
use super::medium::Medium;
use super::over_time::{self, Band, Frame, Scale};
use super::scatter::drawing;
use super::sketch::Sketch;

/// The colour of a full SuperSlab.
const FULL: RGBColor = RGBColor(0, 114, 178);

/// Draws the occupancy of an explanation; `None` if the result has none.
///
/// # Errors
/// The data are damaged.
pub fn sketch(result: &Value, medium: Medium) -> Result<Option<Sketch<'static>>> {
    let Some(list) = result.get("occupancy").filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) else {
        return Ok(None);
    };
    let superslabs: Vec<Occupancy> = Deserialize::deserialize(list).context("`occupancy` is damaged")?;
    let times_ns: Vec<u64> = Deserialize::deserialize(&result["page_map"]["times_ns"]).context("no `times_ns`")?;
    let superslab_bytes = result["policy"]["superslab_bytes"].as_u64().context("no `superslab_bytes`")?;
    let end_ns = times_ns.last().copied().unwrap_or(0).max(1);
    let band = |superslab: &Occupancy| Band { name: superslab.superslab.to_string(), rows: 1 };
    let frame = Frame {
        medium,
        title: "live bytes in each SuperSlab".to_string(),
        key: scale(),
        time_note: "",
        end_ns,
        name: "SuperSlab".to_string(),
        scale: Scale::Bands(superslabs.iter().map(band).collect()),
        height: over_time::HEIGHT,
    };
    let unit = frame.unit_ns();
    Ok(Some(frame.sketch(move |chart| {
        let at = |index: usize| times_ns.get(index).map_or(end_ns, |&ns| ns) as f64 / unit;
        for (row, superslab) in superslabs.iter().enumerate() {
            let (low, high) = (row as f64, row as f64 + 1.0);
            let mut first = 0;
            for same in superslab.live_bytes.chunk_by(|a, b| a == b) {
                // A huge block counts in its first SuperSlab.
                let share = (same[0] as f64 / superslab_bytes as f64).min(1.0);
                let cell = Rectangle::new([(at(first), low), (at(first + same.len()), high)], shade(share).filled());
                first += same.len();
                if same[0] > 0 {
                    chart.draw_series([cell]).map_err(drawing)?;
                }
            }
        }
        Ok(())
    })))
}

/// What the colours mean.
fn scale() -> Vec<Entry> {
    let share = |(share, name): (f64, &str)| Entry { name: name.to_string(), sample: Sample::Fill(shade(share)) };
    let empty = Entry { name: "empty".to_string(), sample: Sample::Fill(WHITE) };
    let shares = [(0.0, "hardly filled"), (0.5, "half full"), (1.0, "full")];
    std::iter::once(empty).chain(shares.map(share)).collect()
}

/// The colour of a share of live bytes: between nearly white and [`FULL`].
fn shade(share: f64) -> RGBColor {
    let mix = |full: u8| (255.0 - (255.0 - f64::from(full)) * (0.08 + 0.92 * share)).round() as u8;
    RGBColor(mix(FULL.0), mix(FULL.1), mix(FULL.2))
}
