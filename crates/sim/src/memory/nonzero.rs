//! Tracks which bytes of the arena are non-zero: one bit per byte, for policies where only the kernel inspects
//! contents.
//!
//! MADV_FREE preserves contents, but it can split a huge page, and a split drops the zero-filled pages (R10). Most pages
//! are all zeros, or a program wrote all of them: those need no bits. Bits use memory only where a page has both: one
//! eighth of that memory.

use std::cell::{Cell, OnceCell};

use hksim_policy::PAGE_BYTES;

use super::zeroed::zeroed_cells;

const WORD_BITS: u64 = u64::BITS as u64;
const PAGE_WORDS: usize = (PAGE_BYTES / WORD_BITS) as usize;

/// What is known of a page without its bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Page {
    /// All bytes are zero.
    #[default]
    Zero,
    /// No byte is zero.
    Full,
    /// Its bits tell.
    Mixed,
}

/// The bytes of a SuperSlab.
struct Bytes {
    pages: Box<[Cell<Page>]>,
    /// Valid for mixed pages only.
    bits: Box<[Cell<u64>]>,
}

impl Bytes {
    fn new(bytes: usize) -> Bytes {
        let pages = (0..bytes / PAGE_BYTES as usize).map(|_| Cell::default()).collect();
        Bytes { pages, bits: zeroed_cells(bytes / WORD_BITS as usize) }
    }

    /// The bits of a page, which is mixed from now on.
    fn mixed(&self, page: usize) -> &[Cell<u64>] {
        let bits = &self.bits[page * PAGE_WORDS..][..PAGE_WORDS];
        let fill = match self.pages[page].replace(Page::Mixed) {
            Page::Zero => 0,
            Page::Full => u64::MAX,
            Page::Mixed => return bits,
        };
        bits.iter().for_each(|word| word.set(fill));
        bits
    }

    /// The word of bits at an offset, which is a multiple of 64.
    fn word(&self, at: usize) -> u64 {
        match self.pages[at / PAGE_BYTES as usize].get() {
            Page::Zero => 0,
            Page::Full => u64::MAX,
            Page::Mixed => self.bits[at / WORD_BITS as usize].get(),
        }
    }
}

/// The bytes, by SuperSlab.
pub(crate) struct NonZero {
    superslab_shift: u32,
    superslabs: Box<[OnceCell<Bytes>]>,
}

impl NonZero {
    pub(crate) fn new(superslabs: u32, superslab_shift: u32) -> NonZero {
        NonZero { superslab_shift, superslabs: (0..superslabs).map(|_| OnceCell::new()).collect() }
    }

    /// Sets bytes `at..at + count` of the arena to `byte`.
    #[inline(never)]
    pub(crate) fn write(&self, at: u64, count: u64, byte: u8) {
        let (mut start, end) = (at, at + count);
        let to = if byte == 0 { Page::Zero } else { Page::Full };
        while start < end {
            let end_of_superslab = end.min(((start >> self.superslab_shift) + 1) << self.superslab_shift);
            let superslab = &self.superslabs[(start >> self.superslab_shift) as usize];
            let bytes = match superslab.get() {
                Some(bytes) => bytes,
                None if to == Page::Zero => {
                    start = end_of_superslab;
                    continue;
                }
                None => superslab.get_or_init(|| Bytes::new(1 << self.superslab_shift)),
            };
            while start < end_of_superslab {
                let page = ((start & ((1 << self.superslab_shift) - 1)) / PAGE_BYTES) as usize;
                let end_of_page = end_of_superslab.min((start / PAGE_BYTES + 1) * PAGE_BYTES);
                if bytes.pages[page].get() != to {
                    if end_of_page - start == PAGE_BYTES {
                        bytes.pages[page].set(to);
                    } else {
                        set(bytes.mixed(page), start % PAGE_BYTES, end_of_page - start, to);
                    }
                }
                start = end_of_page;
            }
        }
    }

    /// Writes a number to bytes `at..at + 4`. `at` is a multiple of 4.
    pub(crate) fn write_number(&self, at: u64, number: u32) {
        let offset = at % WORD_BITS;
        self.write_word(at - offset, 0xf << offset, bits_of(number) << offset);
    }

    /// Writes two numbers to bytes `at..at + 8`. `at` is a multiple of 8.
    pub(crate) fn write_pair(&self, at: u64, first: u32, second: u32) {
        let offset = at % WORD_BITS;
        self.write_word(at - offset, 0xff << offset, (bits_of(first) | bits_of(second) << 4) << offset);
    }

    /// Copies bytes within the arena.
    #[inline(never)]
    pub(crate) fn copy(&self, to: u64, from: u64, count: u64) {
        let mut done = 0;
        while done < count {
            let (target, source) = (to + done, from + done);
            let to_page_end = PAGE_BYTES - source % PAGE_BYTES;
            done += match self.page(source) {
                Page::Mixed => {
                    let offset = target % WORD_BITS;
                    let step = (WORD_BITS - offset).min(count - done).min(to_page_end);
                    let mask = u64::MAX >> (WORD_BITS - step) << offset;
                    self.write_word(target - offset, mask, self.bits_at(source) << offset & mask);
                    step
                }
                uniform => {
                    let step = to_page_end.min(count - done);
                    self.write(target, step, u8::from(uniform == Page::Full));
                    step
                }
            };
        }
    }

    /// Whether any byte of the page at `at` is not zero.
    pub(crate) fn holds_bytes(&self, at: u64) -> bool {
        match self.page(at) {
            Page::Zero => false,
            Page::Full => true,
            Page::Mixed => (at..at + PAGE_BYTES).step_by(WORD_BITS as usize).any(|at| self.word(at) != 0),
        }
    }

