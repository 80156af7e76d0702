//! Metadata of a recording: the header is known at the start, the footer at the end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A process id.
pub type ProcessId = u32;

/// Where a recording comes from and what it shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The program that wrote the file, with its version.
    pub producer: String,
    /// Identifies the run. All address spaces of one run have the same value.
    pub run_id: String,
    /// The command and its arguments. For a program that a recorded program executed: its name alone.
    pub command: Vec<String>,
    /// The text that the command got as its standard input, if the recorder gave it one: the job of a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The directory in which the command was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Environment variables that configure allocators, libraries and huge pages (`GLIBC_TUNABLES`, `LD_PRELOAD`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The process.
    pub pid: ProcessId,
    /// Number of the address space within the process; each exec begins a new one.
    pub image: u32,
    /// How the address space began.
    pub beginning: Beginning,
    /// What the recorder could see.
    pub visibility: Visibility,
    /// The machine at the start of the recording.
    pub machine: Machine,
    /// What the process had when the address space began. Files of earlier versions have none of it.
    #[serde(default, skip_serializing_if = "Inherited::is_default")]
    pub inherited: Inherited,
    /// Maximum number of frames of a call stack; `None` if call stacks were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_depth: Option<u32>,
    /// The tools that changed the recording, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
}

/// How an address space began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Beginning {
    /// By exec: it was empty.
    Exec,
    /// By fork: it began as a copy of the parent's.
    Fork {
        /// The parent's process id.
        parent_pid: ProcessId,
        /// Number of the parent's address space.
        parent_image: u32,
    },
    /// It was there before: the recording begins in the middle of a running process, with its mappings and pages
    /// ([`Op::MappingAtStart`](crate::Op::MappingAtStart), [`Op::PagesAtStart`](crate::Op::PagesAtStart)).
    Attached {
        /// How long the process was stopped while they were read, in nanoseconds.
        stopped_ns: u64,
        /// Bytes of which it is unknown whether they were given up with `MADV_FREE`: pages that were written since look like
        /// those that were not, and only root sees single pages.
        #[serde(default, skip_serializing_if = "is_zero")]
        lazy_unknown_bytes: u64,
    },
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Beginning {
    /// Whether the recording begins in the middle of a running process.
    pub const fn is_attached(self) -> bool {
        matches!(self, Self::Attached { .. })
    }
}

/// Which page faults were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Faults {
    /// All, with read or write.
    Accesses,
    /// All, without read or write.
    All,
    /// Those in user mode, without read or write. Faults inside system calls are missing.
    UserOnly,
}

/// How memory calls were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// By the kernel's tracepoints.
    Tracepoints,
    /// By stopping the program at each call (ptrace).
    Stops,
}

/// What the recorder could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visibility {
    /// Page faults.
    pub faults: Faults,
    /// Memory calls.
    pub calls: Calls,
}

/// The machine at the start of the recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel_release: String,
    /// The mode of `/sys/kernel/mm/transparent_hugepage/enabled`: programs may read it. `None` without THP.
    pub thp_mode: Option<String>,
    /// Whether addresses were random (ASLR).
    pub addresses_random: bool,
    /// `vm.overcommit_memory`.
    pub overcommit_memory: Option<u32>,
    /// Whether huge pages were off for the recorded processes, so that each touched page was seen.
    pub thp_disabled: bool,
}

/// What a process has when an address space begins by exec: from the process that started it, or from the program that
/// executed this one. A forked child has what its parent had at the fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// Whether the process can get huge pages, apart from what the recorder does.
    #[serde(default)]
    pub thp_disable: ThpDisabled,
    /// Whether a recorded program before this one chose that: it then held in place of what the recorder does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thp_chosen: bool,
    /// The personality (`PER_*` and its flags) with which the started program began, apart from what the recorder does.
    #[serde(default)]
    pub personality: u32,
    /// The limits with which the started program began; `None` for programs that were executed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

impl Inherited {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Limits of memory, in bytes; `None` is unlimited. They are the soft ones, which the kernel applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `RLIMIT_STACK`: also decides where mappings begin.
    pub stack_bytes: Option<u64>,
    /// `RLIMIT_MEMLOCK`.
    pub locked_bytes: Option<u64>,
    /// `RLIMIT_AS`.
    pub address_space_bytes: Option<u64>,
}

/// What `prctl(PR_GET_THP_DISABLE)` returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThpDisabled {
    /// 0: the modes of the machine decide.
    #[default]
    Off,
    /// 1: the process gets no huge pages.
    All,
    /// 3: only memory advised with `MADV_HUGEPAGE` gets them (Linux 6.18).
    ExceptAdvised,
}

/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: u32 = 2;

impl ThpDisabled {
    /// The state after `prctl(PR_SET_THP_DISABLE, value, flags)`.
    pub const fn set(value: u32, flags: u32) -> Self {
        match (value, flags & EXCEPT_ADVISED) {
            (0, _) => Self::Off,
            (_, 0) => Self::All,
            _ => Self::ExceptAdvised,
        }
    }

    /// The second and third argument of `prctl(PR_SET_THP_DISABLE)` that give this state.
    pub const fn arguments(self) -> [u32; 2] {
        match self {
            Self::Off => [0, 0],
            Self::All => [1, 0],
            Self::ExceptAdvised => [1, EXCEPT_ADVISED],
        }
    }

    /// The state that `prctl(PR_GET_THP_DISABLE)` returns as `number`: [`ThpDisabled::Off`] for errors and unknown ones.
    pub const fn of_number(number: i32) -> Self {
        match number {
            1 => Self::All,
            3 => Self::ExceptAdvised,
            _ => Self::Off,
        }
    }

    /// What it forbids, in words; `None` if it forbids nothing.
    pub const fn restriction(self) -> Option<&'static str> {
        match self {
            Self::Off => None,
            Self::All => Some("no huge pages (PR_SET_THP_DISABLE)"),
            Self::ExceptAdvised => Some("huge pages only where advised (PR_SET_THP_DISABLE)"),
        }
    }
}

/// What is known at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// How the address space ended.
    pub end: End,
    /// When, in nanoseconds since the start of the recording: a program can sleep after its last event. `None` in a part
    /// of a recording, and in old files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// Events that the recorder lost, over all processes of the run.
    pub lost_events: u64,
    /// Calls that can change memory in ways that are not recorded, by name. `None` in a
    /// part of a recording: the whole has such calls, and how many of them are in the part is unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unrecorded_calls: BTreeMap<String, Option<u64>>,
    /// The status of the program that was started, in the recording in which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ExitStatus>,
}

/// What a process left for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// How an address space ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The process exited.
    Exit,
    /// The process executed another program.
    Exec,
    /// The recording ended first.
    #[default]
    Running,
}

impl Header {
    /// A header for tests and examples: this command, recorded with full visibility.
    pub fn example(command: &[&str]) -> Self {
        Self {
            producer: concat!("hksim ", env!("CARGO_PKG_VERSION")).to_string(),
            run_id: "example".to_string(),
            command: command.iter().map(|word| word.to_string()).collect(),
            input: None,
            directory: None,
            environment: BTreeMap::new(),
            pid: 1,
            image: 0,
            beginning: Beginning::Exec,
            visibility: Visibility { faults: Faults::Accesses, calls: Calls::Tracepoints },
            machine: Machine {
                kernel_release: "6.18.0".to_string(),
                thp_mode: Some("madvise".to_string()),
                addresses_random: true,
                overcommit_memory: Some(0),
                thp_disabled: true,
            },
            inherited: Inherited::default(),
            stack_depth: None,
            history: Vec::new(),
        }
    }
}
