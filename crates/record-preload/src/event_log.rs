//! The log: the file in which one process image leaves its records.
//!
//! A log is an array of chunks of [`CHUNK_BYTES`]. Chunk 0 holds the [`Control`] page. Every other chunk is either a
//! *buffer* - the buffer a thread writes into through a shared mapping - or a *block*, the copy of a thread buffer taken when
//! it was full. Both look alike: a [`ChunkHeader`], room for nested records, and from [`WORDS_OFFSET`] the words of
//! `encoding.rs`.
//!
//! **Exactly once.** A thread buffer's `cursor` holds the number of its current fill and the words in it. To drain, a thread writes a
//! copy of its chunk, with the header of a block; then it moves the cursor to the next fill in one store. A block counts
//! only if its header is there (a copy that could not be written whole loses it), and only if its fill is no longer the
//! buffer's own; so a process may be killed at any instruction.
//!
//! This file is compiled into the preloaded object and into `hksim-record`. It uses `core` only.

use crate::encoding::ESCAPE_WORDS;

/// First bytes of a log.
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"hkspool1");
/// Size of every chunk in bytes (buffers of this size cost least per event).
pub const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a thread buffer or block before its first word.
pub const WORDS_OFFSET: usize = 8 << 10;
/// Words in a full chunk.
pub const CHUNK_WORDS: usize = (CHUNK_BYTES - WORDS_OFFSET) / 8;
/// Bytes of a thread buffer before its nested records.
pub const NESTED_OFFSET: usize = 64;
/// Nested records a thread buffer can hold: made by a signal handler that interrupted the recorder itself.
pub const NESTED_RECORDS: usize = (WORDS_OFFSET - NESTED_OFFSET) / (8 * ESCAPE_WORDS);
/// Bytes of the control page.
pub const CONTROL_BYTES: usize = 4096;
/// Bytes of a command line that a log keeps.
pub const COMMAND_BYTES: usize = 2048;
/// Bytes of the allocator's path that a log keeps.
pub const ALLOCATOR_BYTES: usize = 512;
/// Bytes that the names of the programs to be recorded may take.
pub const ONLY_BYTES: usize = 2048;
/// The environment variable that names the session directory.
pub const SESSION_VARIABLE: &str = "HKSIM_RECORD_SESSION";
/// The environment variable that says how many system-call filters `hksim` has itself; missing where it has none.
pub const FILTERS_VARIABLE: &str = "HKSIM_RECORD_FILTERS";
/// How a log's file name ends; before it stand the process id, `-` and a number.
pub const LOG_SUFFIX: &str = ".spool";

/// How the name of a stream of accesses ends, as long as [`LOG_SUFFIX`]; before it stands what stands in its log's.
pub const STREAM_SUFFIX: &str = ".touch";
/// How the name of a file ends that is mapped for a child about to be forked; before it stand process id, image and a number.
pub const FORKING_SUFFIX: &str = ".forking";
/// How it ends from then on, with the child's process id in place of the number.
pub const FORKED_SUFFIX: &str = ".forked";
/// The file of a session that holds its [`SessionPage`].
pub const SESSION_FILE: &str = "control";
/// First bytes of a session's control file.
pub const SESSION_MAGIC: u64 = u64::from_le_bytes(*b"hksess01");

/// `state` of a session: calls are recorded.
pub const SESSION_RECORDING: u32 = 0;
/// `state` of a session: calls are not recorded for the time being.
pub const SESSION_STOPPED: u32 = 1;
/// `state` of a session: no further call will be recorded.
pub const SESSION_ENDED: u32 = 2;

/// `origin`: the process image began with exec.
pub const ORIGIN_EXEC: u32 = 1;
/// `origin`: the process began with fork and inherited a heap.
pub const ORIGIN_FORK: u32 = 2;

/// `kind` of a chunk that a thread writes into.
pub const CHUNK_BUFFER: u32 = u32::from_le_bytes(*b"LANE");
/// `kind` of a chunk that is a copy.
pub const CHUNK_DRAINED: u32 = u32::from_le_bytes(*b"BLCK");

