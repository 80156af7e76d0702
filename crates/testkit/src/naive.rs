//! What an allocator promises, from requests and addresses alone. Knows nothing of SuperSlabs, slabs or classes.

use std::collections::BTreeMap;
use std::ops::Range;

/// What an allocator must hold to about alignment, beside what a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// 16 bytes; 8 for requests up to 8 bytes.
    Natural,
    /// None: headers of one byte shift every block.
    Shifted,
}

/// A live object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Address of its first byte.
    pub start: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes that the allocator says may be used.
    pub usable_bytes: u64,
    /// Which [`pattern`](crate::pattern) was written into it.
    pub tag: u64,
    /// The parts of it that hold the pattern; either may be empty.
    pub written: [Range<u64>; 2],
}

impl Object {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.usable_bytes.max(1)
    }
}

/// The live objects of a program, by the program's own names for them.
pub struct NaiveModel {
    alignment: Alignment,
    /// By name: the test's names are small.
    objects: Vec<Option<Object>>,
    starts: BTreeMap<u64, u32>,
}

impl NaiveModel {
    /// No objects yet.
    pub fn new(alignment: Alignment) -> NaiveModel {
        NaiveModel { alignment, objects: Vec::new(), starts: BTreeMap::new() }
    }

    /// Number of live objects.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    fn get(&self, name: u32) -> Option<&Object> {
        self.objects.get(name as usize)?.as_ref()
    }

    /// A live object.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn object(&self, name: u32) -> &Object {
        self.get(name).expect("the test names live objects only")
    }

    /// All live objects, in order of address.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.starts.values().map(|&name| self.object(name))
    }

    /// An object appears. `align` is what was asked for.
    ///
    /// # Errors
    /// What the allocator broke.
    pub fn place(&mut self, name: u32, object: Object, align: u64) -> Result<(), String> {
        let range = object.range();
        if object.usable_bytes < object.bytes {
            return Err(format!("{} bytes are usable of {} that were asked for", object.usable_bytes, object.bytes));
        }
        let needs = match self.alignment {
            Alignment::Natural if object.bytes > 8 => align.max(16),
            Alignment::Natural => align.max(8),
            Alignment::Shifted if align > 16 => align,
            Alignment::Shifted => 1,
        };
        if !object.start.is_multiple_of(needs) {
            return Err(format!("a block at {:#x} is not aligned to {needs}", object.start));
        }
        if let Some(other) = self.overlapping(&range) {
            return Err(format!("a block at {range:x?} overlaps the live block at {:x?}", other.range()));
        }
        self.starts.insert(object.start, name);
        if self.objects.len() <= name as usize {
            self.objects.resize(name as usize + 1, None);
        }
        match self.objects[name as usize].replace(object) {
            None => Ok(()),
            Some(_) => Err(format!("object {name} is live already: the test is wrong")),
        }
    }

    /// The live object that shares a byte with a range.
    pub fn overlapping(&self, range: &Range<u64>) -> Option<&Object> {
        let (_, name) = self.starts.range(..range.end).next_back()?;
        let last = self.object(*name);
        (last.range().end > range.start).then_some(last)
    }

    /// Notes what was written into an object: the pattern of `tag` in these parts, and in no other.
    pub fn wrote(&mut self, name: u32, tag: u64, written: [Range<u64>; 2]) {
        if let Some(Some(object)) = self.objects.get_mut(name as usize) {
            object.tag = tag;
            object.written = written;
        }
    }

    /// An object goes.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn remove(&mut self, name: u32) -> Object {
        let object = self.objects.get_mut(name as usize).and_then(Option::take);
        let object = object.expect("the test frees live objects only");
        self.starts.remove(&object.start);
        object
    }
}
