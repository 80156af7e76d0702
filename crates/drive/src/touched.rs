//! Which bytes of live objects the program has touched: the floor of what any design must keep in memory.
//!
//! Most objects are touched from their first byte on, so a length is enough for them. What is touched beyond it has a bit a
//! byte, in pages that are made when they are needed: at most an eighth of the live bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_trace::event::ObjectId;

const WORD_BITS: u64 = u64::BITS as u64;

/// The distinct bytes of live objects that were touched: now, and at their peak.
#[derive(Debug, Default)]
pub struct TouchedBytes {
    objects: Vec<Object>,
    bytes: u64,
    bytes_peak: u64,
}

/// Touched bytes of one object.
#[derive(Debug, Default)]
struct Object {
    /// Every byte below this one is touched.
    prefix: u64,
    /// The others; `None` if there are none.
    beyond: Option<Box<Beyond>>,
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

impl TouchedBytes {
    /// Nothing touched, for at most so many objects live at once.
    pub fn new(objects_peak: u32) -> Self {
        let objects = (0..objects_peak).map(|_| Object::default()).collect();
        TouchedBytes { objects, bytes: 0, bytes_peak: 0 }
    }

    /// Touched bytes of the objects that are live now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The highest value of [`TouchedBytes::bytes`].
    pub fn bytes_peak(&self) -> u64 {
        self.bytes_peak
    }

    /// A new object, whose first bytes are touched.
    #[inline(always)]
    pub(crate) fn born(&mut self, object: ObjectId, prefix: u64) {
        self.objects[object.0 as usize].prefix = prefix;
        self.add(prefix);
    }

    /// Bytes of an object are touched. `size`: its bytes.
    #[inline]
    pub(crate) fn touch(&mut self, object: ObjectId, touched: Range<u64>, size: u64) {
        let object = &mut self.objects[object.0 as usize];
        if touched.end > object.prefix {
            let new = object.touch(touched, size);
            self.add(new);
        }
    }

    /// An object ends.
    #[inline(always)]
    pub(crate) fn dies(&mut self, object: ObjectId) {
        let object = &mut self.objects[object.0 as usize];
        self.bytes -= object.bytes();
        if object.beyond.is_some() || object.prefix > 0 {
            *object = Object::default();
        }
    }

    /// An object keeps its first bytes only.
    pub(crate) fn shrink(&mut self, object: ObjectId, size: u64) {
        let object = &mut self.objects[object.0 as usize];
        let before = object.bytes();
        object.shrink(size);
        self.bytes -= before - object.bytes();
    }

    #[inline(always)]
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
    }
}

impl Object {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.prefix + self.beyond.as_ref().map_or(0, |beyond| beyond.bytes)
    }

    /// Touches bytes of which some lie beyond the prefix; how many were not touched before.
    fn touch(&mut self, touched: Range<u64>, size: u64) -> u64 {
        let before = self.bytes();
        if touched.start <= self.prefix {
            if let Some(beyond) = &mut self.beyond {
                beyond.bytes -= beyond.count(self.prefix..touched.end);
            }
            self.prefix = touched.end;
        } else {
            self.beyond.get_or_insert_default().set(touched);
        }
        let now = self.bytes();
        if now == size {
            self.prefix = size;
        }
        if now == self.prefix {
            self.beyond = None;
        }
        now - before
    }

    fn shrink(&mut self, size: u64) {
        if let Some(beyond) = &mut self.beyond {
            beyond.bytes -= beyond.count(self.prefix.max(size)..u64::MAX);
            beyond.truncate(size);
        }
        self.prefix = self.prefix.min(size);
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
        if let (Some(last), true) = (self.0.get_mut((end / WORD_BITS) as usize), end % WORD_BITS > 0) {
            *last &= (1 << (end % WORD_BITS)) - 1;
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
