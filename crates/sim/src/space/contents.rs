//! What the pages of a simulated address space contain, and which touches of them have no effect any more.
//!
//! A page stores words only if the allocator wrote some. For the program's bytes, which are all equal, one bit per word
//! is enough.

use std::ops::Range;

use hksim_engine::{PAGE_BYTES, Region, Touch};
use hksim_linux_mm::PMD_PAGES;
use hksim_policy::memory::APPLICATION_BYTE;

const WORD_BYTES: u64 = 8;
const WORDS: usize = (PAGE_BYTES / WORD_BYTES) as usize;
/// A word of the program.
const PROGRAM_WORD: u64 = u64::from_ne_bytes([APPLICATION_BYTE; 8]);

const READ: u8 = 1;
const WRITTEN_ZERO: u8 = 2;
const WRITTEN: u8 = 4;

/// A page.
#[derive(Clone, Default)]
pub(super) struct Page {
    /// The touches that passed since the page's state changed.
    seen: u8,
    /// A bit for each word that the program wrote. Without meaning if `words` are stored.
    program: [u64; WORDS / 64],
    /// Every word, if the allocator wrote one.
    words: Option<Box<[u64; WORDS]>>,
}

impl Page {
    /// Records a touch. Returns whether it may change the page's state.
    #[inline]
    pub(super) fn passes(&mut self, touch: Touch) -> bool {
        let (enough, mark) = match touch {
            Touch::Read => (READ | WRITTEN_ZERO | WRITTEN, READ),
            Touch::WriteZero => (WRITTEN_ZERO | WRITTEN, WRITTEN_ZERO),
            Touch::Write => (WRITTEN, WRITTEN),
        };
        let passes = self.seen & enough == 0;
        self.seen |= mark;
        passes
    }

    /// Lets the next touch pass.
    pub(super) fn pass_again(&mut self) {
        self.seen = 0;
    }

    /// The page is new: it reads as zeros.
    pub(super) fn drop_contents(&mut self) {
        *self = Page::default();
    }

    /// Whether every byte is zero.
    pub(super) fn is_zero(&self) -> bool {
        match &self.words {
            Some(words) => words.iter().all(|&word| word == 0),
            None => self.program == [0; WORDS / 64],
        }
    }

    pub(super) fn read(&self, word: usize) -> u64 {
        match &self.words {
            Some(words) => words[word],
            None if self.program[word / 64] >> (word % 64) & 1 != 0 => PROGRAM_WORD,
            None => 0,
        }
    }

    pub(super) fn write(&mut self, word: usize, value: u64) {
        if self.words.is_none() {
            self.words = Some(Box::new(std::array::from_fn(|word| self.read(word))));
        }
        if let Some(words) = &mut self.words {
            words[word] = value;
        }
    }

    /// The words of which bytes are in a range.
    pub(super) fn words_in(&self, bytes: Range<u64>) -> Vec<u64> {
        ((bytes.start / WORD_BYTES) as usize..bytes.end.div_ceil(WORD_BYTES) as usize)
            .map(|word| self.read(word))
            .collect()
    }

    /// Copies words, which [`Page::words_in`] returned for a range of equal length, to a range. If the ranges differ in
    /// their distance from a word boundary, words of the program stay words of the program.
    pub(super) fn put(&mut self, bytes: Range<u64>, words: &[u64]) {
        for (at, &value) in words.iter().enumerate() {
            let start = bytes.start / WORD_BYTES * WORD_BYTES + at as u64 * WORD_BYTES;
            let part = start.max(bytes.start)..(start + WORD_BYTES).min(bytes.end);
            let is_whole = part.start == start && part.end == start + WORD_BYTES;
            match value {
                _ if part.is_empty() => {}
                0 => self.fill(part, 0),
                PROGRAM_WORD => self.fill(part, APPLICATION_BYTE),
                _ if is_whole => self.write((start / WORD_BYTES) as usize, value),
                _ => self.fill(part, APPLICATION_BYTE),
            }
        }
    }

    /// Fills bytes of the page with zeros or with those of the program. Of a word of which the program writes only a
    /// part, an allocator reads the rest only if it wrote it; the word is then stored.
    pub(super) fn fill(&mut self, bytes: Range<u64>, byte: u8) {
        let (start, end) = (bytes.start as usize, bytes.end as usize);
        if end - start == PAGE_BYTES as usize {
            self.words = None;
        }
        if let Some(words) = &mut self.words {
            for word in start / 8..end.div_ceil(8) {
                let mut value = words[word].to_ne_bytes();
                value[start.saturating_sub(word * 8)..(end - word * 8).min(8)].fill(byte);
                words[word] = u64::from_ne_bytes(value);
            }
            return;
        }
        let words = if byte == 0 { start.div_ceil(8)..end / 8 } else { start / 8..end.div_ceil(8) };
        for word in words {
            let bit = 1 << (word % 64);
            let bits = &mut self.program[word / 64];
            *bits = if byte == 0 { *bits & !bit } else { *bits | bit };
        }
    }
}

