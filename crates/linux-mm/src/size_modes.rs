//! The modes of all huge-page sizes in one text.

use crate::config::size_name;
use crate::{PMD_ORDER, SizeMode, ThpConfig, ThpMode};

/// A mode for each folio order, 0 to [`PMD_ORDER`], as [`ThpConfig::sizes`] has them.
pub type SizeModes = [SizeMode; PMD_ORDER + 1];

/// The kernel's modes after boot: sizes below 2M are off, 2M follows the global mode.
pub fn usual_sizes() -> SizeModes {
    ThpConfig::new(ThpMode::Madvise).sizes
}

/// The sizes whose mode differs from the one after boot: `64K=always,256K=madvise`.
///
/// ```
/// use hksim_linux_mm::{SizeMode, show_sizes, usual_sizes};
///
/// let mut sizes = usual_sizes();
/// assert_eq!(show_sizes(&sizes), "2M=inherit");
/// sizes[4] = SizeMode::Always;
/// assert_eq!(show_sizes(&sizes), "64K=always");
/// ```
pub fn show_sizes(sizes: &SizeModes) -> String {
    /// The smallest large folio of anonymous memory: 16K.
    const SMALLEST_ORDER: usize = 2;
    let usual = usual_sizes();
    let changed = (SMALLEST_ORDER..=PMD_ORDER).filter(|&order| sizes[order] != usual[order]);
    let words: Vec<String> = changed.map(|order| format!("{}={}", size_name(order), sizes[order].word())).collect();
    if words.is_empty() { format!("2M={}", usual[PMD_ORDER].word()) } else { words.join(",") }
}
