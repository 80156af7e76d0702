//! The guarantees of an allocator, checked from requests and addresses alone, without SuperSlabs, slabs or classes.

use std::collections::BTreeMap;
use std::ops::Range;

/// The minimum alignment of blocks, in addition to that of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// 16 bytes; 8 for requests up to 8 bytes.
    Natural,
    /// 8 bytes: some classes are only multiples of 8.
    Eight,
    /// None: headers of one byte shift every block.
    Shifted,
}

/// A live object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Address of its first byte.
    pub start: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Usable bytes, as the allocator reports them.
    pub usable_bytes: u64,
    /// The tag of the [`pattern`](crate::pattern) in the object.
    pub tag: u64,
    /// The parts of the object with the pattern; either may be empty.
    pub written: [Range<u64>; 2],
}

impl Object {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.usable_bytes.max(1)
    }
}

/// The live objects of a program, by name. The program chooses small numbers as names.
pub struct NaiveModel {
    alignment: Alignment,
    /// Indexed by name.
    objects: Vec<Option<Object>>,
    starts: BTreeMap<u64, u32>,
}

impl NaiveModel {
    /// A model without objects.
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
    /// If there is no object with this name.
    pub fn object(&self, name: u32) -> &Object {
        self.get(name).expect("the test uses only the names of live objects")
    }

    /// All live objects, in order of address.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.starts.values().map(|&name| self.object(name))
    }

    /// Adds an object with the requested alignment.
    ///
    /// # Errors
    /// Describes the guarantee that the allocator violated.
    pub fn place(&mut self, name: u32, object: Object, align: u64) -> Result<(), String> {
        let range = object.range();
        if object.usable_bytes < object.bytes {
            return Err(format!("only {} bytes of {} requested are usable", object.usable_bytes, object.bytes));
        }
        let needs = match self.alignment {
            Alignment::Natural if object.bytes > 8 => align.max(16),
            Alignment::Natural | Alignment::Eight => align.max(8),
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
            Some(_) => Err(format!("object {name} is already live: the test is wrong")),
        }
    }

    /// A live object that overlaps a range.
    pub fn overlapping(&self, range: &Range<u64>) -> Option<&Object> {
        let (_, name) = self.starts.range(..range.end).next_back()?;
        let last = self.object(*name);
        (last.range().end > range.start).then_some(last)
    }

    /// Records that the pattern of `tag` was written to these parts of an object.
    pub fn wrote(&mut self, name: u32, tag: u64, written: [Range<u64>; 2]) {
        if let Some(Some(object)) = self.objects.get_mut(name as usize) {
            object.tag = tag;
            object.written = written;
        }
    }

    /// Removes an object.
    ///
    /// # Panics
    /// If there is no object with this name.
    pub fn remove(&mut self, name: u32) -> Object {
        let object = self.objects.get_mut(name as usize).and_then(Option::take);
        let object = object.expect("the test frees live objects only");
        self.starts.remove(&object.start);
        object
    }
}
