//! The aligned 2 MiB ranges of a process by address: which are huge, what the others can become, and why not.

use std::collections::BTreeMap;

use hksim_inspect::MapRun;
use hksim_inspect::machine::HUGE_BYTES;
use hksim_inspect::verdict::{Obstacle, Way};
use hksim_linux_mm::PlaceObstacle;
use hksim_results::Kind;
use hksim_text::plain;
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::canvas::Area;
use super::head::{Entry, Head, Key, Sample};
use super::medium::Medium;
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, SMALL_PX, text};
use crate::error::{Context, Result};
use hksim_text::units::bytes;

/// Cells of a picture at most; with more ranges, a cell stands for several.
const CELLS_MAX: usize = 4096;
/// Ranges of a process that are drawn at most: 16 TiB.
const RANGES_MAX: usize = 8 << 20;
/// A run of empty ranges is drawn up to here.
const EMPTY_MAX: u64 = 64;
/// Left of the cells: an address.
const LEFT: i32 = 118;
const RIGHT: i32 = 20;
const BOTTOM: i32 = 14;
/// Height of the line above the cells of each look.
const LOOK_LINE: i32 = 22;
/// Between two rows of cells.
const ROW_GAP: i32 = 2;

/// The parts of an inspection that are drawn.
#[derive(Deserialize)]
struct Inspected {
    pid: u32,
    program: String,
    map: Vec<MapRun>,
    before: Option<Earlier>,
}

#[derive(Deserialize)]
struct Earlier {
    waited_s: f64,
    map: Vec<MapRun>,
}

/// What ranges of one colour have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shade {
    group: Group,
    obstacle: Option<Obstacle>,
}

/// Shades whose colours are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Huge,
    NextFault,
    Khugepaged,
    CollapseCall,
    Not,
    Empty,
}

/// One or more ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    /// The address of the first one.
    address: u64,
    /// `None`: between the mappings.
    shade: Option<Shade>,
}

/// One look at the process.
struct Look {
    title: String,
    cells: Vec<Cell>,
}

/// Draws the ranges of an inspection, or of both of its looks; `None` if the result is another one, or has no ranges.
///
/// # Errors
/// The map is damaged.
pub fn sketch(result: &Value, medium: Medium) -> Result<Option<Sketch<'static>>> {
    if !matches!(Kind::of("", result), Ok(Kind::Inspect)) {
        return Ok(None);
    }
    let Inspected { pid, program, map, before } =
        Inspected::deserialize(result).context("the map of `inspect` is damaged")?;
    let mut looks = vec![Look { title: String::new(), cells: cells(&map) }];
    if let Some(before) = before {
        looks[0].title = format!("{:.1} s later", before.waited_s);
        looks.insert(0, Look { title: "first look".to_string(), cells: cells(&before.map) });
    }
    let most = looks.iter().map(|look| look.cells.len()).max().unwrap_or(0);
    if most == 0 {
        return Ok(None);
    }
    let per_cell = most.div_ceil(CELLS_MAX).next_power_of_two();
    looks.iter_mut().for_each(|look| look.cells = merged(&look.cells, per_cell));
    let title = format!("process {pid} ({}): 2 MiB ranges by address", plain(&program));
    let grid = Grid::of(medium, per_cell as u64);
    Ok(Some(drawn(&title, looks, grid, medium)))
}

/// The cells of a map, one for each range: in the order of addresses, with one between ranges that do not follow each
/// other. A range of two mappings is drawn for the first one.
fn cells(map: &[MapRun]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut end = None;
    for run in map.iter().filter(|run| !is_reservation(run)) {
        let shade = Shade::of(run);
        if end.is_some_and(|end| end < run.address) {
            cells.push(Cell { address: end.unwrap_or_default(), shade: None });
        }
        let is_empty = run.small_bytes == 0 && shade.group != Group::Huge;
        let shown = if is_empty { run.ranges.min(EMPTY_MAX) } else { run.ranges };
        let room = RANGES_MAX.saturating_sub(cells.len()) as u64;
        let address = |number: u64| run.address.saturating_add(number.saturating_mul(HUGE_BYTES));
        let of_run = (0..shown.min(room)).map(address).filter(|at| end.is_none_or(|end| end <= *at));
        cells.extend(of_run.map(|address| Cell { address, shade: Some(shade) }));
        end = end.max(Some(address(shown)));
    }
    cells
}

/// Whether nothing is in its ranges, and nothing can be written to them.
fn is_reservation(run: &MapRun) -> bool {
    run.small_bytes == 0 && run.obstacle == Some(Obstacle::Place(PlaceObstacle::NotWritable))
}

