//! What a reading of page faults found.

use serde::Serialize;

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionKind {
    /// The memory of `brk`.
    Heap,
    /// Mappings without a file, where allocators and thread stacks lie.
    Anonymous,
    /// The first thread's stack.
    Stack,
    /// A mapped file, with the zeroed data behind it.
    File,
    /// What the kernel gives every process: vdso, vvar.
    Kernel,
    /// In no mapping that is known.
    Unknown,
}

impl RegionKind {
    /// All kinds, in the order of tables and pictures.
    pub const ALL: [RegionKind; 6] = [
        RegionKind::Heap,
        RegionKind::Anonymous,
        RegionKind::Stack,
        RegionKind::File,
        RegionKind::Kernel,
        RegionKind::Unknown,
    ];

    /// Its name, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            RegionKind::Heap => "heap",
            RegionKind::Anonymous => "anonymous",
            RegionKind::Stack => "stack",
            RegionKind::File => "file",
            RegionKind::Kernel => "kernel",
            RegionKind::Unknown => "unknown",
        }
    }
}

/// Faults by reason, as far as addresses tell. The sum is all faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reasons {
    /// First fault of a page since it was mapped.
    pub first_touch: u64,
    /// The page was given back by `madvise` or `munmap` before: told where the script has these calls.
    pub after_drop: u64,
    /// The processor said that the page was there: a write to a zero page, a copy after fork, or a changed protection.
    /// Told by `exceptions:page_fault_user` alone.
    pub page_present: u64,
    /// The page faulted before, and the processor said that it is not there: given back.
    pub page_gone: u64,
    /// The page faulted before; the script does not say more. Given back, or one of `page_present`.
    pub again: u64,
}

impl Reasons {
    /// All faults.
    pub fn total(&self) -> u64 {
        self.first_touch + self.after_drop + self.page_present + self.page_gone + self.again
    }
}

/// The faults of one region: a file, or all memory of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionRow {
    /// What it is.
    pub region: RegionKind,
    /// The file's path; of other kinds the kind.
    pub name: String,
    /// Its faults.
    pub faults: u64,
    /// By reason.
    pub reasons: Reasons,
    /// Time of its first fault, in ns from the first of all.
    pub first_ns: u64,
    /// Time of its last.
    pub last_ns: u64,
}

/// The faults of one mapping.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MappingRow {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// What it belongs to.
    pub region: RegionKind,
    /// The file's path; of other kinds the kind.
    pub name: String,
    /// Its faults.
    pub faults: u64,
    /// Those that were a page's first.
    pub first_touch: u64,
}

/// The faults that one function took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodeRow {
    /// Symbol and object, as perf prints them.
    pub code: String,
    /// Its faults.
    pub faults: u64,
}

/// The faults of a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Where it begins, in ns from the first fault.
    pub from_ns: u64,
    /// Faults by region, in the order of [`RegionKind::ALL`].
    pub faults: [u64; RegionKind::ALL.len()],
}

/// What faulted, where, when and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultReport {
    /// The member read, where the script lies in an archive.
    pub member: Option<String>,
    /// Lines read.
    pub lines: u64,
    /// The process, or the thread where the script names no processes.
    pub process: u64,
    /// What it runs; the last where it runs several programs.
    pub command: String,
    /// Faults.
    pub faults: u64,
    /// Faults by reason.
    pub reasons: Reasons,
    /// Faults taken inside the kernel, in a system call.
    pub in_kernel: u64,
    /// Time from the first fault to the last.
    pub duration_ns: u64,
    /// Faults of other processes, which are left out.
    pub other_process_faults: u64,
    /// Up to 16 of these processes.
    pub other_processes: Vec<u64>,
    /// Records that perf lost.
    pub records_lost: u64,
    /// Lines that are none of perf's, and samples of other events.
    pub other_lines: u64,
    /// Whether the script or a maps file says what is mapped.
    pub has_mappings: bool,
    /// Whether the processor's error codes are there.
    pub has_error_codes: bool,
    /// By region, most faults first; all of them.
    pub regions: Vec<RegionRow>,
    /// The mappings with most faults, up to 64.
    pub mappings: Vec<MappingRow>,
    /// The functions with most faults, up to 64.
    pub code: Vec<CodeRow>,
    /// Over time, in 32 to 64 stretches of equal length (fewer where all is over within ns).
    pub timeline: Vec<Moment>,
}
