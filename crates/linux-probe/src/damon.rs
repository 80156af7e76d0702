//! DAMON, the kernel's monitor of accesses, where somebody has switched it on.
//!
//! Its threads (`kdamond.N`) clear the accessed bit of pages of their choice, and hold them meanwhile. A fault that meets one of
//! them finds its entry changed, does nothing, and is taken again; and a page that they hold is copied after a fork, though
//! nobody else has it.

use std::fs;
use std::path::Path;

/// Processor time of DAMON's threads since boot, in nanoseconds; 0 where it is off. `None` where there is no `/proc`.
///
/// They belong to the machine: a container that has processes of its own sees none of them.
pub fn run_ns() -> Option<u64> {
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let is_damon = |process: &Path| fs::read(process.join("comm")).is_ok_and(|name| name.starts_with(b"kdamond"));
    // Time on a processor, time waiting for one, turns.
    let time =
        |process: &Path| fs::read_to_string(process.join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    Some(processes.filter(|process| is_damon(process)).filter_map(|process| time(&process)).sum())
}