/// Every `number` cells as one, with the most frequent shade of those that have one.
fn merged(cells: &[Cell], number: usize) -> Vec<Cell> {
    let one = |part: &[Cell]| {
        let mut counts: BTreeMap<Shade, usize> = BTreeMap::new();
        part.iter().filter_map(|cell| cell.shade).for_each(|shade| *counts.entry(shade).or_default() += 1);
        let most = counts.into_iter().max_by_key(|&(shade, count)| (count, std::cmp::Reverse(shade)));
        Cell { address: part[0].address, shade: most.map(|(shade, _)| shade) }
    };
    cells.chunks(number.max(1)).map(one).collect()
}

impl Shade {
    fn of(run: &MapRun) -> Shade {
        let group = match run.way {
            Way::IsHuge => Group::Huge,
            Way::NextFault => Group::NextFault,
            Way::Khugepaged => Group::Khugepaged,
            Way::CollapseCall => Group::CollapseCall,
            Way::None if run.small_bytes == 0 => Group::Empty,
            Way::None => Group::Not,
        };
        let has_reason = matches!(group, Group::CollapseCall | Group::Not | Group::Empty);
        Shade { group, obstacle: run.obstacle.filter(|_| has_reason) }
    }

    fn name(self) -> String {
        let why = self.obstacle.map_or(String::new(), |obstacle| format!(": {}", obstacle.words()));
        match self.group {
            Group::Huge => "huge".to_string(),
            Group::NextFault => "empty, huge at the next write".to_string(),
            Group::Khugepaged => "small pages, huge by khugepaged".to_string(),
            Group::CollapseCall => format!("small pages, huge by MADV_COLLAPSE only{why}"),
            Group::Not => format!("small pages{why}"),
            Group::Empty => format!("empty{why}"),
        }
    }
}

impl Group {
    /// Colours for readers who are colour-blind, too; the last one serves for all further shades.
    fn colours(self) -> &'static [RGBColor] {
        match self {
            Group::Huge => &[RGBColor(0, 114, 178)],
            Group::NextFault => &[RGBColor(0, 158, 115)],
            Group::Khugepaged => &[RGBColor(86, 180, 233)],
            Group::CollapseCall => &[RGBColor(230, 159, 0), RGBColor(240, 228, 66), RGBColor(150, 100, 0)],
            Group::Not => &[RGBColor(213, 94, 0), RGBColor(204, 121, 167), RGBColor(110, 50, 90), RGBColor(40, 40, 40)],
            Group::Empty => &[RGBColor(222, 222, 222), RGBColor(196, 196, 196), RGBColor(170, 170, 170)],
        }
    }
}

/// The colour of each shade: those with most cells first within their group.
fn colours(looks: &[Look]) -> Vec<(Shade, RGBColor)> {
    let mut counts: BTreeMap<Shade, usize> = BTreeMap::new();
    let shades = looks.iter().flat_map(|look| &look.cells).filter_map(|cell| cell.shade);
    shades.for_each(|shade| *counts.entry(shade).or_default() += 1);
    let mut shades: Vec<(Shade, usize)> = counts.into_iter().collect();
    shades.sort_by_key(|&(shade, count)| (shade.group, std::cmp::Reverse(count), shade));
    let of_group = shades.chunk_by(|(one, _), (other, _)| one.group == other.group);
    let coloured = of_group.flat_map(|shades| {
        shades.iter().enumerate().map(|(place, (shade, _))| {
            let colours = shade.group.colours();
            (*shade, colours[place.min(colours.len() - 1)])
        })
    });
    coloured.collect()
}

/// The places of cells.
#[derive(Clone, Copy)]
struct Grid {
    columns: usize,
    cell_px: i32,
    ranges_per_cell: u64,
}

impl Grid {
    fn of(medium: Medium, ranges_per_cell: u64) -> Grid {
        let columns = if medium == Medium::Phone { 32 } else { 64 };
        let cell_px = (medium.width() as i32 - LEFT - RIGHT) / columns;
        Grid { columns: columns as usize, cell_px, ranges_per_cell }
    }

    /// Height of a look in pixels.
    fn height(self, look: &Look) -> i32 {
        let line = if look.title.is_empty() { 0 } else { LOOK_LINE };
        line + self.row_px() * look.cells.len().div_ceil(self.columns) as i32
    }

    fn row_px(self) -> i32 {
        // As high as its address.
        self.cell_px.max(SMALL_PX) + ROW_GAP
    }

    fn caption(self) -> String {
        let row = bytes(self.ranges_per_cell.saturating_mul(HUGE_BYTES).saturating_mul(self.columns as u64));
        let cell = match self.ranges_per_cell {
            1 => "a cell is one range".to_string(),
            several => format!("a cell is {several} ranges, with the colour of most"),
        };
        format!(
            "private anonymous memory; {cell}, a row at most {row}; blank: other addresses. Left out: reservations without access, and of a run of \
             empty ranges those after the first {EMPTY_MAX}."
        )
    }

