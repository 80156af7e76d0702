//! DAMON, the kernel's access monitor, if it is enabled.
//!
//! Its threads (`kdamond.N`) clear the accessed bit of pages of their choice, and hold these pages meanwhile. A fault
//! at the same time finds its entry changed, does nothing, and is taken again. A page that they hold is copied after a
//! fork, even if no other process has it.

use std::fs;
use std::path::Path;

/// Processor time of DAMON's threads since boot, in nanoseconds; 0 if DAMON is off, `None` without `/proc`.
///
/// The threads belong to the machine: a container with its own pid namespace does not see them.
pub fn run_ns() -> Option<u64> {
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let is_damon = |process: &Path| fs::read(process.join("comm")).is_ok_and(|name| name.starts_with(b"kdamond"));
    // The fields are time on a processor, time waiting for one, and number of slices.
    let time =
        |process: &Path| fs::read_to_string(process.join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    Some(processes.filter(|process| is_damon(process)).filter_map(|process| time(&process)).sum())
}
