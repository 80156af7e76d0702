//! Modes and limits of the machine, in small files of `/sys` and `/proc/sys`.

use std::fs;

/// The directory of transparent huge pages.
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// The directory of the hugetlb pool of 2 MiB pages.
pub const HUGETLB: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A file's text without the newline; `None` if it cannot be read.
pub fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// The number in a file.
pub fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The bracketed word of a file like `always [madvise] never`.
pub fn choice(path: &str) -> Option<String> {
    let text = text(path)?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// Huge pages collapsed by khugepaged so far, on the whole machine.
pub fn khugepaged_collapses() -> Option<u64> {
    number(&format!("{THP}/khugepaged/pages_collapsed"))
}