/// What all processes of a session share with `hksim`: one page, mapped by each. A word of it is the only thing that
/// starts and stops a recording; no signal is needed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SessionPage {
    /// [`SESSION_MAGIC`].
    pub magic: u64,
    /// [`SESSION_RECORDING`], [`SESSION_STOPPED`] or [`SESSION_ENDED`].
    pub state: u32,
    /// Processes that could not begin a log.
    pub unrecorded: u32,
    /// Time stamp counter at which the recording ended; 0 before. Records stamped later do not count.
    pub ended_ticks: u64,
    /// Bytes of chunks after which the recording ends; 0 for no limit.
    pub bytes_max: u64,
    /// Bytes of chunks that all processes have taken.
    pub bytes: u64,
    /// Frames of a call's stack to record; 0 for no call sites.
    pub stack_depth: u32,
    /// Not 0 where events are numbered for a stream of accesses (`--touch full`) and so have no time stamps.
    pub numbered: u32,
    /// Events that may follow one that read the time stamp counter without doing so, in the same `epoch`, as long as a
    /// process has one thread; 0 to read it at every event.
    pub untimed_events: u32,
    /// Changes from time to time, and where an exact time matters.
    pub epoch: u32,
    /// Processes that have installed a system-call filter.
    pub filtered: u32,
    /// Processes that were left out, as the recording is to be of others.
    pub left_out: u32,
    /// Process id of `hksim` where only its own child is to be recorded, without the children of that; 0 for all.
    pub only_child_of: u32,
    /// Bytes used of `only`.
    pub only_bytes: u32,
    /// Names of the programs to be recorded, each ended by a zero byte; none for all.
    pub only: [u8; ONLY_BYTES],
}

/// The first page of a log.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Control {
    /// [`LOG_MAGIC`], written last.
    pub magic: u64,
    /// Process id.
    pub pid: u32,
    /// Parent's process id at the start.
    pub parent_pid: u32,
    /// [`ORIGIN_EXEC`] or [`ORIGIN_FORK`].
    pub origin: u32,
    /// Chunks given out, the control chunk included.
    pub chunks: u32,
    /// Threads numbered so far.
    pub threads: u32,
    /// Bytes used of `command`.
    pub command_bytes: u32,
    /// 1 where the executable defines `malloc` itself, so that the recorder's is not called.
    pub own_malloc: u32,
    /// Bytes used of `allocator`.
    pub allocator_bytes: u32,
    /// Time stamp counter at the start.
    pub start_ticks: u64,
    /// Events that could not be kept.
    pub events_lost: u64,
    /// Address of two counters, 64 bits each, of which the first numbers the events. 0: events have time stamps.
    pub counters: u64,
    /// The command line, each word ended by a zero byte.
    pub command: [u8; COMMAND_BYTES],
    /// Path of the object whose `malloc` serves the program; known once the object is loaded.
    pub allocator: [u8; ALLOCATOR_BYTES],
    /// Recorded calls whose call site was wanted and could not be found out.
    pub sites_lost: u64,
    /// What `PR_GET_THP_DISABLE` returned when the log began.
    pub thp_disable: u32,
    /// The personality then.
    pub personality: u32,
    /// Chunks mapped in advance.
    pub window: Window,
}

/// Chunks that a process has mapped before its system-call filter forbids it to get more.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Window {
    /// Number of the first.
    pub first: u32,
    /// How many there are; 0 for no window.
    pub chunks: u32,
    /// How many of them have space in the file. `hksim` raises it.
    pub granted: u32,
    /// How many of them are taken.
    pub taken: u32,
}

/// The first bytes of a thread buffer or block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`CHUNK_BUFFER`] or [`CHUNK_DRAINED`]; anything else is an unused chunk.
    pub kind: u32,
    /// Chunk number of the buffer: its own, or the one a block was copied from.
    pub buffer: u32,
    /// Number of this fill (high 32 bits), words in it (low 32 bits).
    pub cursor: u64,
    /// Nested records waiting (a thread buffer only); may exceed [`NESTED_RECORDS`], the rest is lost.
    pub nested: u32,
    /// Zero.
    pub unused: u32,
    /// Time stamp counter at which the buffer's present thread ended, 0 while it lives.
    pub ended_ticks: u64,
}

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES && size_of::<SessionPage>() <= CONTROL_BYTES);
const _: () = assert!(size_of::<ChunkHeader>() <= NESTED_OFFSET);
const _: () = assert!(CHUNK_WORDS > ESCAPE_WORDS * (NESTED_RECORDS + 2), "all nested records fit an empty chunk");

/// The fill number of a cursor.
#[must_use]
pub const fn fill(cursor: u64) -> u32 {
    (cursor >> 32) as u32
}

/// The words in a cursor's fill.
#[must_use]
pub const fn words(cursor: u64) -> usize {
    (cursor & 0xffff_ffff) as usize
}

/// The cursor at the start of the fill after `cursor`'s.
#[must_use]
pub const fn next_fill(cursor: u64) -> u64 {
    ((cursor >> 32) + 1) << 32
}
