//! Touched bytes of live objects that do not follow an object's first byte without a gap.
//!
//! Most objects are touched from their first byte on, so a length is enough for them, which stands in the driver's table. What
//! is touched beyond it has a bit a byte here, in pages that are made when they are needed: at most an eighth of the live bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_trace::event::ObjectId;

const WORD_BITS: u64 = u64::BITS as u64;

/// What is touched beyond the prefixes, by object.
#[derive(Debug, Default)]
pub(crate) struct Scattered {
    objects: Vec<Option<Box<Beyond>>>,
    /// Objects that have any.
    count: usize,
}

/// Touched bytes beyond the prefix. Bits below the prefix have no meaning.
#[derive(Debug, Default)]
struct Beyond {
    bytes: u64,
    /// The object's first page, which is all that most objects have.
    first: Bits,
    /// The other pages.
    pages: BTreeMap<u64, Bits>,
}

/// A bit for each byte of a page, up to the last word that is not 0.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Scattered {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Touches bytes of an object of `size` bytes, some of them beyond its prefix; how many were not touched before.
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

    /// The object ends; how many bytes it had here.
    #[cold]
    pub(crate) fn forget(&mut self, object: ObjectId) -> u64 {
        let known = self.objects.get_mut(object.0 as usize).and_then(Option::take);
        self.count -= usize::from(known.is_some());
        known.map_or(0, |beyond| beyond.bytes)
    }

    /// The object keeps its first `size` bytes only; how many bytes here it loses.
    pub(crate) fn shrink(&mut self, object: ObjectId, prefix: u64, size: u64) -> u64 {
        let Some(Some(beyond)) = self.objects.get_mut(object.0 as usize) else { return 0 };
        let lost = beyond.count(prefix.max(size)..u64::MAX);
        beyond.bytes -= lost;
        beyond.truncate(size);
        lost
    }
}

/// The part of a range that lies in a page, from the page's start.
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

    /// How many bytes of a range are touched.
    fn count(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let others = self.pages.range((range.start / PAGE_BYTES).max(1)..range.end.div_ceil(PAGE_BYTES).max(1));
        let pages = (range.start < PAGE_BYTES).then_some((0, &self.first)).into_iter();
        let pages = pages.chain(others.map(|(&page, bits)| (page, bits)));
        pages.map(|(page, bits)| bits.count(within(&range, page))).sum()
    }

    /// Drops all bits from byte `end` on.
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
    /// Sets the bits of a range; how many were not set.
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

    /// How many bits of a range are set.
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

/// The words that hold the bits of a range, and which bits of each.
fn masks(range: &Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = range.clone();
    (start / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |word| {
        let from = start.saturating_sub(word * WORD_BITS);
        let to = (end - word * WORD_BITS).min(WORD_BITS);
        (word as usize, (u64::MAX << from) & (u64::MAX >> (WORD_BITS - to)))
    })
}
