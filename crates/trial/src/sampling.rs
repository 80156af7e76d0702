//! The processes of one run and their memory, looked at again and again.
//!
//! Looking takes the locks of their address spaces, so a run that is sampled is not timed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::tree;

/// Shortest time between two looks.
const INTERVAL: Duration = Duration::from_millis(5);
/// Looks take at most a share of the time of one in this many.
const REST: u32 = 10;
/// Maximum number of points of a timeline.
const POINTS_MAX: usize = 256;
/// A process may be seen once before its libraries are loaded.
const LOOKS_MIN: u32 = 2;

/// The memory of all processes of a program at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the start.
    pub at_s: f64,
    /// Resident bytes of all processes, shared pages counted once.
    pub rss_bytes: u64,
    /// Bytes of anonymous memory in huge pages.
    pub huge_bytes: u64,
}

/// A program that was executed in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Executed {
    looks: u32,
    has_library: bool,
    rss_bytes_peak: u64,
}

/// What was seen of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Memory over time.
    pub(crate) timeline: Vec<Point>,
    /// The highest sum of resident bytes.
    pub(crate) rss_bytes_peak: u64,
    /// The highest sum of bytes in huge pages.
    pub(crate) huge_bytes_peak: u64,
    looks: u64,
    /// Every so many looks give a point of the timeline.
    looks_per_point: u64,
    executed: BTreeMap<(u32, PathBuf), Executed>,
}

impl Seen {
    /// Looks until the other end of `end` is closed. `library` is the one that all processes should have.
    pub(crate) fn until(end: &Receiver<()>, keeper: u32, library: Option<&Path>) -> Seen {
        let begin = Instant::now();
        let mut seen = Seen { looks_per_point: 1, ..Seen::default() };
        let mut rest = Duration::ZERO;
        while end.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
            let start = Instant::now();
            seen.look(start - begin, keeper, library);
            rest = INTERVAL.max(start.elapsed() * REST);
        }
        seen
    }

    fn look(&mut self, at: Duration, keeper: u32, library: Option<&Path>) {
        let mut point = Point { at_s: at.as_secs_f64(), ..Point::default() };
        for pid in tree::descendants(keeper) {
            let (Some(memory), Some(program)) = (tree::memory(pid), tree::executable(pid)) else { continue };
            point.rss_bytes += memory.shared_out_bytes;
            point.huge_bytes += memory.huge_bytes;
            let new = Executed { looks: 0, has_library: library.is_none(), rss_bytes_peak: 0 };
            let executed = self.executed.entry((pid, program)).or_insert(new);
            executed.rss_bytes_peak = executed.rss_bytes_peak.max(memory.rss_bytes);
            if let Some(library) = library.filter(|_| !executed.has_library) {
                let is_mapped = tree::has_mapped(pid, library);
                executed.looks += u32::from(is_mapped.is_some());
                executed.has_library = is_mapped == Some(true);
            }
        }
        self.rss_bytes_peak = self.rss_bytes_peak.max(point.rss_bytes);
        self.huge_bytes_peak = self.huge_bytes_peak.max(point.huge_bytes);
        if self.looks.is_multiple_of(self.looks_per_point) && point.rss_bytes > 0 {
            self.timeline.push(point);
        }
        self.looks += 1;
        if self.timeline.len() >= POINTS_MAX {
            self.looks_per_point *= 2;
            let mut is_kept = false;
            self.timeline.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// The executable of the largest process, if that ran without the library.
    pub(crate) fn largest_unserved(&self) -> Option<String> {
        let largest = self.executed.iter().max_by_key(|(_, executed)| executed.rss_bytes_peak)?;
        is_unserved(largest.1).then(|| name(&largest.0.1))
    }

    /// The executables that ran without the library.
    pub(crate) fn unserved(&self) -> Vec<String> {
        let all = self.executed.iter().filter(|(_, executed)| is_unserved(executed));
        let mut names: Vec<String> = all.map(|((_, program), _)| name(program)).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn is_unserved(executed: &Executed) -> bool {
    !executed.has_library && executed.looks >= LOOKS_MIN
}

fn name(program: &Path) -> String {
    program.display().to_string()
}
