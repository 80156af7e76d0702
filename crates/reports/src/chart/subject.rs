//! Results to draw, with one colour and shape for each design in all of them.

use std::collections::BTreeMap;

use crate::error::Result;
use serde_json::Value;

use super::data::{Panel, Series, panels};

/// A result, and its designs.
pub struct Subject<'a> {
    /// The JSON result.
    pub result: &'a Value,
    /// Its designs, by trace; empty if the result has none to compare.
    pub panels: Vec<Panel>,
}

impl<'a> Subject<'a> {
    /// Reads a result.
    ///
    /// # Errors
    /// The result is damaged.
    pub fn of(result: &'a Value) -> Result<Subject<'a>> {
        let has = |name: &str| result.get(name).is_some();
        let has_designs = (has("rows") && has("pareto")) || (has("installs") && has("timeline"));
        let mut subject = Subject { result, panels: if has_designs { panels(result)? } else { Vec::new() } };
        rank(std::slice::from_mut(&mut subject));
        Ok(subject)
    }

    /// The rank of its only design; that of the first if it has several or none.
    pub fn rank(&self) -> usize {
        self.panels.first().and_then(|panel| panel.series.first()).map_or(0, |series| series.rank)
    }
}

/// Gives each design one rank in all panels of all results: designs on a front first, in the order of the panels.
pub fn rank(subjects: &mut [Subject<'_>]) {
    rank_panels(&mut subjects.iter_mut().flat_map(|subject| &mut subject.panels).collect::<Vec<_>>());
}

fn rank_panels(panels: &mut [&mut Panel]) {
    let mut ranks: BTreeMap<String, usize> = BTreeMap::new();
    let mut next = 0;
    let mut used: Vec<Vec<usize>> = vec![Vec::new(); panels.len()];
    for is_front in [true, false] {
        for (panel, used) in panels.iter_mut().zip(&mut used) {
            for series in panel.series.iter_mut().filter(|series| series.is_front == is_front) {
                series.rank = known(series, &ranks, used).unwrap_or(next);
                next = next.max(series.rank + 1);
                used.push(series.rank);
                for design in &series.designs {
                    ranks.entry(design.clone()).or_insert(series.rank);
                }
            }
        }
    }
}

/// The rank of the first of its designs that has one, which nothing else in its panel has: elsewhere the designs of two
/// series may have equal figures, and one rank.
fn known(series: &Series, ranks: &BTreeMap<String, usize>, used: &[usize]) -> Option<usize> {
    series.designs.iter().filter_map(|design| ranks.get(design)).copied().find(|rank| !used.contains(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::data::{Cost, Progress};

    fn panel(series: &[(&[&str], bool)]) -> Panel {
        let one = |&(designs, is_front): &(&[&str], bool)| Series {
            designs: designs.iter().map(|design| (*design).to_string()).collect(),
            is_front,
            ..Series::default()
        };
        Panel {
            title: String::new(),
            floor_bytes: 0,
            series: series.iter().map(one).collect(),
            progress: Progress::Time,
            cost: Cost::Installs,
        }
    }

    fn ranks(mut panels: Vec<Panel>) -> Vec<Vec<usize>> {
        rank_panels(&mut panels.iter_mut().collect::<Vec<_>>());
        panels.iter().map(|panel| panel.series.iter().map(|series| series.rank).collect()).collect()
    }

    #[test]
    fn a_design_has_one_rank_in_all_panels_those_of_a_front_first() {
        let first = panel(&[(&["e"], true), (&["a"], false), (&["c"], false)]);
        let second = panel(&[(&["c"], true), (&["e"], false), (&["h"], false)]);
        assert_eq!(ranks(vec![first, second]), [vec![0, 2, 1], vec![1, 0, 3]]);
    }

    #[test]
    fn a_single_design_has_the_rank_of_its_group() {
        let several = panel(&[(&["a"], true), (&["b", "c"], true)]);
        assert_eq!(ranks(vec![several, panel(&[(&["c"], true)])]), [vec![0, 1], vec![1]]);
    }

    #[test]
    fn two_designs_of_a_panel_never_share_a_rank() {
        let together = panel(&[(&["a", "b"], true)]);
        let apart = panel(&[(&["b"], true), (&["a"], true)]);
        assert_eq!(ranks(vec![together, apart]), [vec![0], vec![0, 1]]);
    }
}