    fn draw(self, page: &Area<'_>, top: i32, look: &Look, colours: &[(Shade, RGBColor)]) -> Result<()> {
        let mut y = top;
        if !look.title.is_empty() {
            page.draw_text(&look.title, &text(SMALL_PX, &INK), (RIGHT, y + 2)).map_err(drawing)?;
            y += LOOK_LINE;
        }
        for row in look.cells.chunks(self.columns) {
            let address = format!("{:012x}", row[0].address);
            page.draw_text(&address, &text(SMALL_PX, &INK), (RIGHT, y)).map_err(drawing)?;
            let mut x = LEFT;
            for same in row.chunk_by(|one, other| one.shade == other.shade) {
                let end = x + self.cell_px * same.len() as i32;
                let colour = same[0].shade.and_then(|shade| colours.iter().find(|(known, _)| *known == shade));
                if let Some((_, colour)) = colour {
                    let corners = [(x, y), (end, y + self.row_px() - ROW_GAP)];
                    page.draw(&Rectangle::new(corners, colour.filled())).map_err(drawing)?;
                }
                x = end;
            }
            y += self.row_px();
        }
        Ok(())
    }
}

fn drawn(title: &str, looks: Vec<Look>, grid: Grid, medium: Medium) -> Sketch<'static> {
    let colours = colours(&looks);
    let entry = |(shade, colour): &(Shade, RGBColor)| Entry { name: shade.name(), sample: Sample::Fill(*colour) };
    let (head, key) = (
        Head::new(medium.width(), title, &grid.caption()),
        Key::new(medium.width(), colours.iter().map(entry).collect()),
    );
    let above = head.height() + key.height();
    let height = above + looks.iter().map(|look| grid.height(look)).sum::<i32>() + BOTTOM;
    Sketch::new((medium.width(), height as u32), move |page| {
        let (title, rest) = page.split_vertically(head.height());
        head.draw(&title)?;
        key.draw(&rest)?;
        let mut top = above;
        for look in &looks {
            grid.draw(page, top, look, &colours)?;
            top += grid.height(look);
        }
        Ok(Vec::new())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_linux_mm::SettingObstacle;

    const NOT_ADVISED: Option<Obstacle> = Some(Obstacle::Setting(SettingObstacle::NotAdvised));

    fn run(number: u64, ranges: u64, way: Way, small_bytes: u64) -> MapRun {
        let obstacle = NOT_ADVISED.filter(|_| matches!(way, Way::None | Way::CollapseCall));
        MapRun { address: number * HUGE_BYTES, ranges, way, obstacle, small_bytes }
    }

    /// A letter for each cell.
    fn letters(cells: &[Cell]) -> String {
        let letter = |cell: &Cell| match cell.shade.map(|shade| shade.group) {
            None => ' ',
            Some(Group::Huge) => 'h',
            Some(Group::NextFault) => 'w',
            Some(Group::Khugepaged) => 'k',
            Some(Group::CollapseCall) => 'c',
            Some(Group::Not) => 'n',
            Some(Group::Empty) => '.',
        };
        cells.iter().map(letter).collect()
    }

    #[test]
    fn each_range_has_a_cell_and_gaps_have_one() {
        let map = [run(8, 2, Way::IsHuge, 0), run(10, 1, Way::CollapseCall, 4096), run(20, 1, Way::None, 0)];
        assert_eq!(letters(&cells(&map)), "hhc .");
        assert_eq!(cells(&map)[4].address, 20 * HUGE_BYTES);
        let reserved =
            MapRun { obstacle: Some(Obstacle::Place(PlaceObstacle::NotWritable)), ..run(30, 1 << 40, Way::None, 0) };
        assert_eq!(cells(&[reserved]), []);
    }

    #[test]
    fn long_runs_of_empty_ranges_are_shortened_and_others_are_not() {
        let map = [run(0, 1000, Way::NextFault, 0), run(1000, 100, Way::IsHuge, 0)];
        let expected = "w".repeat(64) + " " + &"h".repeat(100);
        assert_eq!(letters(&cells(&map)), expected);
        // A damaged file.
        assert_eq!(cells(&[run(1, u64::MAX, Way::IsHuge, 0)]).len(), RANGES_MAX);
    }

    #[test]
    fn a_cell_of_several_ranges_has_the_shade_of_most() {
        let map = [run(0, 3, Way::IsHuge, 0), run(3, 3, Way::Khugepaged, 8), run(9, 1, Way::None, 8)];
        assert_eq!(letters(&cells(&map)), "hhhkkk n");
        assert_eq!(letters(&merged(&cells(&map), 4)), "hk");
    }
}
