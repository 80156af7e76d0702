//! Size classes: the block size that serves a request.
//!
//! Up to 1 KiB the scheme is configurable and stored in a byte table with 8-byte steps. Above 1 KiB every scheme has
//! four classes per doubling, computed from the leading zeros.

use crate::policy::vocabulary::SizeClasses;

/// Maximum number of classes of a scheme.
pub const CLASSES_MAX: usize = 96;
/// Requests up to this many bytes are looked up in the table.
pub const TABLE_BYTES: u32 = 1024;
/// Entries of the table.
pub(crate) const STEPS: usize = TABLE_BYTES as usize / 8 + 1;
/// Bytes of the largest class.
pub const STRIDE_MAX: u32 = 64 << 10;

/// A scheme's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    table: [u8; STEPS],
    strides: [u32; CLASSES_MAX],
    small_count: u8,
    count: u8,
}

impl Classes {
    /// Builds the tables of a scheme.
    pub const fn new(scheme: SizeClasses) -> Classes {
        let mut classes = Classes { table: [0; STEPS], strides: [0; CLASSES_MAX], small_count: 0, count: 0 };
        let mut stride = 8;
        let mut bytes = 0;
        while stride <= TABLE_BYTES {
            classes.strides[classes.count as usize] = stride;
            while bytes <= stride {
                classes.table[bytes.div_ceil(8) as usize] = classes.count;
                bytes += 8;
            }
            classes.count += 1;
            stride = next_stride(scheme, stride);
        }
        classes.small_count = classes.count;
        let mut base = TABLE_BYTES;
        while base < STRIDE_MAX {
            let mut quarter = 1;
            while quarter <= 4 {
                classes.strides[classes.count as usize] = base + quarter * (base / 4);
                classes.count += 1;
                quarter += 1;
            }
            base *= 2;
        }
        classes
    }

    /// The class of blocks of at least `bytes` bytes; `bytes` is at most [`STRIDE_MAX`].
    #[inline(always)]
    pub const fn class_of(&self, bytes: u32) -> usize {
        if bytes <= TABLE_BYTES {
            return self.table[bytes.div_ceil(8) as usize] as usize;
        }
        let below = bytes - 1;
        let doubling = below.ilog2();
        let quarter = (below >> (doubling - 2)) & 3;
        self.small_count as usize + ((doubling - TABLE_BYTES.ilog2()) * 4 + quarter) as usize
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
}

const fn next_stride(scheme: SizeClasses, stride: u32) -> u32 {
    match scheme {
        SizeClasses::Hakmem => stride * 2,
        _ if stride == 8 => 16,
        SizeClasses::Linear => stride + 16,
        SizeClasses::Default if stride < 128 => stride + 16,
        SizeClasses::Default => {
            let doubling = 1 << stride.ilog2();
            stride + doubling / 4
        }
    }
}
