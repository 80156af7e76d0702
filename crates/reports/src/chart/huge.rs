//! Memory in huge pages over time.

use super::data::Panel;
use super::designs::sketch_parts;
use super::medium::Medium;
use super::sketch::Sketch;
use super::timeline::Quantity;

/// Draws the designs of a result. `None` if none of them has huge pages.
pub fn sketch(panels: &[Panel], medium: Medium) -> Option<Sketch<'_>> {
    let samples = panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.timeline);
    let has_huge = samples.map(|sample| Quantity::Huge.of(sample)).any(|bytes| bytes > 0);
    let caption = |_: &Panel| "memory in huge pages, transparent or hugetlb".to_string();
    has_huge.then(|| sketch_parts(panels, medium, caption, 0, Quantity::Huge)).flatten()
}
