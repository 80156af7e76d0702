//! Sizes rounded up to classes, and touches from which the exact sizes cannot be told.

use crate::event::Access;
use std::ops::Range;

/// Classes of at most 64 bytes are multiples of this.
const SMALL_STEP: u64 = 16;
const SMALL_MAX: u64 = 64;
/// Classes of blocks, which are below 2^47 bytes: four up to 64 bytes, then four per power of two.
const CLASSES: usize = 4 + 4 * (47 - 6);
/// Most bytes of one touch.
const TOUCH_BYTES_MAX: u64 = 1 << 31;

/// Distance between the class of `size` (above 0) and the next smaller one.
fn step(size: u64) -> u64 {
    if size <= SMALL_MAX { SMALL_STEP } else { 1 << ((size - 1).ilog2() - 2) }
}

/// The smallest size of at least `size` that has only three significant bits, or is a multiple of 16 below 64.
pub(super) fn class_ceiling(size: u64) -> u64 {
    size.checked_next_multiple_of(step(size.max(1))).unwrap_or(size)
}

/// Number of the class whose sizes end with `ceiling`, a class's own.
fn class_number(ceiling: u64) -> usize {
    if ceiling <= SMALL_MAX {
        return (ceiling / SMALL_STEP).saturating_sub(1) as usize;
    }
    let log2 = (ceiling - 1).ilog2();
    4 + 4 * (log2 as usize - 6) + ((ceiling - 1) >> (log2 - 2) & 3) as usize
}

/// Some classes.
#[derive(Clone, Copy, Debug, Default)]
struct ClassSet([u64; CLASSES.div_ceil(64)]);

impl ClassSet {
    /// Adds a class; whether it was not among them.
    fn insert(&mut self, class: usize) -> bool {
        let Some(bits) = self.0.get_mut(class / 64) else { return false };
        let before = *bits;
        *bits |= 1 << (class % 64);
        *bits != before
    }

    fn contains(&self, class: usize) -> bool {
        self.0.get(class / 64).is_some_and(|bits| bits >> (class % 64) & 1 == 1)
    }
}

/// The touches of one object. Those that reach beyond the class below its size would tell the size, by where they end and by how
/// many they are. So the bytes between the two classes count as one: the first read and the first write of any are one of
/// all, later ones are left out. The same holds for the sizes that the object had before, up to which a program writes,
/// and from which it goes on when the object has grown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoarseTouches {
    /// Requested bytes.
    size: u64,
    /// Classes of the object's sizes.
    sizes: ClassSet,
    /// Those of them whose bytes were read, and written, since the object got its size.
    read: ClassSet,
    written: ClassSet,
}

impl CoarseTouches {
    /// The object has this size now.
    pub(super) fn resize(&mut self, size: u64) {
        let mut sizes = self.sizes;
        sizes.insert(class_number(class_ceiling(size)));
        *self = CoarseTouches { size, sizes, ..CoarseTouches::default() };
    }

    /// Gives to `emit` what may be told of a touch: offset and bytes.
    pub(super) fn touch(&mut self, offset: u64, bytes: u32, access: Access, emit: &mut dyn FnMut(u64, u32)) {
        // What lies beyond the object touches nothing.
        let end = offset.saturating_add(bytes.into()).min(self.size);
        let mut exact_from = offset;
        // One that begins where a class ends may begin there because it is the size before.
        let mut at = offset.saturating_sub(1);
        while at < end {
            let ceiling = class_ceiling(at + 1);
            let class = class_number(ceiling);
            if self.sizes.contains(class) {
                emit_all(exact_from..at, emit);
                let touched = if access == Access::Read { &mut self.read } else { &mut self.written };
                if touched.insert(class) {
                    emit_all(ceiling - step(ceiling)..ceiling, emit);
                }
                exact_from = ceiling;
            }
            at = ceiling;
        }
        emit_all(exact_from..end, emit);
    }
}

fn emit_all(range: Range<u64>, emit: &mut dyn FnMut(u64, u32)) {
    let mut from = range.start;
    while from < range.end {
        let bytes = (range.end - from).min(TOUCH_BYTES_MAX);
        emit(from, bytes as u32);
        from += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_numbered_without_gaps() {
        let (mut ceiling, mut number) = (SMALL_STEP, 0);
        while ceiling <= 1 << 47 {
            assert_eq!(class_number(ceiling), number, "{ceiling}");
            assert_eq!(class_ceiling(ceiling), ceiling);
            let next = class_ceiling(ceiling + 1);
            assert_eq!(next - step(next), ceiling, "{next}");
            (ceiling, number) = (next, number + 1);
        }
        assert_eq!(number, CLASSES);
    }
}
