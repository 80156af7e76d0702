//! The behaviours that differ between kernel versions, each a named switch.

use serde::Serialize;

use super::span::BLOCK_PAGES;

/// What the first write to a huge zero page does (R4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugeZeroWrite {
    /// It installs a full huge page.
    Upgrade,
    /// It splits the entry into 512 zero pages and copies the one written.
    Split,
}

/// Where the kernel places an anonymous map that names no address (R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MapAlignment {
    /// On any page.
    Page,
    /// On a 2 MiB boundary if the map is at least 2 MiB long.
    LongMaps,
    /// On a 2 MiB boundary if the length is a multiple of 2 MiB.
    WholeBlocks,
}

/// How one kernel version behaves where versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// The first write to a huge zero page.
    pub huge_zero_write: HugeZeroWrite,
    /// A DONTNEED of a whole block inside one mapping frees its empty PTE table (R8').
    pub pt_reclaim: bool,
    /// Splitting a folio maps its zero-filled pages to the zero page (R10).
    pub zero_on_split: bool,
    /// mprotect spreads one dirty entry over its whole run of a large folio (R26).
    pub protect_in_batches: bool,
    /// mremap to a fixed address moves ranges of several mappings (R24).
    pub remap_spans_vmas: bool,
    /// Placement of maps without an address.
    pub map_alignment: MapAlignment,
}

impl Rules {
    /// Linux 6.18, the version all of these were measured on.
    pub const fn linux_6_18() -> Self {
        Self {
            huge_zero_write: HugeZeroWrite::Upgrade,
            pt_reclaim: true,
            zero_on_split: true,
            protect_in_batches: true,
            remap_spans_vmas: true,
            map_alignment: MapAlignment::WholeBlocks,
        }
    }

    /// Whether an anonymous map of `pages` at an address of the kernel's choice starts on a 2 MiB boundary (R5).
    /// False means: on a page boundary, 2 MiB-aligned only by luck.
    pub fn map_is_block_aligned(&self, pages: u64) -> bool {
        match self.map_alignment {
            MapAlignment::Page => false,
            MapAlignment::LongMaps => pages >= BLOCK_PAGES,
            MapAlignment::WholeBlocks => pages > 0 && pages.is_multiple_of(BLOCK_PAGES),
        }
    }
}
