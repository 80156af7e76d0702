//! The data-TLB events of a timed run.

use hksim_linux_probe::tlb_counters::{TlbCounters, TlbCounts};
use serde::{Deserialize, Serialize};

use crate::probe::Meter;

/// The events of the processor's data TLB while a trace's calls were performed, in user mode. Which accesses count as
/// misses depends on the processor: on Intel, those that walk the page table; on AMD, those that miss the first level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DtlbEvents {
    /// Loads.
    pub loads: Option<u64>,
    /// Loads that missed.
    pub load_misses: Option<u64>,
    /// Stores that missed.
    pub store_misses: Option<u64>,
}

impl From<TlbCounts> for DtlbEvents {
    fn from(TlbCounts { loads, load_misses, store_misses }: TlbCounts) -> DtlbEvents {
        DtlbEvents { loads, load_misses, store_misses }
    }
}

/// Counts while the trace's calls are performed, and not while the trace is read.
pub(crate) struct TlbWatch(Result<TlbCounters, String>);

impl TlbWatch {
    pub(crate) fn open() -> TlbWatch {
        let refused = |why| format!("the processor's performance counters cannot be used: {why}");
        TlbWatch(TlbCounters::open().map_err(refused))
    }

    /// The events, or why they are unknown.
    pub(crate) fn finish(self) -> Result<DtlbEvents, String> {
        let counts = self.0?.finish().ok_or("the processor's performance counters are shared with other programs")?;
        Ok(counts.into())
    }
}

impl Meter for TlbWatch {
    fn resume(&mut self) {
        self.0.iter().for_each(TlbCounters::enable);
    }

    fn pause(&mut self) {
        self.0.iter().for_each(TlbCounters::disable);
    }
}
