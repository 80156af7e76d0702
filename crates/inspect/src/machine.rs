//! Modes, counters and khugepaged of the machine. They are the same in every container.

use std::fs;

use hksim_linux_mm::{SizeMode, ThpMode};
use hksim_linux_probe::sysfs::{THP, choice, number};
use serde::{Deserialize, Serialize};

/// What the machine says about transparent huge pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The global mode; `None` for a kernel without THP.
    pub thp_mode: Option<String>,
    /// `defrag`.
    pub defrag: Option<String>,
    /// The folio sizes, ascending.
    pub sizes: Vec<FolioSize>,
    /// khugepaged.
    pub khugepaged: Khugepaged,
}

/// One size of folios, with its counters since boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FolioSize {
    /// The size.
    pub bytes: u64,
    /// `always`, `madvise`, `inherit` or `never`.
    pub mode: String,
    /// Installed at faults.
    pub fault_alloc: Option<u64>,
    /// Faults that found no contiguous memory of this size.
    pub fault_fallback: Option<u64>,
    /// Split into smaller ones.
    pub split: Option<u64>,
}

/// `/sys/kernel/mm/transparent_hugepage/khugepaged`; `None` where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Khugepaged {
    /// A range with more absent and zero pages is not collapsed.
    pub max_ptes_none: Option<u64>,
    /// A range with more swapped pages is not collapsed.
    pub max_ptes_swap: Option<u64>,
    /// A range with more pages shared with another process is not collapsed.
    pub max_ptes_shared: Option<u64>,
    /// Pages per scan.
    pub pages_to_scan: Option<u64>,
    /// Milliseconds between two scans.
    pub scan_sleep_ms: Option<u64>,
    /// Scans of all registered memory since boot.
    pub full_scans: Option<u64>,
    /// Huge pages made since boot.
    pub pages_collapsed: Option<u64>,
}

impl Machine {
    /// Reads the machine.
    pub fn read() -> Self {
        let khugepaged = |file: &str| number(&format!("{THP}/khugepaged/{file}"));
        Self {
            thp_mode: choice(&format!("{THP}/enabled")),
            defrag: choice(&format!("{THP}/defrag")),
            sizes: sizes(),
            khugepaged: Khugepaged {
                max_ptes_none: khugepaged("max_ptes_none"),
                max_ptes_swap: khugepaged("max_ptes_swap"),
                max_ptes_shared: khugepaged("max_ptes_shared"),
                pages_to_scan: khugepaged("pages_to_scan"),
                scan_sleep_ms: khugepaged("scan_sleep_millisecs"),
                full_scans: khugepaged("full_scans"),
                pages_collapsed: khugepaged("pages_collapsed"),
            },
        }
    }

    /// The mode of 2 MiB pages: their own, or the global one. `never` without THP.
    pub fn huge_mode(&self) -> ThpMode {
        let global = self.thp_mode.as_deref().and_then(ThpMode::from_word).unwrap_or(ThpMode::Never);
        let own = self.sizes.iter().find(|size| size.bytes == HUGE_BYTES);
        match own.and_then(|size| SizeMode::from_word(&size.mode)) {
            // Kernels before 6.8 have the global mode only.
            None | Some(SizeMode::Inherit) => global,
            Some(SizeMode::Always) => ThpMode::Always,
            Some(SizeMode::Madvise) => ThpMode::Madvise,
            Some(SizeMode::Never) => ThpMode::Never,
        }
    }
}

/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

fn sizes() -> Vec<FolioSize> {
    let entries = fs::read_dir(THP).into_iter().flatten().flatten();
    let mut sizes: Vec<FolioSize> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let counter = |file: &str| number(&format!("{THP}/{name}/stats/{file}"));
            Some(FolioSize {
                bytes: kilobytes.checked_mul(1024)?,
                // Sizes that only files can have lack a mode.
                mode: choice(&format!("{THP}/{name}/enabled"))?,
                fault_alloc: counter("anon_fault_alloc"),
                fault_fallback: counter("anon_fault_fallback"),
                split: counter("split"),
            })
        })
        .collect();
    sizes.sort_by_key(|size| size.bytes);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_huge_pages_is_their_own_or_the_global_one() {
        let machine = |global: &str, own: &str| Machine {
            thp_mode: Some(global.to_string()),
            defrag: None,
            sizes: vec![FolioSize {
                bytes: HUGE_BYTES,
                mode: own.to_string(),
                fault_alloc: None,
                fault_fallback: None,
                split: None,
            }],
            khugepaged: Khugepaged::default(),
        };
        assert_eq!(machine("madvise", "inherit").huge_mode(), ThpMode::Madvise);
        assert_eq!(machine("never", "always").huge_mode(), ThpMode::Always);
        assert_eq!(machine("always", "never").huge_mode(), ThpMode::Never);
        assert_eq!(Machine { sizes: Vec::new(), ..machine("always", "") }.huge_mode(), ThpMode::Always);
    }
}
