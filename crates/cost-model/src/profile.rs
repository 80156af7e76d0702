//! A machine's profile: the table of its costs.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use hksim_recording_files::open_regular;
use serde::{Deserialize, Serialize};

use crate::code_costs::CodeCosts;
use crate::memory_costs::MemoryCosts;

/// Version of the file format.
pub const VERSION: u32 = 11;

/// Maximum size of a profile.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum cost of an operation: ten seconds.
const NS_MAX: f64 = 1e10;

/// Minimum share of kernel time of a timed operation: a share that was sampled from a hundred milliseconds is hardly known
/// better. Writing to pages that are marked free is work of the processor, so that hardly any sample is the kernel's.
pub(crate) const SHARE_MIN: f64 = 0.001;

/// A timed operation. Costs are in ns per page (4 KiB), huge page (2 MiB) or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// First write to a 4 KiB page, with a footprint of 4 MiB.
    WriteFault,
    /// First write to a 4 KiB page, with a footprint of 8 MiB.
    #[serde(rename = "write_fault_8m")]
    WriteFault8m,
    /// First write to a 4 KiB page, with a footprint of 16 MiB.
    #[serde(rename = "write_fault_16m")]
    WriteFault16m,
    /// First write to a 4 KiB page, with a footprint of 32 MiB.
    #[serde(rename = "write_fault_32m")]
    WriteFault32m,
    /// First write to a 4 KiB page, with a footprint of 128 MiB.
    #[serde(rename = "write_fault_128m")]
    WriteFault128m,
    /// First write to a 4 KiB page after work on 1 MiB of other memory.
    WriteFaultApart,
    /// The same after 8 KiB.
    #[serde(rename = "write_fault_apart_8k")]
    WriteFaultApart8k,
    /// The same after 32 KiB.
    #[serde(rename = "write_fault_apart_32k")]
    WriteFaultApart32k,
    /// The same after 128 KiB.
    #[serde(rename = "write_fault_apart_128k")]
    WriteFaultApart128k,
    /// The same after 256 KiB.
    #[serde(rename = "write_fault_apart_256k")]
    WriteFaultApart256k,
    /// The same after 512 KiB.
    #[serde(rename = "write_fault_apart_512k")]
    WriteFaultApart512k,
    /// Extra cost of the first write in 2 MiB, which allocates a page table.
    PageTable,
    /// Write to a page that was dropped by `MADV_DONTNEED`, with a footprint of 4 MiB.
    Refault,
    /// The same with a footprint of 256 KiB: the kernel hands out again what is still in the nearest caches.
    RefaultNear,
    /// First read of a page, which maps the zero page.
    ZeroReadFault,
    /// Write to a zero page.
    WriteAfterZero,
    /// Write to a page shared after fork, which copies it.
    CopyAfterFork,
    /// `MAP_POPULATE`, per page.
    MapPopulate,
    /// `MADV_POPULATE_WRITE`, per page.
    PopulateWrite,
    /// `memset` of untouched memory, per page.
    MemsetUntouched,
    /// `memset` of resident memory, per page: user time.
    MemsetResident,
    /// First write to a huge page, with a footprint of 4 MiB.
    HugeFault,
    /// First write to a huge page, with a footprint of 8 MiB.
    #[serde(rename = "huge_fault_8m")]
    HugeFault8m,
    /// First write to a huge page, with a footprint of 16 MiB.
    #[serde(rename = "huge_fault_16m")]
    HugeFault16m,
    /// First write to a huge page, with a footprint of 32 MiB.
    #[serde(rename = "huge_fault_32m")]
    HugeFault32m,
    /// First write to a huge page, with a footprint of 128 MiB.
    #[serde(rename = "huge_fault_128m")]
    HugeFault128m,
    /// First write to a huge page after so much other work that all data of the fault path has left the caches.
    HugeFaultFar,
    /// Extra cost of the first write to a huge page that the host of a virtual machine has to back with memory first.
    HostBacking,
    /// First write to a 16 KiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_16k")]
    MthpFault16k,
    /// First write to a 32 KiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_32k")]
    MthpFault32k,
    /// First write to a 64 KiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_64k")]
    MthpFault64k,
    /// First write to a 128 KiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_128k")]
    MthpFault128k,
    /// First write to a 256 KiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_256k")]
    MthpFault256k,
    /// First write to a 512 KiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_512k")]
    MthpFault512k,
    /// First write to a 1 MiB folio, while that is the largest enabled size.
    #[serde(rename = "mthp_fault_1m")]
    MthpFault1m,
    /// First write to a page of the hugetlb pool.
    HugetlbFault,
    /// `munmap`, per page of the pool.
    HugetlbDrop,
    /// `MADV_DONTNEED`, per resident page.
    DontneedPage,
    /// `MADV_DONTNEED`, per huge page.
    DontneedHuge,
    /// `MADV_FREE`, per resident page.
    FreePage,
    /// `MADV_FREE`, per resident page that was written since an earlier `MADV_FREE`.
    FreePageAgain,
    /// `MADV_FREE`, per huge page.
    FreeHuge,
    /// `MADV_FREE`, per huge page that was written since an earlier `MADV_FREE`.
    FreeHugeAgain,
    /// Write to a page after `MADV_FREE`, before the kernel reclaimed it, with a footprint of 4 MiB.
    RewriteFreed,
    /// Extra cost of a call that marks or drops up to 33 pages, per page: their translations are invalidated one by one.
    FlushPage,
    /// Extra cost of a call that drops pages: invalidating translations, and freeing pages together.
    DropCall,
    /// `munmap`, per resident page.
    MunmapPage,
    /// `munmap`, per huge page.
    MunmapHuge,
    /// `munmap` or `MADV_DONTNEED`, per page of a larger folio, such as a huge page that was split.
    DropFolioPage,
    /// `MADV_DONTNEED` of one page of a huge page, which splits it.
    SplitHuge,
    /// `MADV_COLLAPSE` of 2 MiB with one present page.
    CollapseSparse,
    /// `MADV_COLLAPSE` of 2 MiB with all 512 pages present.
    CollapseFull,
    /// `mremap`, per page table that moves whole: 2 MiB in single pages.
    MoveTable,
    /// `mremap`, per page that moves alone.
    MovePage,
    /// `mremap`, per huge page.
    MoveHuge,
    /// `mremap` of memory without pages.
    MremapCall,
    /// `mmap` of 2 MiB.
    MmapCall,
    /// `munmap` of 2 MiB of untouched memory.
    MunmapCall,
    /// `madvise` that has no effect.
    MadviseCall,
    /// `fork` of a process with almost no memory.
    ForkCall,
    /// `fork`, per resident page of the parent.
    ForkPage,
    /// `fork`, per page of a larger folio, such as a huge page that was split.
    ForkFolioPage,
    /// First write to a huge page shared after fork, which splits it and copies a page.
    SplitAfterFork,
    /// Write to a page that was shared after fork and no longer is.
    ReuseAfterFork,
}

