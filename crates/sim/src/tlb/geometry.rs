//! The shape of a core's data TLBs.

use serde::Serialize;
use thiserror::Error;

use super::PageSize;
use super::cores::CORES;

/// A set-associative array of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Array {
    entries: u32,
    ways: u32,
}

/// An invalid array shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{entries} entries in {ways} ways: the number of sets (entries / ways) must be a power of two")]
pub struct GeometryError {
    /// The requested entries.
    pub entries: u32,
    /// The requested ways.
    pub ways: u32,
}

impl Array {
    /// An array of `entries` entries in sets of `ways` entries. If both numbers are equal, the array is fully
    /// associative.
    ///
    /// # Errors
    /// The number of sets is not a power of two.
    pub const fn new(entries: u32, ways: u32) -> Result<Self, GeometryError> {
        if ways == 0 || !entries.is_multiple_of(ways) || !(entries / ways).is_power_of_two() {
            return Err(GeometryError { entries, ways });
        }
        Ok(Self { entries, ways })
    }

    /// A fully associative array.
    ///
    /// # Errors
    /// `entries` is 0.
    pub const fn fully_associative(entries: u32) -> Result<Self, GeometryError> {
        Self::new(entries, entries)
    }

    /// Number of entries.
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Entries per set.
    pub const fn ways(self) -> u32 {
        self.ways
    }

    /// Number of sets, a power of two.
    pub const fn sets(self) -> u32 {
        self.entries / self.ways
    }
}

/// How one level stores entries of the two page sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// One array for both sizes.
    Shared(Array),
    /// One array for each size.
    Split {
        /// 4 KiB entries.
        base: Array,
        /// 2 MiB entries.
        huge: Array,
    },
}

impl Level {
    /// The array that holds entries of this size.
    pub const fn array(self, size: PageSize) -> Array {
        match (self, size) {
            (Self::Shared(array), _) => array,
            (Self::Split { base, .. }, PageSize::Base) => base,
            (Self::Split { huge, .. }, PageSize::Huge) => huge,
        }
    }
}

/// The data TLBs of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// The name used by `--tlb`.
    pub name: &'static str,
    /// First level, data loads.
    pub l1: Level,
    /// Second level.
    pub l2: Level,
    /// The source of the sizes and associativities.
    pub source: &'static str,
    /// Figures that are not verified; empty if all are confirmed.
    pub unverified: &'static str,
}

impl Geometry {
    /// Every core known by name.
    pub const fn all() -> &'static [Self] {
        CORES
    }

    /// The core with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CORES.iter().find(|core| core.name == name)
    }
}
