//! Sums over the processes of a fork family: what a service costs.

use hksim_linux_mm::Kernel;
use serde::{Deserialize, Serialize};

/// Sums over a process and its relatives by fork whose recordings are here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyTotal {
    /// Processes.
    pub processes: u64,
    /// Page-table installs.
    pub installs: u64,
    /// Faults charged to `ru_minflt`.
    pub faults: u64,
    /// #PF exceptions in modelled memory.
    pub traps: u64,
    /// Highest sum of resident bytes at one time. A page that several processes share counts in each of them.
    pub rss_bytes_peak: u64,
    /// Highest sum of transparent huge pages mapped at one time.
    pub huge_pages_peak: u64,
}

/// The sums while the recordings are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct FamilySums {
    /// Resident bytes and huge pages of each member now.
    now: Vec<[u64; 2]>,
    sum: [u64; 2],
    total: FamilyTotal,
}

impl FamilySums {
    /// Notes the memory of a member.
    pub fn note(&mut self, member: usize, kernel: &Kernel) {
        self.set(member, [kernel.resident_bytes(), kernel.huge_pages()]);
        self.total.rss_bytes_peak = self.total.rss_bytes_peak.max(self.sum[0]);
        self.total.huge_pages_peak = self.total.huge_pages_peak.max(self.sum[1]);
    }

    /// A member ends.
    pub fn end(&mut self, member: usize, kernel: &Kernel) {
        self.set(member, [0, 0]);
        let counters = kernel.counters();
        self.total.processes += 1;
        self.total.installs += counters.installs_total();
        self.total.faults += counters.faults;
        self.total.traps += counters.traps;
    }

    fn set(&mut self, member: usize, figures: [u64; 2]) {
        if self.now.len() <= member {
            self.now.resize(member + 1, [0, 0]);
        }
        for (index, figure) in figures.into_iter().enumerate() {
            self.sum[index] = self.sum[index] + figure - self.now[member][index];
            self.now[member][index] = figure;
        }
    }

    /// The sums over all members, which have ended.
    pub fn total(&self) -> FamilyTotal {
        self.total
    }
}
