//! The touches of a block at its allocation.

use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_trace::event::{InitialTouch, PageTouches};

/// The application's accesses to one block. Offsets and sizes are in bytes from the start of the block.
///
/// Implementations are passed by value: a reference given to a function that is not inlined would keep them in memory in
/// every caller's hot path.
pub trait BlockAccess: Copy {
    /// The offset of the block in its page, or any number congruent to it modulo the page size.
    fn page_offset(&self) -> u64;
    /// Reads a range.
    fn read(&self, offset: u64, bytes: u64);
    /// Writes a range.
    fn write(&self, offset: u64, bytes: u64);
}

/// Touches the new bytes of an allocated or grown block. Returns the end of the touched range, or 0 if nothing was
/// touched.
#[inline(always)]
pub fn touch_new_bytes(block: impl BlockAccess, new: Range<u64>, initial_touch: InitialTouch) -> u64 {
    let Range { start, end } = new;
    if end <= start {
        return 0;
    }
    // By far the most frequent one: the branch is cheaper than a jump table.
    if initial_touch == InitialTouch::FirstByte && start == 0 {
        block.write(0, 1);
        return 1;
    }
    touch_other(block, start..end, initial_touch)
}

/// As [`touch_new_bytes`], for the less frequent touches.
#[inline(never)]
fn touch_other(block: impl BlockAccess, new: Range<u64>, initial_touch: InitialTouch) -> u64 {
    let Range { start, end } = new;
    match initial_touch {
        InitialTouch::All => block.write(start, end - start),
        InitialTouch::Read => block.read(start, end - start),
        InitialTouch::ReadThenWrite => {
            block.read(start, end - start);
            block.write(start, end - start);
        }
        // A grown tail does not contain the first byte. The touches of a watched object are separate events.
        InitialTouch::FirstByte | InitialTouch::None | InitialTouch::Watched => return 0,
        InitialTouch::PerPage(sides) => return touch_by_page(block, start..end, sides),
    }
    end
}

/// Like [`touch_new_bytes`], for a block whose touches differ before and after its first page boundary. Returns the
/// number of bytes touched.
#[cold]
#[inline(never)]
fn touch_by_page(block: impl BlockAccess, new: Range<u64>, sides: PageTouches) -> u64 {
    let boundary = PAGE_BYTES - block.page_offset() % PAGE_BYTES;
    if new.start > 0 || new.end <= boundary {
        return touch_new_bytes(block, new, InitialTouch::PerPage(sides).whole());
    }
    let first = touch_new_bytes(block, 0..boundary, sides.first());
    let second = touch_new_bytes(block, boundary..new.end, sides.second());
    first + second.saturating_sub(boundary)
}
