//! Designs side by side: installs against peak residency, and residency over time.

use anyhow::Result;

use super::canvas::Area;
use super::data::Panel;
use super::hits::Hit;
use super::scatter::{self, drawing};
use super::sketch::Sketch;
use super::style::{FRONT, INK, SMALL_PX, text};
use super::timeline;

const PANEL_WIDTH: u32 = 740;
const TITLE_HEIGHT: i32 = 64;
const SCATTER_HEIGHT: i32 = 420;
const TIMELINE_HEIGHT: i32 = 320;

/// Several designs have a scatter and timelines, a single design its timeline. `None` if there are no designs.
pub fn sketch(panels: &[Panel]) -> Option<Sketch<'_>> {
    if panels.is_empty() {
        return None;
    }
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let legend = panels.iter().map(timeline::legend_height).max().unwrap_or(0);
    let is_single = panels.iter().all(|panel| panel.series.len() == 1);
    let scatter = if is_single { 0 } else { SCATTER_HEIGHT };
    let rows = panels.len().div_ceil(columns);
    let height = (TITLE_HEIGHT + scatter + TIMELINE_HEIGHT + legend) as u32 * rows as u32;
    let size = (PANEL_WIDTH * columns as u32, height);
    Some(Sketch::new(size, move |page| {
        let mut hits = Vec::new();
        for (area, panel) in page.split_evenly((rows, columns)).iter().zip(panels) {
            hits.extend(draw_panel(area, panel, scatter)?);
        }
        Ok(hits)
    }))
}

fn draw_panel(area: &Area, panel: &Panel, scatter_height: i32) -> Result<Vec<Hit>> {
    let (title, rest) = area.split_vertically(TITLE_HEIGHT);
    let (scatter_area, rest) = rest.split_vertically(scatter_height);
    let (timeline_area, legend_area) = rest.split_vertically(TIMELINE_HEIGHT);
    title.draw_text(&panel.title, &text(20, &INK), (20, 16)).map_err(drawing)?;
    let caption = match panel.series.as_slice() {
        [single] => single.text(),
        _ => "filled: Pareto front of installs and peak RSS; line: designs above and right of it are dominated".into(),
    };
    title.draw_text(&caption, &text(SMALL_PX, &FRONT), (20, 44)).map_err(drawing)?;
    let points = if scatter_height > 0 { scatter::draw(&scatter_area, panel)? } else { Vec::new() };
    let lines = timeline::draw(&timeline_area, panel)?;
    timeline::legend(&legend_area, panel)?;
    Ok(points.into_iter().chain(lines).collect())
}
