//! `hksim info` for memory recordings.

use std::path::Path;

use anyhow::Result;
use hksim_memory_trace::summarise;
use hksim_reports::memory_info;
use hksim_results::info::{By, MemoryInfo, TopSites};

use crate::output::{OutputArgs, screen, warn};

/// Summarises a recording, with its top `sites` call sites if asked for, ranked by `by`.
///
/// # Errors
/// The recording is damaged, or the output cannot be written.
pub fn run(path: &Path, sites: Option<usize>, by: By, output: &OutputArgs) -> Result<()> {
    let summary = summarise(path)?;
    if summary.footer.is_none() {
        warn(&format!("{}: the end is missing; these are the events before it", path.display()));
    }
    let top = sites.map(|count| TopSites::of_recording(path, &summary, count, by)).transpose()?;
    top.iter().flat_map(TopSites::notes).for_each(|line| warn(line));
    let info = MemoryInfo::new(path, &summary, top.as_ref());
    let text = || memory_info::text(&info, screen::columns()) + &top.as_ref().map(TopSites::table).unwrap_or_default();
    match &top {
        // The requested rows.
        Some(top) => output.emit(&info, &top.rows(), text),
        None => output.emit(&info, &[&info], text),
    }
}
