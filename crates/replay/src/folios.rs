//! How the pages that a populating call made are told apart into folios: no trap tells it.

use std::io;

use hksim_linux_probe::page_flags::{FolioPart, PageFlags};
use hksim_linux_probe::pagemap::PageMap;

use crate::environment;
use crate::shadow::FRAME_PAGES;

/// The parts of a frame's pages in their folios.
pub(crate) type FolioParts = [FolioPart; FRAME_PAGES];

/// What tells.
pub(crate) enum Folios {
    /// Sizes between 4K and 2M are off: every page is a folio.
    Off,
    /// The kernel's flags of page frames, for root.
    Flags(FolioReader),
    /// One size is on, of so many pages: counts of pages and of faults tell how many folios there are.
    OneSize(u64),
    /// Several sizes are on, and nothing tells them apart.
    Untold,
}

impl Folios {
    /// The best way on this machine.
    pub(crate) fn new() -> Folios {
        match (environment::folio_pages().as_slice(), PageFlags::open()) {
            ([], _) => Folios::Off,
            (sizes, flags) => match (flags.and_then(FolioReader::new), sizes) {
                (Ok(reader), _) => Folios::Flags(reader),
                (Err(_), &[pages]) => Folios::OneSize(pages),
                (Err(_), _) => Folios::Untold,
            },
        }
    }

    /// The parts of the pages of a frame, where flags tell them. Allocates nothing.
    pub(crate) fn parts(&mut self, first_page: u64) -> Option<FolioParts> {
        if let Folios::Flags(reader) = self { Some(reader.parts(first_page)) } else { None }
    }
}

/// From a page to the flags of its frame.
pub(crate) struct FolioReader {
    flags: PageFlags,
    map: PageMap,
    numbers: Box<[u64; FRAME_PAGES]>,
}

impl FolioReader {
    fn new(flags: PageFlags) -> io::Result<FolioReader> {
        Ok(FolioReader { flags, map: PageMap::open()?, numbers: Box::new([0; FRAME_PAGES]) })
    }

    fn parts(&mut self, first_page: u64) -> FolioParts {
        self.map.frame_numbers(first_page, &mut self.numbers[..]);
        std::array::from_fn(|at| match self.numbers[at] {
            0 => FolioPart::Single, // absent: not asked for
            number => self.flags.part(number).unwrap_or(FolioPart::Single),
        })
    }
}
