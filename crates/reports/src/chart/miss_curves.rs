//! TLB misses by number of entries, with the sizes of the core.

use crate::error::{Context, Result};
use hksim_sim::miss_curves::{MissCurves, MissPoint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Deserialize;
use serde_json::Value;

use super::head::{Entry, Head, Key, Sample};
use super::medium::Medium;
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{FRONT, INK, Look, SMALL_PX, labels_along, plain, text};
use super::subject::Subject;
use hksim_text::units::count;

/// Height of the chart in pixels.
const HEIGHT: i32 = 376;

/// Draws the miss curves of a simulation; `None` if it has none.
///
/// # Errors
/// The curves are damaged.
pub fn sketch(subject: &Subject<'_>, medium: Medium) -> Result<Option<Sketch<'static>>> {
    let result = subject.result;
    let Some(curves) = result.get("tlb").and_then(|tlb| tlb.get("miss_curves")) else { return Ok(None) };
    let curves = MissCurves::deserialize(curves).context("`miss_curves` is damaged")?;
    // Only the first is of the design. The others are in colours that no design has.
    let design = Look::of(subject.rank()).line();
    let named = [
        ("as mapped", curves.as_mapped, design),
        ("all 4K", curves.all_4k, INK.stroke_width(1)),
        ("all 2M", curves.all_2m, FRONT.stroke_width(1)),
    ];
    let most =
        named.iter().flat_map(|(_, points, _)| points.iter()).map(|point| point.misses).max().unwrap_or(1).max(1);
    let sizes = core_sizes(&result["tlb"]["core"]);
    let last = sizes.iter().map(|&(entries, _)| entries).max().unwrap_or(1).max(2048) as f64 * 1.5;
    let width = medium.width();
    let head = Head::new(width, "misses of a fully associative LRU TLB, by number of entries", "");
    let entry = |(name, _, style): &(&str, Vec<MissPoint>, ShapeStyle)| Entry {
        name: (*name).to_string(),
        sample: Sample::Line(*style),
    };
    let key = Key::new(width, named.iter().map(entry).collect());
    let top = head.height() + key.height();
    Ok(Some(Sketch::new((width, (top + HEIGHT) as u32), move |page| {
        let (above, rest) = page.split_vertically(head.height());
        let (colours, below) = rest.split_vertically(key.height());
        head.draw(&above)?;
        key.draw(&colours)?;
        let mut chart = ChartBuilder::on(&below)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(90)
            .build_cartesian_2d((1.0..last).log_scale(), (0.8..most as f64 * 2.0).log_scale())
            .map_err(drawing)?;
        let mut mesh = chart.configure_mesh();
        plain(&mut mesh)
            .x_desc("entries (log scale)")
            .y_desc("misses (log scale)")
            .x_labels(labels_along(&below))
            .x_label_formatter(&|entries| count(*entries as u64))
            .y_label_formatter(&|misses| count(*misses as u64))
            .draw()
            .map_err(drawing)?;
        for (_, points, style) in named.iter().rev() {
            // A curve ends where more entries no longer help.
            let end = points.last().map(|point| (last, point.misses.max(1) as f64));
            let line = points.iter().map(|point| (point.entries as f64, point.misses.max(1) as f64)).chain(end);
            chart.draw_series(LineSeries::new(line, *style)).map_err(drawing)?;
        }
        for (entries, name) in &sizes {
            let ends = [(*entries as f64, 0.8), (*entries as f64, most as f64 * 2.0)];
            chart.draw_series(DashedLineSeries::new(ends, 5, 4, FRONT.stroke_width(1))).map_err(drawing)?;
            // To the left of the line: it may be at the right edge.
            let (x, y) = chart.plotting_area().map_coordinate(&ends[1]);
            let style = text(SMALL_PX, &FRONT).pos(Pos::new(HPos::Right, VPos::Top));
            page.draw_text(name, &style, (x - 4, y + 2)).map_err(drawing)?;
        }
        Ok(Vec::new())
    })))
}

/// The numbers of entries of a core's levels, with names.
fn core_sizes(core: &Value) -> Vec<(u64, String)> {
    let name = core["name"].as_str().unwrap_or_default();
    let sizes = ["l1", "l2"].into_iter().flat_map(|level| {
        let array = |kind: &str, suffix: &str| {
            let entries = core[level].pointer(&format!("/{kind}/entries"))?.as_u64()?;
            Some((entries, format!("{name} {}{suffix}", level.to_uppercase())))
        };
        [array("shared", ""), array("split/base", " 4K"), array("split/huge", " 2M")]
    });
    sizes.flatten().collect()
}
