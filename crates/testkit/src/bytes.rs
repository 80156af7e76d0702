//! The bytes of an arena: pages that exist where they were written, and what the OS was told about them.

use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::Random;

const PAGE: usize = PAGE_BYTES as usize;
const LINK_BYTES: u64 = 4;

/// What stands at a page's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Mapped,
    Hugetlb,
    Hole,
}

/// A page that was written: its bytes, and where in it a link begins.
struct Page {
    bytes: [u8; PAGE],
    links: [u64; PAGE / 64],
}

impl Page {
    fn forget_links(&mut self, from: usize, to: usize) {
        // A link that begins up to three bytes before is damaged as well.
        for at in from.saturating_sub(LINK_BYTES as usize - 1)..to {
            self.links[at / 64] &= !(1 << (at % 64));
        }
    }
}

/// All pages of an arena.
pub(crate) struct Bytes {
    pages: Vec<Option<Box<Page>>>,
    backing: Vec<Backing>,
}

impl Bytes {
    pub(crate) fn new(bytes: u64) -> Bytes {
        let pages = (bytes / PAGE_BYTES) as usize;
        Bytes { pages: (0..pages).map(|_| None).collect(), backing: vec![Backing::Mapped; pages] }
    }

    pub(crate) fn backing(&self, pages: Range<u64>) -> &[Backing] {
        &self.backing[pages.start as usize..pages.end as usize]
    }

    pub(crate) fn set_backing(&mut self, pages: Range<u64>, backing: Backing) {
        self.backing[pages.start as usize..pages.end as usize].fill(backing);
        self.drop_pages(pages);
    }

    /// Pages read as zeros again.
    pub(crate) fn drop_pages(&mut self, pages: Range<u64>) {
        self.pages[pages.start as usize..pages.end as usize].fill_with(|| None);
    }

    /// Pages may be dropped, or keep what they had; links on them are lost, since nobody may rely on either.
    pub(crate) fn free_pages(&mut self, pages: Range<u64>, random: &mut Random) {
        for page in &mut self.pages[pages.start as usize..pages.end as usize] {
            let Some(kept) = page else { continue };
            kept.links.fill(0);
            match random.below(3) {
                0 => *page = None,
                1 => kept.bytes.fill(random.bits() as u8),
                _ => {}
            }
        }
    }

    /// Moves page contents; the source becomes a hole.
    pub(crate) fn move_pages(&mut self, from: Range<u64>, to: u64) {
        for (index, page) in from.clone().enumerate() {
            self.pages[to as usize + index] = self.pages[page as usize].take();
            self.backing[to as usize + index] = self.backing[page as usize];
        }
        self.set_backing(from, Backing::Hole);
    }

    /// The parts of a byte range, page by page: page, bytes in it, offset of the part in the range.
    fn parts(at: u64, bytes: u64) -> impl Iterator<Item = (usize, Range<usize>, u64)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == bytes {
                return None;
            }
            let (page, first) = ((at + done) / PAGE_BYTES, (at + done) % PAGE_BYTES);
            let step = (PAGE_BYTES - first).min(bytes - done);
            let part = (page as usize, first as usize..(first + step) as usize, done);
            done += step;
            Some(part)
        })
    }

    #[track_caller]
    fn expect_mapped(&self, page: usize) {
        assert!(self.backing[page] != Backing::Hole, "page {page} of the arena is touched, but not mapped");
    }

    #[track_caller]
    fn page_mut(&mut self, page: usize) -> &mut Page {
        self.expect_mapped(page);
        self.pages[page].get_or_insert_with(|| Box::new(Page { bytes: [0; PAGE], links: [0; PAGE / 64] }))
    }

    #[track_caller]
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        for (page, range, from) in Bytes::parts(at, data.len() as u64) {
            let page = self.page_mut(page);
            page.forget_links(range.start, range.end);
            let bytes = range.len();
            page.bytes[range].copy_from_slice(&data[from as usize..from as usize + bytes]);
        }
    }

    #[track_caller]
    pub(crate) fn fill(&mut self, at: u64, bytes: u64, with: u8) {
        for (page, range, _) in Bytes::parts(at, bytes) {
            let page = self.page_mut(page);
            page.forget_links(range.start, range.end);
            page.bytes[range].fill(with);
        }
    }

    #[track_caller]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        for (page, range, from) in Bytes::parts(at, into.len() as u64) {
            self.expect_mapped(page);
            let target = &mut into[from as usize..from as usize + range.len()];
            match &self.pages[page] {
                Some(page) => target.copy_from_slice(&page.bytes[range]),
                None => target.fill(0),
            }
        }
    }

    #[track_caller]
    pub(crate) fn is_zero(&self, at: u64, bytes: u64) -> bool {
        Bytes::parts(at, bytes).all(|(page, range, _)| {
            self.expect_mapped(page);
            self.pages[page].as_ref().is_none_or(|page| page.bytes[range.clone()] == [0; PAGE][range])
        })
    }

    #[track_caller]
    pub(crate) fn write_link(&mut self, at: u64, bits: u32) {
        self.write(at, &bits.to_le_bytes());
        let first = (at % PAGE_BYTES) as usize;
        assert!(first + LINK_BYTES as usize <= PAGE, "the link at {at:#x} straddles two pages");
        self.page_mut((at / PAGE_BYTES) as usize).links[first / 64] |= 1 << (first % 64);
    }

    #[track_caller]
    pub(crate) fn read_link(&self, at: u64) -> u32 {
        let first = (at % PAGE_BYTES) as usize;
        let page = self.pages[(at / PAGE_BYTES) as usize].as_ref();
        let page = page.filter(|page| page.links[first / 64] >> (first % 64) & 1 == 1);
        let Some(page) = page else {
            panic!("a link is read at {at:#x} of the arena, where none was written or it was overwritten");
        };
        let bytes = &page.bytes;
        u32::from_le_bytes([bytes[first], bytes[first + 1], bytes[first + 2], bytes[first + 3]])
    }
}