    /// Sets the bits in `mask` of the word at `at`, which is a multiple of 64.
    fn write_word(&self, at: u64, mask: u64, bits: u64) {
        let superslab = &self.superslabs[(at >> self.superslab_shift) as usize];
        let bytes = match superslab.get() {
            Some(bytes) => bytes,
            None if bits == 0 => return,
            None => superslab.get_or_init(|| Bytes::new(1 << self.superslab_shift)),
        };
        let page = ((at & ((1 << self.superslab_shift) - 1)) / PAGE_BYTES) as usize;
        let is_unchanged = match bytes.pages[page].get() {
            Page::Zero => bits == 0,
            Page::Full => bits == mask,
            Page::Mixed => false,
        };
        if !is_unchanged {
            let word = &bytes.mixed(page)[(at % PAGE_BYTES / WORD_BITS) as usize];
            word.set(word.get() & !mask | bits);
        }
    }

    /// The bits of the 64 bytes from `at`, which need not be a multiple of 64.
    fn bits_at(&self, at: u64) -> u64 {
        let offset = at % WORD_BITS;
        let low = self.word(at - offset) >> offset;
        if offset == 0 { low } else { low | self.word(at - offset + WORD_BITS) << (WORD_BITS - offset) }
    }

    fn page(&self, at: u64) -> Page {
        let offset = (at & ((1 << self.superslab_shift) - 1)) as usize;
        self.bytes(at).map_or(Page::Zero, |bytes| bytes.pages[offset / PAGE_BYTES as usize].get())
    }

    fn word(&self, at: u64) -> u64 {
        self.bytes(at).map_or(0, |bytes| bytes.word((at & ((1 << self.superslab_shift) - 1)) as usize))
    }

    fn bytes(&self, at: u64) -> Option<&Bytes> {
        self.superslabs.get((at >> self.superslab_shift) as usize)?.get()
    }
}

/// Which of a number's four bytes are not zero.
fn bits_of(number: u32) -> u64 {
    // The top bit of each byte that is not zero; the product has the four of them side by side, without carries.
    let tops = (((number & 0x7f7f_7f7f) + 0x7f7f_7f7f) | number) >> 7 & 0x0101_0101;
    u64::from(tops.wrapping_mul(1 << 24 | 1 << 17 | 1 << 10 | 1 << 3) >> 24 & 0xf)
}

/// Sets the bits of `count` bytes of a page, from `start`.
fn set(bits: &[Cell<u64>], start: u64, count: u64, to: Page) {
    let last = start + count - 1;
    let words = &bits[(start / WORD_BITS) as usize..=(last / WORD_BITS) as usize];
    let ones = (u64::MAX << (start % WORD_BITS), u64::MAX >> (WORD_BITS - 1 - last % WORD_BITS));
    match to {
        Page::Zero => change(words, ones, |word, mask| word & !mask),
        _ => change(words, ones, |word, mask| word | mask),
    }
}

/// Changes words of bits: the masked bits of the first and the last, and all bits of those between.
fn change(words: &[Cell<u64>], (first_mask, last_mask): (u64, u64), to: impl Fn(u64, u64) -> u64) {
    match words {
        [] => {}
        [word] => word.set(to(word.get(), first_mask & last_mask)),
        [first, between @ .., last] => {
            first.set(to(first.get(), first_mask));
            between.iter().for_each(|word| word.set(to(word.get(), u64::MAX)));
            last.set(to(last.get(), last_mask));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle: a plain array of bytes.
    struct Plain(Vec<u8>);

    impl Plain {
        fn agrees(&self, contents: &NonZero) -> bool {
            self.0.iter().enumerate().all(|(at, &byte)| contents.bits_at(at as u64) & 1 == u64::from(byte != 0))
        }
    }

    #[test]
    fn bits_show_which_bytes_are_non_zero() {
        const SHIFT: u32 = 16;
        let contents = NonZero::new(2, SHIFT);
        let mut plain = Plain(vec![0; 2 << SHIFT]);
        let mut state = 0x5EED_u64;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % limit
        };
        for _ in 0..400 {
            let (at, count) = (below((2 << SHIFT) - 9000), 1 + below(9000));
            let (from, place) = (below((2 << SHIFT) - 9000) as usize, at as usize..(at + count) as usize);
            match below(4) {
                3 => {
                    let mut number =
                        || (0..4).fold(0, |number, byte| number | ([0, 1, 0x80][below(3) as usize]) << (8 * byte));
                    let (first, second) = (number(), number());
                    contents.write_number(at / 4 * 4, first);
                    plain.0[at as usize / 4 * 4..][..4].copy_from_slice(&first.to_le_bytes());
                    contents.write_pair(at / 8 * 8, second, first);
                    plain.0[at as usize / 8 * 8..][..4].copy_from_slice(&second.to_le_bytes());
                    plain.0[at as usize / 8 * 8 + 4..][..4].copy_from_slice(&first.to_le_bytes());
                }
                0 => {
                    contents.write(at, count, 0xA5);
                    plain.0[place].fill(0xA5);
                }
                1 => {
                    contents.write(at, count, 0);
                    plain.0[place].fill(0);
                }
                // The ranges of a copy never overlap.
                _ if from as u64 >= at + count || from as u64 + count <= at => {
                    contents.copy(at, from as u64, count);
                    plain.0.copy_within(from..from + count as usize, at as usize);
                }
                _ => {}
            }
            assert!(plain.agrees(&contents));
        }
        for page in 0..(2u64 << SHIFT) / PAGE_BYTES {
            let at = (page * PAGE_BYTES) as usize;
            let holds = plain.0[at..at + PAGE_BYTES as usize].iter().any(|&byte| byte != 0);
            assert_eq!(contents.holds_bytes(at as u64), holds, "page {page}");
        }
    }
}
