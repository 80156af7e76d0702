//! DAMON, the kernel's access monitor, if it is enabled.
//!
//! Its threads (`kdamond.N`) clear the accessed bit of sampled pages, and hold a reference to each page while they do
//! so. A concurrent fault on such a page finds its entry changed, returns without effect, and is taken again. After a
//! fork, a write copies a page with such a reference even if no other process maps it.

use std::fs;
use std::path::{Path, PathBuf};

/// Processor time of DAMON's threads since boot, in nanoseconds; 0 if there are none, `None` without `/proc`.
///
/// The threads belong to the machine: a container with its own pid namespace does not see them. The kernel updates the
/// time when a thread leaves its processor: see [`is_running`].
pub fn run_ns() -> Option<u64> {
    // The fields: time on a processor, time waiting for a processor, number of time slices.
    let time =
        |process: &Path| fs::read_to_string(process.join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    Some(threads()?.filter_map(|process| time(&process)).sum())
}

/// Whether a thread of DAMON is on a processor or waits for one. [`run_ns`] does not include its current time slice.
pub fn is_running() -> bool {
    // The state follows the thread's name, which is in parentheses and may contain any character.
    let state = |process: &Path| fs::read_to_string(process.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next();
    threads().is_some_and(|mut threads| threads.any(|process| state(&process) == Some('R')))
}

/// The `/proc` folders of DAMON's threads.
fn threads() -> Option<impl Iterator<Item = PathBuf>> {
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let is_damon = |process: &Path| fs::read(process.join("comm")).is_ok_and(|name| name.starts_with(b"kdamond"));
    Some(processes.filter(move |process| is_damon(process)))
}
