//! Designs side by side: installs or time against peak residency, and residency over time.

use crate::error::Result;

use super::canvas::Area;
use super::data::Panel;
use super::head::{Head, Key};
use super::hits::Hit;
use super::medium::Medium;
use super::scatter;
use super::sketch::Sketch;
use super::timeline::{self, Quantity};

const SCATTER_HEIGHT: i32 = 420;
const TIMELINE_HEIGHT: i32 = 320;

/// One trace, with what is around its charts.
struct Part<'a> {
    panel: &'a Panel,
    head: Head,
    key: Key,
}

/// Several designs have a scatter and timelines, a single design its timeline. `None` if there are no designs.
pub fn sketch(panels: &[Panel], medium: Medium) -> Option<Sketch<'_>> {
    let is_single = panels.iter().all(|panel| panel.series.len() == 1);
    let scatter = if is_single { 0 } else { SCATTER_HEIGHT };
    let caption = |panel: &Panel| match panel.series.as_slice() {
        [single] => single.text(),
        _ => {
            let figure = panel.cost.name();
            let untimed = panel.series.iter().filter(|series| series.cost(panel.cost).is_none()).count();
            let left_out = if untimed == 0 { String::new() } else { format!("; {untimed} without a time") };
            format!(
                "filled: Pareto front of {figure} and peak RSS; line: designs above and right of it are dominated{left_out}"
            )
        }
    };
    sketch_parts(panels, medium, caption, scatter, Quantity::Rss)
}

/// Timelines of a quantity, below scatters of this height in pixels.
pub(super) fn sketch_parts(
    panels: &[Panel],
    medium: Medium,
    caption: impl Fn(&Panel) -> String,
    scatter: i32,
    quantity: Quantity,
) -> Option<Sketch<'_>> {
    let width = medium.width();
    let part = |panel| Part {
        panel,
        head: Head::new(width, &panel.title, &caption(panel)),
        key: timeline::key(width, panel, quantity),
    };
    let parts: Vec<Part> = panels.iter().map(part).collect();
    let head = parts.iter().map(|part| part.head.height()).max()?;
    let key = parts.iter().map(|part| part.key.height()).max()?;
    let columns = medium.columns(parts.len());
    let rows = parts.len().div_ceil(columns);
    let height = (head + scatter + TIMELINE_HEIGHT + key) as u32 * rows as u32;
    Some(Sketch::new((width * columns as u32, height), move |page| {
        let mut hits = Vec::new();
        for (area, part) in page.split_evenly((rows, columns)).iter().zip(&parts) {
            let (above, rest) = area.split_vertically(head);
            let (points, rest) = rest.split_vertically(scatter);
            let (lines, below) = rest.split_vertically(TIMELINE_HEIGHT);
            part.head.draw(&above)?;
            hits.extend(draw_points(&points, part.panel, scatter)?);
            hits.extend(timeline::draw(&lines, part.panel, quantity)?);
            part.key.draw(&below)?;
        }
        Ok(hits)
    }))
}

fn draw_points(area: &Area, panel: &Panel, height: i32) -> Result<Vec<Hit>> {
    if height > 0 { scatter::draw(area, panel) } else { Ok(Vec::new()) }
}
