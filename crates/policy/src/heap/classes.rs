//! Size classes: the block size that serves a request.
//!
//! Requests up to 1 KiB find their class in a byte table with 8-byte steps. Above 1 KiB most schemes have four classes
//! per doubling, computed from the leading zeros; in other schemes the class is searched.

pub use crate::policy::size_classes::{CLASSES_MAX, STRIDE_MAX};
use crate::policy::vocabulary::SizeClasses;

/// Requests up to this many bytes are looked up in the table.
pub const TABLE_BYTES: u32 = 1024;
/// Entries of the table.
pub(crate) const STEPS: usize = TABLE_BYTES as usize / 8 + 1;
/// Classes per doubling above the table, in most schemes.
const QUARTERS: u32 = 4;

/// A scheme's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    table: [u8; STEPS],
    strides: [u32; CLASSES_MAX],
    small_count: u8,
    count: u8,
    /// Whether there are four classes per doubling above the table.
    is_quartered: bool,
    block_align: u8,
}

impl Classes {
    /// Builds the tables of a scheme.
    pub const fn new(scheme: SizeClasses) -> Classes {
        let mut classes = Classes {
            table: [0; STEPS],
            strides: [0; CLASSES_MAX],
            small_count: 0,
            count: 0,
            is_quartered: true,
            block_align: 16,
        };
        let (mut stride, mut bytes) = (0, 0);
        while stride < STRIDE_MAX {
            stride = scheme.stride_after(stride);
            classes.strides[classes.count as usize] = stride;
            while bytes <= stride && bytes <= TABLE_BYTES {
                classes.table[bytes.div_ceil(8) as usize] = classes.count;
                bytes += 8;
            }
            if stride > 8 && !stride.is_multiple_of(16) {
                classes.block_align = 8;
            }
            if stride > TABLE_BYTES && classes.quarter_of(stride) != classes.count as usize {
                classes.is_quartered = false;
            }
            classes.count += 1;
            if stride <= TABLE_BYTES {
                classes.small_count = classes.count;
            }
        }
        classes
    }

    /// The class of blocks of at least `bytes` bytes; `bytes` is at most [`STRIDE_MAX`].
    #[inline(always)]
    pub const fn class_of(&self, bytes: u32) -> usize {
        if bytes <= TABLE_BYTES {
            return self.table[bytes.div_ceil(8) as usize] as usize;
        }
        if self.is_quartered { self.quarter_of(bytes) } else { self.search(bytes) }
    }

    /// Whether the class of a request above the table is searched.
    #[inline(always)]
    pub(crate) const fn are_searched(&self) -> bool {
        !self.is_quartered
    }

    /// The class of a request above the table, if there are four per doubling.
    #[inline(always)]
    const fn quarter_of(&self, bytes: u32) -> usize {
        let below = bytes - 1;
        let doubling = below.ilog2();
        let quarter = (below >> (doubling - QUARTERS.ilog2())) & (QUARTERS - 1);
        self.small_count as usize + ((doubling - TABLE_BYTES.ilog2()) * QUARTERS + quarter) as usize
    }

    /// The class of a request above the table, by bisection.
    const fn search(&self, bytes: u32) -> usize {
        let (mut class, mut end) = (self.small_count as usize, self.count as usize);
        while class < end {
            let middle = (class + end) / 2;
            if self.strides[middle] < bytes {
                class = middle + 1;
            } else {
                end = middle;
            }
        }
        class
    }

    /// Requests up to this many bytes find their class in [`steps`](Self::steps).
    pub(crate) const STEP_BYTES_MAX: u64 = TABLE_BYTES as u64;

    /// The table index for a request.
    #[inline(always)]
    pub(crate) const fn step_of(bytes: u64) -> usize {
        (bytes as usize).div_ceil(8)
    }

    /// The class of each request, indexed by [`step_of`](Self::step_of).
    pub(crate) const fn steps(&self) -> &[u8; STEPS] {
        &self.table
    }

    /// Bytes from one block of a class to the next.
    #[inline(always)]
    pub const fn stride(&self, class: usize) -> u32 {
        self.strides[class]
    }

    /// Number of classes.
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// Alignment of every block of more than 8 bytes, if blocks have no header: 16, or 8 if the scheme has classes
    /// that are not multiples of 16.
    #[inline(always)]
    pub const fn block_align(&self) -> u32 {
        self.block_align as u32
    }

    /// The largest stride of at most `limit` bytes; `None` if all are larger.
    pub(crate) fn stride_up_to(&self, limit: u32) -> Option<u32> {
        self.strides[..self.count()].iter().copied().rev().find(|&stride| stride <= limit)
    }
}
