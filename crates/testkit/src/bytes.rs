//! The bytes of an arena: the contents of its pages and how each is mapped. Only written pages take memory.

use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::Random;

const PAGE: usize = PAGE_BYTES as usize;
const LINK_BYTES: u64 = 4;

/// How a page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Mapped,
    Hugetlb,
    Hole,
}

/// The bytes of a page, and a bit for each offset at which a link begins.
struct Page {
    bytes: [u8; PAGE],
    links: [u64; PAGE / 64],
}

impl Page {
    /// Clears the links in a part of the page, which must not be empty.
    fn forget_links(&mut self, part: &Range<usize>) {
        // A link that begins up to three bytes before the part is damaged, too.
        let (from, to) = (part.start.saturating_sub(LINK_BYTES as usize - 1), part.end);
        let mut at = from;
        while at < to {
            let end = (at / 64 * 64 + 64).min(to);
            self.links[at / 64] &= !(u64::MAX >> (64 - (end - at)) << (at % 64));
            at = end;
        }
    }
}

/// The contents of a page. Most zeroed or populated pages repeat one byte, which needs no memory.
enum Contents {
    /// Reads as zeros.
    Untouched,
    /// Every byte has this value, and there are no links.
    Filled(u8),
    Mixed(Box<Page>),
}

/// All pages of an arena.
pub(crate) struct Bytes {
    pages: Vec<Contents>,
    backing: Vec<Backing>,
    /// Unused pages for reuse. If they were freed, the process's allocator would release their memory, and each new
    /// page would cost a fault.
    spare: Vec<Box<Page>>,
}

impl Bytes {
    pub(crate) fn new(bytes: u64) -> Bytes {
        let pages = (bytes / PAGE_BYTES) as usize;
        Bytes {
            pages: (0..pages).map(|_| Contents::Untouched).collect(),
            backing: vec![Backing::Mapped; pages],
            spare: Vec::new(),
        }
    }

    pub(crate) fn backing(&self, pages: Range<u64>) -> &[Backing] {
        &self.backing[pages.start as usize..pages.end as usize]
    }

    pub(crate) fn set_backing(&mut self, pages: Range<u64>, backing: Backing) {
        self.backing[pages.start as usize..pages.end as usize].fill(backing);
        self.drop_pages(pages);
    }

    /// Replaces the contents of a page.
    fn put(&mut self, page: usize, contents: Contents) {
        if let Contents::Mixed(page) = std::mem::replace(&mut self.pages[page], contents) {
            self.spare.push(page);
        }
    }

    /// Drops the contents: pages read as zeros again.
    pub(crate) fn drop_pages(&mut self, pages: Range<u64>) {
        for page in pages {
            self.put(page as usize, Contents::Untouched);
        }
    }

    /// Models `MADV_FREE`: each page is dropped, keeps its contents, or has arbitrary contents, at random. Links on
    /// them become invalid, because the allocator must not rely on any of this.
    pub(crate) fn free_pages(&mut self, pages: Range<u64>, random: &mut Random) {
        for page in pages.start as usize..pages.end as usize {
            match &mut self.pages[page] {
                Contents::Untouched => continue,
                Contents::Filled(_) => {}
                Contents::Mixed(kept) => kept.links.fill(0),
            }
            match random.below(3) {
                0 => self.put(page, Contents::Untouched),
                1 => self.put(page, Contents::Filled(random.bits() as u8)),
                _ => {}
            }
        }
    }

    /// Moves page contents; the source becomes a hole.
    pub(crate) fn move_pages(&mut self, from: Range<u64>, to: u64) {
        for (index, page) in from.clone().enumerate() {
            let contents = std::mem::replace(&mut self.pages[page as usize], Contents::Untouched);
            self.put(to as usize + index, contents);
            self.backing[to as usize + index] = self.backing[page as usize];
        }
        self.set_backing(from, Backing::Hole);
    }

    /// The parts of a byte range, page by page: the page, the bytes in it, and the offset of the part in the range.
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

