//! The states of pages over time: which are resident, huge, purged or resident again.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_linux_mm::{Kernel, PageState};
use rangemap::RangeSet;

use crate::accounting::LoggedInstalls;

/// Number of samples.
pub const SAMPLES: u64 = 128;
/// Maximum number of rows of a map.
const ROWS_MAX: usize = 512;

/// The state of most of the touched pages in one row at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellState {
    /// Never present so far.
    Untouched,
    /// Present in pages below 2 MiB.
    Resident,
    /// Present in huge pages.
    Huge,
    /// Not present, but it was.
    Purged,
    /// Present again after a purge or a split.
    Refaulted,
}

impl CellState {
    /// Its letter in results.
    pub fn letter(self) -> char {
        match self {
            CellState::Untouched => '.',
            CellState::Resident => 'r',
            CellState::Huge => 'h',
            CellState::Purged => 'p',
            CellState::Refaulted => 'f',
        }
    }
}

/// Pages of a row that were ever present.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    resident: u64,
    huge: u64,
    purged: u64,
    refaulted: u64,
}

impl Cell {
    /// The most frequent state. Of equally frequent states, the one that says most about the past.
    fn state(self) -> CellState {
        let Cell { resident, huge, purged, refaulted } = self;
        let states = [
            (resident, CellState::Resident),
            (huge, CellState::Huge),
            (purged, CellState::Purged),
            (refaulted, CellState::Refaulted),
        ];
        let most = states.into_iter().max_by_key(|&(pages, _)| pages);
        most.filter(|&(pages, _)| pages > 0).map_or(CellState::Untouched, |(_, state)| state)
    }

    fn merge(&mut self, other: Cell) {
        self.resident += other.resident;
        self.huge += other.huge;
        self.purged += other.purged;
        self.refaulted += other.refaulted;
    }
}

/// The states of ranges of pages over time. Pages are numbered from the start of the reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMap {
    /// Pages of a row: a power of two.
    pub cell_pages: u64,
    /// The rows that were ever touched, in the order of their pages; at most 512.
    pub rows: Vec<MapRow>,
}

/// A map in the making.
#[derive(Clone, Debug)]
pub(super) struct PageMapBuilder {
    cell_pages: u64,
    samples: Vec<BTreeMap<u64, Cell>>,
    /// Pages that were ever present.
    touched: RangeSet<u64>,
    /// Pages whose last install was a refault.
    refaulted: RangeSet<u64>,
}

/// A row of a finished map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRow {
    /// The SuperSlab of the first page; `None` for the allocator's tables.
    pub superslab: Option<u32>,
    /// The first page.
    pub first_page: u64,
    /// The state at each sample.
    pub states: Vec<CellState>,
}

impl PageMapBuilder {
    pub(super) fn new() -> PageMapBuilder {
        PageMapBuilder { cell_pages: 1, samples: Vec::new(), touched: RangeSet::new(), refaulted: RangeSet::new() }
    }

    /// Records installs. `pages` are those of `logged`, numbered from the start of the reservation.
    pub(super) fn installed(&mut self, logged: &LoggedInstalls, pages: Range<u64>) {
        if logged.reason.is_refault() {
            self.refaulted.insert(pages.clone());
        } else {
            self.refaulted.remove(pages.clone());
        }
        self.touched.insert(pages);
    }

    /// Takes a sample. `ranges` are the mapped ranges: the number of the first page, and the pages in the simulated
    /// address space.
    pub(super) fn sample(&mut self, kernel: &Kernel, ranges: impl Iterator<Item = (u64, Range<u64>)>) {
        let mut cells: BTreeMap<u64, Cell> = BTreeMap::new();
        let mut absent = self.touched.clone();
        for (first, pages) in ranges {
            for run in kernel.page_states(pages.clone()) {
                let is_huge = match run.state {
                    PageState::None => continue,
                    PageState::Thp | PageState::HugeZero | PageState::Hugetlb => true,
                    PageState::Base | PageState::Mthp | PageState::Zero => false,
                };
                let numbered = first + run.first_page - pages.start;
                let numbered = numbered..numbered + run.pages;
                absent.remove(numbered.clone());
                self.present(&mut cells, numbered, is_huge);
            }
        }
        for range in absent.iter() {
            self.each_cell(range.clone(), |cell, pages| {
                cells.entry(cell).or_default().purged += pages.end - pages.start
            });
        }
        self.samples.push(cells);
        while self.rows() > ROWS_MAX {
            self.merge_cells();
        }
    }

    fn present(&self, cells: &mut BTreeMap<u64, Cell>, pages: Range<u64>, is_huge: bool) {
        self.each_cell(pages, |cell, pages| {
            let count = pages.end - pages.start;
            let refaulted = if is_huge { 0 } else { count_in(&self.refaulted, &pages) };
            let cell = cells.entry(cell).or_default();
            cell.refaulted += refaulted;
            *(if is_huge { &mut cell.huge } else { &mut cell.resident }) += count - refaulted;
        });
    }

    /// Calls `each` with each cell that a range meets, and the pages in it.
    fn each_cell(&self, pages: Range<u64>, mut each: impl FnMut(u64, Range<u64>)) {
        let mut at = pages.start;
        while at < pages.end {
            let cell = at / self.cell_pages;
            let end = pages.end.min((cell + 1) * self.cell_pages);
            each(cell, at..end);
            at = end;
        }
    }

    fn rows(&self) -> usize {
        // Pages that were ever present stay in the map, so the last sample has every row.
        self.samples.last().map_or(0, BTreeMap::len)
    }

    /// Joins each two neighbouring cells.
    fn merge_cells(&mut self) {
        self.cell_pages *= 2;
        for sample in &mut self.samples {
            let mut merged: BTreeMap<u64, Cell> = BTreeMap::new();
            std::mem::take(sample)
                .into_iter()
                .for_each(|(cell, pages)| merged.entry(cell / 2).or_default().merge(pages));
            *sample = merged;
        }
    }

    /// The map. `superslab_of` returns the SuperSlab of a page.
    pub(super) fn finish(&self, superslab_of: impl Fn(u64) -> Option<u32>) -> PageMap {
        let row = |&cell: &u64| MapRow {
            superslab: superslab_of(cell * self.cell_pages),
            first_page: cell * self.cell_pages,
            states: self.samples.iter().map(|sample| sample.get(&cell).copied().unwrap_or_default().state()).collect(),
        };
        let rows = self.samples.last().map_or_else(Vec::new, |last| last.keys().map(row).collect());
        PageMap { cell_pages: self.cell_pages, rows }
    }
}
/// Number of elements of a range that are in a set.
fn count_in(set: &RangeSet<u64>, range: &Range<u64>) -> u64 {
    set.overlapping(range).map(|found| found.end.min(range.end) - found.start.max(range.start)).sum()
}