/// The pages of the region, by address. Uses memory for the 2 MiB ranges that were ever touched.
#[derive(Default)]
pub(super) struct Pages(Vec<Option<Box<[Page]>>>);

/// The index of a page's 2 MiB range, and the page's in it. `page` is numbered from address 0.
fn index(page: u64) -> (usize, usize) {
    let named = page.wrapping_sub(Region::START / PAGE_BYTES);
    assert!(named < Region::BYTES / PAGE_BYTES, "a design accesses {:#x}, which it never mapped", page * PAGE_BYTES);
    ((named / PMD_PAGES) as usize, (named % PMD_PAGES) as usize)
}

impl Pages {
    /// A page, which was never touched before if it is not stored.
    #[inline]
    pub(super) fn page(&mut self, page: u64) -> &mut Page {
        let (frame, page) = index(page);
        if frame >= self.0.len() {
            self.0.resize_with(frame + 1, || None);
        }
        &mut self.0[frame].get_or_insert_with(|| vec![Page::default(); PMD_PAGES as usize].into())[page]
    }

    /// Calls `each` with the pages of a range that may have been touched.
    pub(super) fn touched_in(&mut self, pages: Range<u64>, mut each: impl FnMut(u64, &mut Page)) {
        let mut page = pages.start;
        while page < pages.end {
            let (frame, at) = index(page);
            let Some(frame) = self.0.get_mut(frame) else { break };
            let end = (page + PMD_PAGES - at as u64).min(pages.end);
            if let Some(frame) = frame {
                (page..end).for_each(|page| each(page, &mut frame[index(page).1]));
            }
            page = end;
        }
    }

    /// Moves the contents of `old` to the start of `new`, which has none.
    pub(super) fn moved(&mut self, old: Range<u64>, new_start: u64) {
        let mut moved = Vec::new();
        self.touched_in(old.clone(), |page, stored| moved.push((page, std::mem::take(stored))));
        for (page, mut stored) in moved {
            stored.pass_again();
            *self.page(new_start + (page - old.start)) = stored;
        }
    }
}

/// Calls `each` with each page of a range of bytes, and the bytes in it.
pub(super) fn by_page(at: u64, bytes: u64, mut each: impl FnMut(u64, Range<u64>)) {
    let mut start = at;
    while start < at + bytes {
        let page = start / PAGE_BYTES;
        let end = ((page + 1) * PAGE_BYTES).min(at + bytes);
        each(page, start % PAGE_BYTES..start % PAGE_BYTES + (end - start));
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle: a page of bytes. Only words of which all bytes have one origin are compared.
    #[test]
    fn words_agree_with_a_page_of_bytes() {
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        let mut draw = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..300 {
            let (mut page, mut bytes) = (Page::default(), [0u8; PAGE_BYTES as usize]);
            let allocator_writes = round % 3;
            for _ in 0..40 {
                let (start, whole) = (draw(PAGE_BYTES), draw(10) == 0);
                let end = start + 1 + draw((PAGE_BYTES - start).min(if whole { PAGE_BYTES } else { 100 }));
                let range = if whole { 0..PAGE_BYTES } else { start / 8 * 8..end.next_multiple_of(8) };
                match draw(2 + allocator_writes) {
                    0 => {
                        page.fill(range.clone(), 0);
                        bytes[range.start as usize..range.end as usize].fill(0);
                    }
                    1 => {
                        // After a stored word, also parts of words.
                        let range = if page.words.is_some() { start..end } else { range };
                        page.fill(range.clone(), APPLICATION_BYTE);
                        bytes[range.start as usize..range.end as usize].fill(APPLICATION_BYTE);
                    }
                    _ => {
                        let (word, value) = ((start / 8) as usize, draw(u64::MAX));
                        page.write(word, value);
                        bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
                    }
                }
                for (word, bytes) in bytes.chunks_exact(8).enumerate() {
                    let expected = bytes.try_into().map(u64::from_ne_bytes).ok();
                    assert_eq!(Some(page.read(word)), expected, "round {round}, word {word}");
                }
                assert_eq!(page.is_zero(), bytes.iter().all(|&byte| byte == 0), "round {round}");
            }
        }
    }
}