/// An amount of memory, and the operations that time first touches of it.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// The amount.
    pub bytes: u64,
    /// First touches in single pages.
    pub write_fault: Operation,
    /// First touches in huge pages.
    pub huge_fault: Operation,
}

/// The measured footprints, in ascending order. The first fits into the caches, and the last does not. The transition
/// spans about one doubling.
pub const FOOTPRINTS: [Footprint; 5] = [
    Footprint { bytes: 4 << 20, write_fault: Operation::WriteFault, huge_fault: Operation::HugeFault },
    Footprint { bytes: 8 << 20, write_fault: Operation::WriteFault8m, huge_fault: Operation::HugeFault8m },
    Footprint { bytes: 16 << 20, write_fault: Operation::WriteFault16m, huge_fault: Operation::HugeFault16m },
    Footprint { bytes: 32 << 20, write_fault: Operation::WriteFault32m, huge_fault: Operation::HugeFault32m },
    Footprint { bytes: 128 << 20, write_fault: Operation::WriteFault128m, huge_fault: Operation::HugeFault128m },
];

/// Other work between two faults that are timed: bytes that are written, and the operation. The kernel's fault path is still in
/// the first caches after the first of them, and in few near ones after the last. The faults after 4 MiB could not be told from the work.
pub const BETWEEN: [(u64, Operation); 6] = [
    (8 << 10, Operation::WriteFaultApart8k),
    (32 << 10, Operation::WriteFaultApart32k),
    (128 << 10, Operation::WriteFaultApart128k),
    (256 << 10, Operation::WriteFaultApart256k),
    (512 << 10, Operation::WriteFaultApart512k),
    (1 << 20, Operation::WriteFaultApart),
];

/// The sizes of folios whose faults are timed: all that anonymous memory can have, except 2 MiB.
pub const FOLIOS: [(u64, Operation); 7] = [
    (16 << 10, Operation::MthpFault16k),
    (32 << 10, Operation::MthpFault32k),
    (64 << 10, Operation::MthpFault64k),
    (128 << 10, Operation::MthpFault128k),
    (256 << 10, Operation::MthpFault256k),
    (512 << 10, Operation::MthpFault512k),
    (1 << 20, Operation::MthpFault1m),
];

impl Operation {
    /// The operation's name, as in a profile.
    pub fn word(self) -> String {
        toml::Value::try_from(self).ok().and_then(|value| value.as_str().map(str::to_string)).unwrap_or_default()
    }
}

