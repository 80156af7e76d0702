//! A script's header: the modes (kernel settings) it needs, and the position of its arena.

use std::fmt;

use super::OpError;
use super::text::{name_of, named};
use crate::{Defrag, KernelConfig, Overcommit, PMD_ORDER, PMD_PAGES, SizeMode, ThpMode};

/// Modes of the machine that a script needs. Modes that the header does not set stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `thp always|madvise|never`
    pub thp: Option<ThpMode>,
    /// `mthp KB always|madvise|inherit|never`, by folio order: 64 kB is order 4, 2048 kB order 9.
    pub sizes: [Option<SizeMode>; PMD_ORDER + 1],
    /// `zero_page on|off`: whether reads may map the huge zero page.
    pub use_zero_page: Option<bool>,
    /// `defrag always|defer|defer+madvise|madvise|never`
    pub defrag: Option<Defrag>,
    /// `max_ptes_none N`: khugepaged's setting of this name.
    pub max_ptes_none: Option<u64>,
    /// `max_ptes_shared N`: khugepaged's setting of this name.
    pub max_ptes_shared: Option<u64>,
    /// `overcommit allowed|never`: whether `vm.overcommit_memory` is 2.
    pub overcommit: Option<Overcommit>,
    /// `pool N`: free pages in the hugetlb pool.
    pub pool: Option<u64>,
    /// `max_map_count N`
    pub max_map_count: Option<u64>,
    /// `room N`: the process first creates other mappings until `max_map_count` permits exactly N more. Not a mode.
    pub room: Option<u64>,
    /// `base N`: the arena begins N pages (below 512) after a 2 MiB boundary.
    pub base: u64,
}

const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

impl Header {
    /// Parses a header line. `Ok(false)` if the line is not a header line.
    pub(super) fn take(&mut self, line: &str) -> Result<bool, OpError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| OpError::Operands);
        let mode = || OpError::UnknownMode;
        match words[..] {
            ["thp", word] => self.thp = Some(ThpMode::from_word(word).ok_or_else(mode)?),
            ["mthp", kilobytes, word] => {
                let order = order_of(number(kilobytes)?).ok_or(OpError::UnknownSize)?;
                self.sizes[order] = Some(SizeMode::from_word(word).ok_or_else(mode)?);
            }
            ["zero_page", word] => self.use_zero_page = Some(named(&SWITCH, word).ok_or_else(mode)?),
            ["defrag", word] => self.defrag = Some(Defrag::from_word(word).ok_or_else(mode)?),
            ["max_ptes_none", count] => self.max_ptes_none = Some(number(count)?),
            ["max_ptes_shared", count] => self.max_ptes_shared = Some(number(count)?),
            ["overcommit", word] => self.overcommit = Some(Overcommit::from_word(word).ok_or_else(mode)?),
            ["pool", count] => self.pool = Some(number(count)?),
            ["max_map_count", count] => self.max_map_count = Some(number(count)?),
            ["room", count] => self.room = Some(number(count)?),
            ["base", pages] => {
                self.base = Some(number(pages)?).filter(|&pages| pages < PMD_PAGES).ok_or(OpError::OutOfArena)?;
            }
            [
                "thp" | "mthp" | "zero_page" | "defrag" | "max_ptes_none" | "max_ptes_shared" | "overcommit" | "pool"
                | "max_map_count" | "room" | "base",
                ..,
            ] => return Err(OpError::Operands),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets every mode that faults and mappings depend on. Modes that the header does not set yet get the kernel's boot
    /// defaults, with THP in mode madvise.
    pub fn with_all_modes(mut self) -> Self {
        let usual = KernelConfig::default();
        self.thp = self.thp.or(Some(usual.thp.global));
        for (mode, usual) in self.sizes.iter_mut().zip(usual.thp.sizes).skip(SMALLEST_ORDER) {
            *mode = mode.or(Some(usual));
        }
        self.use_zero_page = self.use_zero_page.or(Some(usual.use_zero_page));
        self.overcommit = self.overcommit.or(Some(usual.overcommit));
        self
    }

    /// `config`, overridden by everything that the header sets.
    pub fn applied_to(&self, config: &KernelConfig) -> KernelConfig {
        let mut config = config.clone();
        config.thp.global = self.thp.unwrap_or(config.thp.global);
        for (mode, named) in config.thp.sizes.iter_mut().zip(&self.sizes) {
            *mode = named.unwrap_or(*mode);
        }
        config.use_zero_page = self.use_zero_page.unwrap_or(config.use_zero_page);
        config.defrag = self.defrag.unwrap_or(config.defrag);
        config.khugepaged.max_ptes_none = self.max_ptes_none.unwrap_or(config.khugepaged.max_ptes_none);
        config.khugepaged.max_ptes_shared = self.max_ptes_shared.unwrap_or(config.khugepaged.max_ptes_shared);
        config.overcommit = self.overcommit.unwrap_or(config.overcommit);
        config.hugetlb_pool_pages = self.pool.or(config.hugetlb_pool_pages);
        config.max_map_count = self.max_map_count.unwrap_or(config.max_map_count);
        if let Some(room) = self.room {
            // The arena itself is one mapping.
            config.vmas_outside_heap = config.max_map_count.saturating_sub(room.saturating_add(1));
        }
        config
    }
}

/// The smallest large folio of anonymous memory: 16 kB.
const SMALLEST_ORDER: usize = 2;

/// The folio order of a size in kilobytes, 16 to 2048.
fn order_of(kilobytes: u64) -> Option<usize> {
    (SMALLEST_ORDER..=PMD_ORDER).find(|order| 4 << order == kilobytes)
}

impl fmt::Display for Header {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mode) = self.thp {
            writeln!(out, "thp {}", mode.word())?;
        }
        for (order, mode) in self.sizes.iter().enumerate() {
            if let Some(mode) = mode {
                writeln!(out, "mthp {} {}", 4 << order, mode.word())?;
            }
        }
        if let Some(on) = self.use_zero_page {
            writeln!(out, "zero_page {}", name_of(&SWITCH, on))?;
        }
        if let Some(mode) = self.defrag {
            writeln!(out, "defrag {}", mode.word())?;
        }
        if let Some(mode) = self.overcommit {
            writeln!(out, "overcommit {}", mode.word())?;
        }
        let numbers = [
            ("max_ptes_none", self.max_ptes_none),
            ("max_ptes_shared", self.max_ptes_shared),
            ("pool", self.pool),
            ("max_map_count", self.max_map_count),
            ("room", self.room),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                writeln!(out, "{name} {number}")?;
            }
        }
        if self.base > 0 {
            writeln!(out, "base {}", self.base)?;
        }
        Ok(())
    }
}
