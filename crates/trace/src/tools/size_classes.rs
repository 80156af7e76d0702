//! Sizes rounded up to classes, and touches that do not reveal the exact sizes.

use crate::event::Access;
use std::ops::Range;

/// Classes up to [`SMALL_MAX`] bytes are multiples of this.
const SMALL_STEP: u64 = 16;
const SMALL_MAX: u64 = 64;
/// Number of classes for blocks of fewer than 2^47 bytes: four up to 64 bytes, then four per power of two.
const CLASSES: usize = 4 + 4 * (47 - 6);
/// Maximum size of one touch.
const TOUCH_BYTES_MAX: u64 = 1 << 31;

/// Distance between the largest size of the class of `size` (above 0) and that of the next smaller class.
fn step(size: u64) -> u64 {
    if size <= SMALL_MAX { SMALL_STEP } else { 1 << ((size - 1).ilog2() - 2) }
}

/// The largest size in the class of `size`. Up to 64 bytes it is a multiple of 16; above, it has at most three
/// significant bits.
pub(super) fn class_ceiling(size: u64) -> u64 {
    size.checked_next_multiple_of(step(size.max(1))).unwrap_or(size)
}

/// The number of the class whose largest size is `ceiling`.
fn class_number(ceiling: u64) -> usize {
    if ceiling <= SMALL_MAX {
        return (ceiling / SMALL_STEP).saturating_sub(1) as usize;
    }
    let log2 = (ceiling - 1).ilog2();
    4 + 4 * (log2 as usize - 6) + ((ceiling - 1) >> (log2 - 2) & 3) as usize
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default)]
struct ClassSet([u64; CLASSES.div_ceil(64)]);

impl ClassSet {
    /// Adds a class. Returns whether it was not in the set.
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

/// The touches of one object, made coarser.
///
/// Touches of the object's last bytes, those above the next smaller size class, would reveal its size by their end and
/// their number. So these bytes are treated as one: the first read and the first write of any of them become an access
/// to all of them, and later ones are dropped. The same applies to the classes of the object's earlier sizes: a program
/// writes up to such a size and continues from there after the object has grown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoarseTouches {
    /// Requested bytes.
    size: u64,
    /// Classes of all sizes that the object has had.
    sizes: ClassSet,
    /// Of these classes, those whose bytes were read, and those whose bytes were written, since the last resize.
    read: ClassSet,
    written: ClassSet,
}

impl CoarseTouches {
    /// Sets the object's size.
    pub(super) fn resize(&mut self, size: u64) {
        let mut sizes = self.sizes;
        sizes.insert(class_number(class_ceiling(size)));
        *self = CoarseTouches { size, sizes, ..CoarseTouches::default() };
    }

    /// Passes the coarse form of a touch to `emit`, as offsets and numbers of bytes.
    pub(super) fn touch(&mut self, offset: u64, bytes: u32, access: Access, emit: &mut dyn FnMut(u64, u32)) {
        // Bytes beyond the object are ignored.
        let end = offset.saturating_add(bytes.into()).min(self.size);
        let mut exact_from = offset;
        // A touch may begin at the end of a class because that was the object's previous size, so that class is also
        // checked.
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
