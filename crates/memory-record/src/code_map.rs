//! Which file is mapped where in an address space.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A part of a file in an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    end: u64,
    /// Offset in the file of the first byte.
    offset: u64,
    /// Empty for executable memory without a file: generated code.
    path: Arc<str>,
}

/// The mapped files of an address space, by first address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeMap(BTreeMap<u64, Part>);

impl CodeMap {
    /// A new mapping replaces what was there. `file` is its path with the offset of its first byte; for
    /// executable memory without a file, the path is empty.
    pub fn map(&mut self, range: Range<u64>, file: Option<(&str, u64)>) {
        self.unmap(&range);
        if let Some((path, offset)) = file.filter(|_| !range.is_empty()) {
            self.0.insert(range.start, Part { end: range.end, offset, path: path.into() });
        }
    }

    /// Nothing is mapped there any more.
    pub fn unmap(&mut self, range: &Range<u64>) {
        let first = self.0.range(..=range.start).next_back().filter(|(_, part)| part.end > range.start);
        let first = first.map_or(range.start, |(&start, _)| start);
        let starts: Vec<u64> = self.0.range(first..range.end.max(first)).map(|(&start, _)| start).collect();
        for start in starts {
            let Some(part) = self.0.remove(&start) else { continue };
            if range.end < part.end {
                let offset = part.offset + (range.end - start);
                self.0.insert(range.end, Part { offset, ..part.clone() });
            }
            if start < range.start {
                self.0.insert(start, Part { end: range.start, ..part });
            }
        }
    }

    /// The file at an address, and the offset in it.
    pub fn at(&self, address: u64) -> Option<(&Arc<str>, u64)> {
        let (start, part) = self.0.range(..=address).next_back()?;
        (address < part.end && !part.path.is_empty()).then(|| (&part.path, part.offset + (address - start)))
    }

    /// Whether a file or executable memory is at an address.
    pub fn is_code(&self, address: u64) -> bool {
        self.0.range(..=address).next_back().is_some_and(|(_, part)| address < part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_mappings_replace_parts() {
        let mut code = CodeMap::default();
        let at = |code: &CodeMap, address| code.at(address).map(|(path, offset)| (path.to_string(), offset));
        // As the dynamic linker does: the whole file, then each segment over it.
        code.map(0x1000..0x9000, Some(("/lib.so", 0)));
        code.map(0x3000..0x5000, Some(("/lib.so", 0x2000)));
        code.map(0x7000..0x8000, None);
        assert_eq!(at(&code, 0x2fff), Some(("/lib.so".to_string(), 0x1fff)));
        assert_eq!(at(&code, 0x4001), Some(("/lib.so".to_string(), 0x3001)));
        assert_eq!(at(&code, 0x5000), Some(("/lib.so".to_string(), 0x4000)));
        assert_eq!([at(&code, 0x7000), at(&code, 0xfff), at(&code, 0x9000)], [None, None, None]);
        code.unmap(&(0x4000..0x8800));
        assert_eq!(at(&code, 0x8800), Some(("/lib.so".to_string(), 0x7800)));
        assert_eq!(at(&code, 0x3fff), Some(("/lib.so".to_string(), 0x2fff)));
        assert_eq!(at(&code, 0x4000), None);
    }
}