/// The kernel time of an operation: the quartiles and the median of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The lower quartile of the rounds, with each round scaled to the machine's median speed. Calls, and returning pages
    /// again, are also timed with the kernel's records in the nearest caches: then it is the lower quartile of those times.
    pub low_ns: f64,
    /// The median.
    pub median_ns: f64,
    /// The upper quartile.
    pub high_ns: f64,
    /// The part of the measured processor time that these figures contain: the kernel's share. It is 1 if sampling was
    /// not permitted or the operation runs in user mode only (`memset_resident`).
    pub kernel_share: f64,
    /// Number of rounds; of `host_backing`, number of huge pages.
    pub rounds: u32,
}

impl Cost {
    /// The cost from the processor times of several rounds and the kernel's share of them; `None` without rounds.
    pub fn of(mut rounds_ns: Vec<f64>, kernel_share: f64) -> Option<Cost> {
        let kernel_share = kernel_share.clamp(SHARE_MIN, 1.0);
        rounds_ns.sort_by(f64::total_cmp);
        let last = rounds_ns.len().checked_sub(1)?;
        let at = |quarters: usize| rounds_ns[(last * quarters + 2) / 4] * kernel_share;
        Some(Cost { low_ns: at(1), median_ns: at(2), high_ns: at(3), kernel_share, rounds: rounds_ns.len() as u32 })
    }

    /// What is wrong with a cost that was read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ordered = 0.0 <= self.low_ns && self.low_ns <= self.median_ns && self.median_ns <= self.high_ns;
        if !ordered || self.high_ns > NS_MAX {
            return Err("low, median and high are not in order from 0");
        }
        if !(SHARE_MIN..=1.0).contains(&self.kernel_share) || self.rounds == 0 {
            return Err("kernel_share is not between 0.001 and 1, or rounds is 0");
        }
        Ok(())
    }

    /// The processor time of the rounds, in kernel and user mode.
    pub fn of_processor(&self) -> Cost {
        let [low_ns, median_ns, high_ns] =
            [self.low_ns, self.median_ns, self.high_ns].map(|kernel_ns| kernel_ns / self.kernel_share);
        Cost { low_ns, median_ns, high_ns, kernel_share: 1.0, rounds: self.rounds }
    }
}

/// An operation that could not be timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotMeasured {
    /// The operation.
    pub operation: Operation,
    /// Why it could not be timed.
    pub reason: String,
}

/// Whether the processor's core had other work during the calibration, such as that of another virtual machine on its second hardware
/// thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreUse {
    /// The share of looks that found other work.
    pub shared_share: f64,
    /// Additions per cycle from which on the core was alone
    /// ([`alone_from`](hksim_linux_probe::core_sharing::CoreWatch::alone_from)).
    pub alone_additions_per_cycle: f32,
}

/// The cost table of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`VERSION`].
    pub version: u32,
    /// Model name of the processor.
    pub machine: String,
    /// Number of processors.
    pub processors: u32,
    /// The kernel's release.
    pub kernel: String,
    /// Wall seconds of the calibration.
    pub elapsed_s: f64,
    /// The kernel's share of all timed processor time, by sampling; absent if sampling is not permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_share: Option<f64>,
    /// What looks found of the processor's core; absent in a profile that was made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreUse>,
    /// Operations that could not be timed.
    #[serde(default)]
    pub skipped: Vec<NotMeasured>,
    /// The costs.
    pub costs: BTreeMap<Operation, Cost>,
    /// The costs of accesses to memory; absent in a profile that was made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCosts>,
    /// The costs of the allocator's code; absent if they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeCosts>,
}

