//! Touched bytes of live objects beyond the contiguous range from the object's first byte (its prefix).
//!
//! Most objects are touched contiguously from their first byte. The driver's table stores the length of this prefix.
//! For bytes touched beyond the prefix, this module stores one bit each, in pages allocated on demand. The bits use at
//! most an eighth of the live bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_trace::event::ObjectId;

const WORD_BITS: u64 = u64::BITS as u64;

/// Bytes touched beyond the prefixes, by object.
#[derive(Debug, Default)]
pub(crate) struct Scattered {
    objects: Vec<Option<Box<Beyond>>>,
    /// Number of objects with touched bytes beyond their prefix.
    count: usize,
}

/// The touched bytes of one object beyond its prefix. Bits below the prefix have no meaning.
#[derive(Debug, Default)]
struct Beyond {
    bytes: u64,
    /// Bits of the object's first page. Most objects have only one page.
    first: Bits,
    /// Bits of the other pages, by page number.
    pages: BTreeMap<u64, Bits>,
}

/// One bit per byte of a page, up to the last non-zero word.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Scattered {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records a touch in an object of `size` bytes. The touch must reach beyond the object's prefix. Returns how many
    /// of the bytes were not touched before.
    pub(crate) fn touch(&mut self, object: ObjectId, prefix: &mut u64, touched: Range<u64>, size: u64) -> u64 {
        let at = object.0 as usize;
        if at >= self.objects.len() {
            self.objects.resize_with(at + 1, || None);
        }
        let known = &mut self.objects[at];
        let had = known.is_some();
        let before = *prefix + known.as_ref().map_or(0, |beyond| beyond.bytes);
        if touched.start <= *prefix {
            if let Some(beyond) = known {
                beyond.bytes -= beyond.count(*prefix..touched.end);
            }
            *prefix = touched.end;
        } else {
            known.get_or_insert_default().set(touched);
        }
        let now = *prefix + known.as_ref().map_or(0, |beyond| beyond.bytes);
        if now == size {
            *prefix = size;
        }
        if now == *prefix {
            *known = None;
        }
        self.count = self.count + usize::from(known.is_some()) - usize::from(had);
        now - before
    }

    /// Removes an object. Returns how many of its bytes beyond the prefix were touched.
    #[cold]
    pub(crate) fn forget(&mut self, object: ObjectId) -> u64 {
        let known = self.objects.get_mut(object.0 as usize).and_then(Option::take);
        self.count -= usize::from(known.is_some());
        known.map_or(0, |beyond| beyond.bytes)
    }

    /// Truncates an object to `size` bytes. Returns how many touched bytes beyond the prefix it loses.
    pub(crate) fn shrink(&mut self, object: ObjectId, prefix: u64, size: u64) -> u64 {
        let Some(Some(beyond)) = self.objects.get_mut(object.0 as usize) else { return 0 };
        let lost = beyond.count(prefix.max(size)..u64::MAX);
        beyond.bytes -= lost;
        beyond.truncate(size);
        lost
    }
}

/// The part of a range inside a page, relative to the page's start.
fn within(range: &Range<u64>, page: u64) -> Range<u64> {
    let start = page * PAGE_BYTES;
    range.start.saturating_sub(start).min(PAGE_BYTES)..(range.end - start).min(PAGE_BYTES)
}

impl Beyond {
    fn set(&mut self, range: Range<u64>) {
        for page in range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES) {
            let bits = if page == 0 { &mut self.first } else { self.pages.entry(page).or_default() };
            self.bytes += bits.set(within(&range, page));
        }
    }

    /// Number of touched bytes in a range.
    fn count(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let others = self.pages.range((range.start / PAGE_BYTES).max(1)..range.end.div_ceil(PAGE_BYTES).max(1));
        let pages = (range.start < PAGE_BYTES).then_some((0, &self.first)).into_iter();
        let pages = pages.chain(others.map(|(&page, bits)| (page, bits)));
        pages.map(|(page, bits)| bits.count(within(&range, page))).sum()
    }

    /// Clears all bits from byte `end` on.
    fn truncate(&mut self, end: u64) {
        let page = end / PAGE_BYTES;
        self.pages.split_off(&(page + 1));
        let cut = if page == 0 { Some(&mut self.first) } else { self.pages.get_mut(&page) };
        if let Some(bits) = cut {
            bits.truncate(end % PAGE_BYTES);
        }
    }
}

impl Bits {
    /// Sets the bits of a range. Returns how many were not set before.
    fn set(&mut self, range: Range<u64>) -> u64 {
        let words = range.end.div_ceil(WORD_BITS) as usize;
        if words > self.0.len() {
            self.0.resize(words, 0);
        }
        let mut new = 0;
        for (word, mask) in masks(&range) {
            if let Some(word) = self.0.get_mut(word) {
                new += (mask & !*word).count_ones();
                *word |= mask;
            }
        }
        new.into()
    }

    /// Number of set bits in a range.
    fn count(&self, range: Range<u64>) -> u64 {
        masks(&range).filter_map(|(word, mask)| Some(u64::from((self.0.get(word)? & mask).count_ones()))).sum()
    }

    fn truncate(&mut self, end: u64) {
        self.0.truncate(end.div_ceil(WORD_BITS) as usize);
        let bits = end % WORD_BITS;
        if let (Some(last), 1..) = (self.0.get_mut((end / WORD_BITS) as usize), bits) {
            *last &= (1 << bits) - 1;
        }
    }
}

/// The words that hold the bits of a range, each with its mask.
fn masks(range: &Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = range.clone();
    (start / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |word| {
        let from = start.saturating_sub(word * WORD_BITS);
        let to = (end - word * WORD_BITS).min(WORD_BITS);
        (word as usize, (u64::MAX << from) & (u64::MAX >> (WORD_BITS - to)))
    })
}
