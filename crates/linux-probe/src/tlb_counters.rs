//! The processor's own counts of data-TLB accesses and misses, where its performance counters can be used.

use std::io;
use std::os::fd::OwnedFd;

use crate::perf::{self, Request};

/// What the counters counted. Each processor counts only some of the events. What counts as a miss depends on the
/// processor, too: on Intel, an access that walks the page table; on AMD, an access that misses the first level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbCounts {
    /// Loads.
    pub loads: Option<u64>,
    /// Loads that missed.
    pub load_misses: Option<u64>,
    /// Stores that missed.
    pub store_misses: Option<u64>,
}

/// Counters of this thread, in user mode, disabled until [`TlbCounters::enable`].
#[derive(Debug)]
pub struct TlbCounters {
    loads: Option<OwnedFd>,
    load_misses: Option<OwnedFd>,
    store_misses: Option<OwnedFd>,
}

/// `PERF_COUNT_HW_CACHE_DTLB`, with an operation (read 0, write 1) and a result (access 0, miss 1).
const fn dtlb(operation: u64, result: u64) -> u64 {
    3 | operation << 8 | result << 16
}

const LOADS: u64 = dtlb(0, 0);
const LOAD_MISSES: u64 = dtlb(0, 1);
const STORE_MISSES: u64 = dtlb(1, 1);

impl TlbCounters {
    /// Opens the counters that this processor has.
    ///
    /// # Errors
    /// The kernel's error for load misses, if it opens none of the counters: usually `ENOENT`, because a virtual machine
    /// has no performance counters, or `EACCES` by `kernel.perf_event_paranoid`.
    pub fn open() -> io::Result<TlbCounters> {
        let (loads, store_misses) = (open_event(LOADS).ok(), open_event(STORE_MISSES).ok());
        match open_event(LOAD_MISSES) {
            Err(why) if store_misses.is_none() => Err(why),
            load_misses => Ok(TlbCounters { loads, load_misses: load_misses.ok(), store_misses }),
        }
    }

    fn events(&self) -> impl Iterator<Item = &OwnedFd> {
        [&self.loads, &self.load_misses, &self.store_misses].into_iter().flatten()
    }

    /// Starts counting.
    pub fn enable(&self) {
        self.events().for_each(perf::enable);
    }

    /// Stops counting, until [`TlbCounters::enable`].
    pub fn disable(&self) {
        self.events().for_each(perf::disable);
    }

    /// Stops counting. Returns the counts; `None` if the processor's counters did not count all the time, because others
    /// use them, too.
    pub fn finish(self) -> Option<TlbCounts> {
        self.disable();
        let counted = |event: &Option<OwnedFd>| match event {
            Some(event) => perf::whole_count(event).map(Some),
            None => Some(None),
        };
        Some(TlbCounts {
            loads: counted(&self.loads)?,
            load_misses: counted(&self.load_misses)?,
            store_misses: counted(&self.store_misses)?,
        })
    }
}

fn open_event(config: u64) -> io::Result<OwnedFd> {
    let request = Request {
        kind: perf::TYPE_HARDWARE_CACHE,
        config,
        flags: perf::FLAG_DISABLED | perf::FLAG_EXCLUDE_KERNEL | perf::FLAG_EXCLUDE_HV,
        read_format: perf::READ_TIMES,
        ..Request::default()
    };
    perf::open(&request, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;

    /// Touches `pages` pages, each many times, in an order that no TLB predicts.
    fn wander(pages: usize) {
        let mut memory = vec![1u8; pages * PAGE_BYTES as usize];
        let mut at = 1usize;
        for _ in 0..4_000_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (at >> 33) % pages;
            memory[page * PAGE_BYTES as usize + page % 64 * 64] += 1;
        }
        std::hint::black_box(&memory);
    }

    fn misses(pages: usize) -> Option<u64> {
        let counters = TlbCounters::open().map_err(|why| eprintln!("skipped: dTLB events: {why}")).ok()?;
        counters.enable();
        wander(pages);
        let counts = counters.finish();
        if counts.is_none() {
            eprintln!("skipped: dTLB events: the processor's counters are shared");
        }
        counts.map(|counts| counts.load_misses.or(counts.store_misses).unwrap_or(0))
    }

    #[test]
    fn more_pages_than_a_tlb_has_entries_miss_more() {
        if let (Some(few), Some(many)) = (misses(16), misses(65_536)) {
            assert!(many > 1_000_000 && few < many / 10, "{few} misses on 16 pages, {many} on 65536");
        }
    }
}