    /// The bytes of a page, for writing to a part of them.
    #[track_caller]
    fn page_mut(&mut self, page: usize) -> &mut Page {
        self.expect_mapped(page);
        let byte = match self.pages[page] {
            Contents::Untouched => Some(0),
            Contents::Filled(byte) => Some(byte),
            Contents::Mixed(_) => None,
        };
        if let Some(byte) = byte {
            let mut fresh =
                self.spare.pop().unwrap_or_else(|| Box::new(Page { bytes: [0; PAGE], links: [0; PAGE / 64] }));
            fresh.bytes.fill(byte);
            fresh.links.fill(0);
            self.pages[page] = Contents::Mixed(fresh);
        }
        let Contents::Mixed(page) = &mut self.pages[page] else { unreachable!("it was created above") };
        page
    }

    #[track_caller]
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        for (page, range, from) in Bytes::parts(at, data.len() as u64) {
            let page = self.page_mut(page);
            page.forget_links(&range);
            let bytes = range.len();
            page.bytes[range].copy_from_slice(&data[from as usize..from as usize + bytes]);
        }
    }

    #[track_caller]
    pub(crate) fn fill(&mut self, at: u64, bytes: u64, with: u8) {
        for (page, range, _) in Bytes::parts(at, bytes) {
            self.expect_mapped(page);
            let is_kept = match self.pages[page] {
                Contents::Untouched => with == 0,
                Contents::Filled(byte) => with == byte,
                Contents::Mixed(_) => false,
            };
            if is_kept || range.len() == PAGE {
                self.put(page, Contents::Filled(with));
            } else {
                let page = self.page_mut(page);
                page.forget_links(&range);
                page.bytes[range].fill(with);
            }
        }
    }

    /// Copies bytes without links: the copy of a link is not a valid link.
    #[track_caller]
    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let mut copied = [0; PAGE];
        for (page, range, done) in Bytes::parts(from, bytes) {
            self.expect_mapped(page);
            let part_bytes = range.len() as u64;
            match &self.pages[page] {
                Contents::Untouched => self.fill(to + done, part_bytes, 0),
                &Contents::Filled(byte) => self.fill(to + done, part_bytes, byte),
                Contents::Mixed(page) => {
                    let copied = &mut copied[..range.len()];
                    copied.copy_from_slice(&page.bytes[range]);
                    self.write(to + done, copied);
                }
            }
        }
    }

    #[track_caller]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        for (page, range, from) in Bytes::parts(at, into.len() as u64) {
            self.expect_mapped(page);
            let target = &mut into[from as usize..from as usize + range.len()];
            match &self.pages[page] {
                Contents::Untouched => target.fill(0),
                Contents::Filled(byte) => target.fill(*byte),
                Contents::Mixed(page) => target.copy_from_slice(&page.bytes[range]),
            }
        }
    }

    /// Whether the contents at an address equal `data`.
    #[track_caller]
    pub(crate) fn holds(&self, at: u64, data: &[u8]) -> bool {
        Bytes::parts(at, data.len() as u64).all(|(page, range, from)| {
            self.expect_mapped(page);
            let data = &data[from as usize..from as usize + range.len()];
            match &self.pages[page] {
                Contents::Untouched => data.iter().all(|&byte| byte == 0),
                Contents::Filled(with) => data.iter().all(|byte| byte == with),
                Contents::Mixed(page) => page.bytes[range] == *data,
            }
        })
    }

    #[track_caller]
    pub(crate) fn is_zero(&self, at: u64, bytes: u64) -> bool {
        Bytes::parts(at, bytes).all(|(page, range, _)| {
            self.expect_mapped(page);
            match &self.pages[page] {
                Contents::Untouched | Contents::Filled(0) => true,
                Contents::Filled(_) => false,
                Contents::Mixed(page) => page.bytes[range.clone()] == [0; PAGE][range],
            }
        })
    }

    #[track_caller]
    pub(crate) fn write_link(&mut self, at: u64, bits: u32) {
        let first = (at % PAGE_BYTES) as usize;
        assert!(first + LINK_BYTES as usize <= PAGE, "the link at {at:#x} straddles two pages");
        let page = self.page_mut((at / PAGE_BYTES) as usize);
        let range = first..first + LINK_BYTES as usize;
        page.forget_links(&range);
        page.bytes[range].copy_from_slice(&bits.to_le_bytes());
        page.links[first / 64] |= 1 << (first % 64);
    }

    #[track_caller]
    pub(crate) fn read_link(&self, at: u64) -> u32 {
        let first = (at % PAGE_BYTES) as usize;
        if let Contents::Mixed(page) = &self.pages[(at / PAGE_BYTES) as usize]
            && page.links[first / 64] >> (first % 64) & 1 == 1
        {
            let bytes = &page.bytes[first..];
            return u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        panic!("a link is read at {at:#x} of the arena, where none was written or where it was overwritten");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 4;

    /// A random range of the arena: short, long, or of whole pages.
    fn random_range(random: &mut Random) -> Range<u64> {
        let granule = random.pick(&[1, 64, PAGE_BYTES]);
        let start = random.below(PAGES * PAGE_BYTES / granule) * granule;
        let bytes = random.pick(&[8, 200, 2 * PAGE_BYTES]).next_multiple_of(granule);
        start..(start + bytes).min(PAGES * PAGE_BYTES)
    }

    #[test]
    fn bytes_and_links_agree_with_a_plain_array() {
        let mut random = Random::new(1);
        let mut bytes = Bytes::new(PAGES * PAGE_BYTES);
        let mut array = vec![0; (PAGES * PAGE_BYTES) as usize];
        let mut links = vec![false; array.len()];
        for step in 0..if cfg!(miri) { 100 } else { 1000 } {
            let range = random_range(&mut random);
            let (at, count) = (range.start as usize, (range.end - range.start) as usize);
            let byte = random.pick(&[0, 0, 7, 255]);
            let mut is_link = false;
            match random.below(5) {
                0 => {
                    let data: Vec<u8> = (0..count).map(|_| random.bits() as u8).collect();
                    bytes.write(range.start, &data);
                    array[at..at + count].copy_from_slice(&data);
                }
                1 => {
                    bytes.fill(range.start, count as u64, byte);
                    array[at..at + count].fill(byte);
                }
                2 => {
                    let from = (at + count + random.below(99) as usize) % (array.len() - count + 1);
                    if from < at + count && at < from + count {
                        continue;
                    }
                    bytes.copy(range.start, from as u64, count as u64);
                    array.copy_within(from..from + count, at);
                }
                3 if at % PAGE <= PAGE - 4 && count >= 4 => {
                    is_link = true;
                    bytes.write_link(range.start, step);
                    array[at..at + 4].copy_from_slice(&step.to_le_bytes());
                }
                _ => {
                    let page = range.start / PAGE_BYTES;
                    bytes.drop_pages(page..page + 1);
                    let dropped = page as usize * PAGE..(page as usize + 1) * PAGE;
                    array[dropped.clone()].fill(0);
                    links[dropped].fill(false);
                    continue;
                }
            }
            links[at.saturating_sub(3)..at + if is_link { 4 } else { count }].fill(false);
            links[at] = is_link;
            let looked = random_range(&mut random);
            let expected = &array[looked.start as usize..looked.end as usize];
            let mut read = vec![1; expected.len()];
            bytes.read(looked.start, &mut read);
            assert!(read == expected && bytes.holds(looked.start, expected), "step {step}: {looked:x?}");
            assert_eq!(bytes.is_zero(looked.start, read.len() as u64), read.iter().all(|&byte| byte == 0));
            read[0] ^= 1;
            assert!(!bytes.holds(looked.start, &read), "step {step}: {looked:x?}");
            let is_listed = |(at, &link): (usize, &bool)| match &bytes.pages[at / PAGE] {
                Contents::Mixed(page) => (page.links[at % PAGE / 64] >> (at % 64) & 1 == 1) == link,
                _ => !link,
            };
            assert!(links.iter().enumerate().all(is_listed), "step {step}: links");
        }
    }
}
