//! Finds the folios that a populating call installed. Such a call takes no traps from which they could be derived.

use std::io;

use hksim_linux_probe::page_flags::{FolioPart, PageFlags};
use hksim_linux_probe::pagemap::PageMap;

use crate::environment;
use crate::page_snapshot::FRAME_PAGES;

/// For each page of a frame, whether it is a single page, or the head or a tail of a larger folio.
pub(crate) type FolioParts = [FolioPart; FRAME_PAGES];

/// The source of information about folios.
pub(crate) enum Folios {
    /// Sizes between 4K and 2M are off: every page is a folio of its own.
    Off,
    /// The kernel's flags for page frames, which only root can read.
    Flags(FolioReader),
    /// One size is on, with this many pages: the counts of pages and of faults determine the number of folios.
    OneSize(u64),
    /// Several sizes are on, and they cannot be distinguished.
    Ambiguous,
}

impl Folios {
    /// The best source on this machine.
    pub(crate) fn new() -> Folios {
        match (environment::folio_pages().as_slice(), PageFlags::open()) {
            ([], _) => Folios::Off,
            (sizes, flags) => match (flags.and_then(FolioReader::new), sizes) {
                (Ok(reader), _) => Folios::Flags(reader),
                (Err(_), &[pages]) => Folios::OneSize(pages),
                (Err(_), _) => Folios::Ambiguous,
            },
        }
    }

    /// The folio parts of the pages of a frame, if flags are available. Does not allocate.
    pub(crate) fn parts(&mut self, first_page: u64) -> Option<FolioParts> {
        if let Folios::Flags(reader) = self { Some(reader.parts(first_page)) } else { None }
    }
}

/// Reads the folio part of each page from the flags of its page frame.
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
            0 => FolioPart::Single, // absent, so not queried
            number => self.flags.part(number).unwrap_or(FolioPart::Single),
        })
    }
}
