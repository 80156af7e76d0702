//! The report on page faults.

use serde::{Serialize, Serializer};

/// The kind of memory to which an address belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionKind {
    /// The memory of `brk`.
    Heap,
    /// Mappings without a file, including those of allocators and thread stacks.
    Anonymous,
    /// The first thread's stack.
    Stack,
    /// A mapped file, including its zeroed data (bss).
    File,
    /// Mappings that the kernel creates in every process: vdso, vvar.
    Kernel,
    /// In no known mapping.
    Unknown,
}

impl RegionKind {
    /// All kinds, in the order of tables and plots.
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

/// Faults by reason. Each fault has exactly one reason, as precise as the script allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reasons {
    /// First fault of a page since it was mapped.
    pub first_touch: u64,
    /// The program had released the page by `madvise` or `munmap`. Known only if the script has these calls.
    pub after_drop: u64,
    /// The processor reported the page as present: a write to a zero page, a copy after fork, or a changed protection.
    /// Known only from `exceptions:page_fault_user`.
    pub page_present: u64,
    /// The page faulted before, and the processor reported it as not present: it was released.
    pub page_not_present: u64,
    /// The page faulted before, and the script does not show why it faulted again. It was released, or it was present
    /// as in `page_present`.
    pub repeated: u64,
}

impl Reasons {
    /// All faults.
    pub fn total(&self) -> u64 {
        self.first_touch + self.after_drop + self.page_present + self.page_not_present + self.repeated
    }
}

/// The faults of one region: a file, or all memory of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionRow {
    /// Its kind.
    pub region: RegionKind,
    /// The file's path; for other kinds, the kind.
    pub name: String,
    /// Its faults.
    pub faults: u64,
    /// Its faults by reason.
    pub reasons: Reasons,
    /// Time of its first fault, in ns since the first fault of the process.
    pub first_ns: u64,
    /// Time of its last fault.
    pub last_ns: u64,
}

/// The faults of one mapping.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MappingRow {
    /// First address.
    pub start: u64,
    /// Its end, exclusive.
    pub end: u64,
    /// Its kind.
    pub region: RegionKind,
    /// The file's path; for other kinds, the kind.
    pub name: String,
    /// Its faults.
    pub faults: u64,
    /// Of these faults, the first ones of their pages.
    pub first_touch: u64,
}

/// The faults of one function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodeRow {
    /// Symbol and object, as perf prints them.
    pub function: String,
    /// Its faults.
    pub faults: u64,
}

/// The faults of a time span.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Its start, in ns since the first fault.
    pub from_ns: u64,
    /// Faults by region, in the order of [`RegionKind::ALL`]. In JSON it is an object with one field per region.
    #[serde(serialize_with = "by_region")]
    pub faults: [u64; RegionKind::ALL.len()],
}

fn by_region<S: Serializer>(faults: &[u64; RegionKind::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(RegionKind::ALL.iter().zip(faults))
}

/// Page faults of a process by region, mapping, function, time and reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultReport {
    /// The member read, if the script is in an archive.
    pub archive_member: Option<String>,
    /// Lines read.
    pub lines: u64,
    /// The process, or the thread if the script has no process ids.
    pub process: u64,
    /// Its program; the last one after exec.
    pub command: String,
    /// Faults.
    pub faults: u64,
    /// Faults by reason.
    pub reasons: Reasons,
    /// Faults taken inside the kernel, in a system call.
    pub kernel_faults: u64,
    /// Time from the first fault to the last.
    pub duration_ns: u64,
    /// Faults of other processes; left out.
    pub other_process_faults: u64,
    /// Up to 16 of these processes.
    pub other_processes: Vec<u64>,
    /// Records that perf lost.
    pub records_lost: u64,
    /// Lines that were not used: those that perf did not write, and samples of other events.
    pub other_lines: u64,
    /// Whether the script or a maps file has the mappings.
    pub has_mappings: bool,
    /// Whether the processor's error codes are available.
    pub has_error_codes: bool,
    /// All regions, most faults first.
    pub regions: Vec<RegionRow>,
    /// The mappings with the most faults, up to 64.
    pub mappings: Vec<MappingRow>,
    /// The functions with the most faults, up to 64.
    pub functions: Vec<CodeRow>,
    /// The faults over time, in 32 to 64 spans of equal length (fewer if all faults are within a few ns).
    pub timeline: Vec<Moment>,
}