/// The fields that profiles of all versions have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// The file cannot be read.
    #[error("{}: cannot read the profile: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not a profile.
    #[error("{}: not a cost profile: {why}; create one with `hksim calibrate -o {}`", path.display(), path.display())]
    NotAProfile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The profile lacks a cost that is needed.
    #[error("the profile has no cost of {operation}: not measured: {reason}")]
    Lacks {
        /// The operation's name.
        operation: String,
        /// Why it was not measured.
        reason: String,
    },
    /// Folios of this size have no price.
    #[error("folios of {bytes} bytes are not measured")]
    NoSuchFolio {
        /// Their size.
        bytes: u64,
    },
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// The file is not a profile.
    pub fn read(path: &Path) -> Result<Profile, CostError> {
        let io = |source| CostError::Io { path: path.to_path_buf(), source };
        let refused = |why: String| CostError::NotAProfile { path: path.to_path_buf(), why };
        let file = open_regular(path).map_err(io)?.ok_or_else(|| refused("not a regular file".into()))?;
        let mut text = String::new();
        // A file may grow while it is read.
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(io)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(refused("the file is larger than 1 MiB".into()));
        }
        // Check the version first, because another version has other operations.
        if let Ok(Versioned { version }) = toml::from_str(&text)
            && version != VERSION
        {
            return Err(refused(format!("version {version}, but this hksim reads version {VERSION}")));
        }
        let profile: Profile = toml::from_str(&text).map_err(|why| {
            let line = why.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            refused(format!("line {line}: {}", why.message()))
        })?;
        let is_share = profile.kernel_share.is_none_or(|share| (0.0..=1.0).contains(&share));
        if !is_share || !(0.0..=NS_MAX).contains(&profile.elapsed_s) {
            return Err(refused("kernel_share is not between 0 and 1, or elapsed_s is out of range".into()));
        }
        for (operation, cost) in &profile.costs {
            cost.check().map_err(|why| refused(format!("{}: {why}", operation.word())))?;
        }
        if let Some(memory) = &profile.memory {
            memory.check().map_err(refused)?;
        }
        if let Some(code) = &profile.code {
            code.check().map_err(refused)?;
        }
        Ok(profile)
    }

    /// The smallest number of rounds of any cost; 0 without costs.
    pub fn rounds_min(&self) -> u32 {
        self.costs.values().map(|cost| cost.rounds).min().unwrap_or(0)
    }

    /// The profile as the text of a file.
    pub fn text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_costs::{CostAt, CostCurve};

    #[test]
    fn costs_are_quartiles_of_the_rounds() {
        let cost = Cost::of((0..=100).rev().map(f64::from).collect(), 0.5);
        let expected = Cost { low_ns: 12.5, median_ns: 25.0, high_ns: 37.5, kernel_share: 0.5, rounds: 101 };
        assert_eq!(cost, Some(expected));
        let processor = expected.of_processor();
        assert_eq!((processor.low_ns, processor.median_ns, processor.high_ns), (25.0, 50.0, 75.0));
        assert_eq!(Cost::of(Vec::new(), 1.0), None);
    }

    #[test]
    fn a_cost_is_valid_even_if_no_sample_was_the_kernels() {
        let cost = Cost::of(vec![2.0, 3.0], 0.0).expect("two rounds");
        assert_eq!(cost.check(), Ok(()));
        assert!(cost.of_processor().median_ns > 1.0, "{cost:?}");
    }

    #[test]
    fn a_profile_round_trips_and_a_damaged_one_is_an_error() {
        let cost = Cost { low_ns: 1.0, median_ns: 2.5, high_ns: 3.0, kernel_share: 0.75, rounds: 9 };
        let fill = CostCurve(vec![CostAt { bytes: 65_536, cost }, CostAt { bytes: 131_072, cost }]);
        let none = CostCurve::default;
        let (pieces, scatter, scatter_huge, chase, chase_huge) = (fill.clone(), none(), none(), none(), none());
        let memory = MemoryCosts {
            huge_pages_skipped: None,
            cycle: cost,
            fill,
            pieces,
            scatter,
            scatter_huge,
            chase,
            chase_huge,
        };
        let profile = Profile {
            version: VERSION,
            machine: "a \"processor\"".into(),
            processors: 2,
            kernel: "6.18.1".into(),
            elapsed_s: 1.5,
            kernel_share: Some(0.9),
            core: None,
            skipped: vec![NotMeasured { operation: Operation::HugetlbFault, reason: "no pool".into() }],
            costs: [(Operation::MthpFault64k, cost), (Operation::WriteFault, cost)].into(),
            memory: Some(memory),
            code: None,
        };
        let folder = std::env::temp_dir().join(format!("hksim-profile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("p.toml");
        std::fs::write(&path, profile.text()).expect("a file");
        assert_eq!(Profile::read(&path).expect("a profile"), profile);
        for (from, to) in [
            ("version = 11", "version = 10"),
            ("bytes = 65536", "bytes = 262144"),
            ("low_ns = 1.0", "low_ns = nan"),
            ("kernel_share = 0.75", "kernel_share = 0.0"),
            ("kernel_share = 0.9", "kernel_share = -7.0"),
            ("elapsed_s = 1.5", "elapsed_s = -inf"),
            ("rounds = 9", "rounds = 0"),
            ("high_ns = 3.0", "high_ns = inf"),
            ("write_fault", "write_fold"),
            ("[costs", "costs"),
        ] {
            std::fs::write(&path, profile.text().replace(from, to)).expect("a file");
            assert!(Profile::read(&path).is_err(), "{to}");
        }
        std::fs::remove_dir_all(&folder).expect("the folder is removed");
    }
}
