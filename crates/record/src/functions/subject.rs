//! The process whose functions are probed, and why they cannot be. A debugger, a stop or other C libraries are no
//! obstacle: nothing in the process takes part.

use std::collections::BTreeSet;
use std::fs;

use hksim_linux_probe::attach_obstacle::AttachObstacle;
use hksim_linux_probe::maps::Maps;
use hksim_linux_probe::process_words::command_of;
use hksim_trace::memory_policy::{MemoryPolicy, ThpDisable};

/// Versions of Linux that return from probed functions by a system call which a filter does not let pass.
const FILTERED: std::ops::RangeInclusive<(u32, u32)> = (6, 11)..=(6, 13);

/// A process to probe.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its process id.
    pub pid: u32,
    /// Process id of its parent.
    pub parent_pid: u32,
    /// Its command line.
    pub command: Vec<String>,
    /// Settings for its memory that are in force.
    pub policies: Vec<MemoryPolicy>,
}

impl Subject {
    /// Checks the process.
    ///
    /// # Errors
    /// The reason, and what to do.
    pub fn check(pid: u32) -> Result<Self, String> {
        let status = AttachObstacle::check_program(pid).map_err(|why| why.to_string())?;
        let number = |name: &str| status.number::<u32>(name);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if number("Seccomp").is_some_and(|mode| mode != 0) && ends_filtered(&release) {
            return Err(format!(
                "it has a system-call filter (seccomp), which on Linux {} ends it at the return of a probed function; \
                 use Linux 6.14 or newer",
                release.trim()
            ));
        }
        let has_no_huge_pages = number("THP_enabled") == Some(0);
        Ok(Self {
            pid,
            parent_pid: number("PPid").unwrap_or_default(),
            command: command_of(pid),
            policies: has_no_huge_pages.then_some(MemoryPolicy::ThpDisable(ThpDisable::All)).into_iter().collect(),
        })
    }
}

/// Whether this release of Linux ends filtered processes at the return of a probed function.
fn ends_filtered(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map(|number| number.trim().parse().unwrap_or(0));
    FILTERED.contains(&(numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

/// Where the kernel lets the probed functions of a process return to: the start of the mapping that it made there.
pub fn trampoline_of(pid: u32) -> Option<u64> {
    // Names of files need not be UTF-8.
    let text = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let maps = Maps::of_text(&text);
    maps.iter().find(|map| map.name == "[uprobes]").map(|map| map.start as u64)
}

/// The threads of a process now.
pub fn threads_of(pid: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_end_probed_programs_on_three_versions_only() {
        for (release, expected) in
            [("6.10.9", false), ("6.11.0-9-generic", true), ("6.13-rc1", true), ("6.14.1", false), ("5.12.3", false)]
        {
            assert_eq!(ends_filtered(release), expected, "{release}");
        }
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let why = |pid| Subject::check(pid).expect_err("refused");
        assert!(why(std::process::id()).contains("hksim itself"));
        assert!(why(4_194_305).contains("no such process"));
        assert!(why(2).contains("kernel thread") || why(2).contains("no such process"), "{}", why(2));
    }
}
