//! The event log: the file into which one process image writes its records.
//!
//! A log is an array of chunks of [`CHUNK_BYTES`]. Chunk 0 holds the [`Control`] page. Chunks with events are of two
//! kinds. A thread writes into a *thread buffer* through a shared mapping. A *drained chunk* is a copy of a thread
//! buffer that was full. Both have the same layout: a [`ChunkHeader`], an area for nested records, and from
//! [`WORDS_OFFSET`] on the words of `encoding.rs`. Chunks with call sites are described in `stacks.rs`.
//!
//! **Exactly once.** A thread buffer's `cursor` holds the number of its current fill and the words in it. To drain, the
//! thread writes a copy of its buffer with the header of a drained chunk. Then it moves the cursor to the next fill in
//! one store. A drained chunk counts only if it has its header and the buffer has moved on to a later fill. (If a copy
//! cannot be written completely, its header is removed.) So no event is lost or counted twice, even if the process is
//! killed between any two instructions.
//!
//! This file is compiled into the preloaded object and into `hksim-record`. It uses `core` only.

use crate::encoding::ESCAPE_WORDS;

/// First bytes of a log.
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"hkspool1");
/// Size of every chunk in bytes (buffers of this size cost least per event).
pub const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a chunk before its first word.
pub const WORDS_OFFSET: usize = 8 << 10;
/// Words in a full chunk.
pub const CHUNK_WORDS: usize = (CHUNK_BYTES - WORDS_OFFSET) / 8;
/// Bytes of a thread buffer before its nested records.
pub const NESTED_OFFSET: usize = 64;
/// Maximum number of nested records of a thread buffer. A signal handler that interrupted the recorder writes them.
pub const NESTED_RECORDS: usize = (WORDS_OFFSET - NESTED_OFFSET) / (8 * ESCAPE_WORDS);
/// Bytes of the control page.
pub const CONTROL_BYTES: usize = 4096;
/// Maximum size of the command line in a log.
pub const COMMAND_BYTES: usize = 2048;
/// Maximum size of the allocator's path in a log.
pub const ALLOCATOR_BYTES: usize = 512;
/// Maximum total size of the names of the programs to record.
pub const ONLY_BYTES: usize = 2048;
/// The environment variable that names the session directory.
pub const SESSION_VARIABLE: &str = "HKSIM_RECORD_SESSION";
/// The environment variable with the number of system-call filters of `hksim` itself; unset if it has none.
pub const FILTERS_VARIABLE: &str = "HKSIM_RECORD_FILTERS";
/// Suffix of a log's file name, after the process id, `-` and a number.
pub const LOG_SUFFIX: &str = ".spool";

/// Suffix of a stream of accesses, of the same length as [`LOG_SUFFIX`]; the rest of the name is that of the log.
pub const STREAM_SUFFIX: &str = ".touch";
/// Suffix of the file mapped for a child that is about to be forked. Before it come process id, image and a number.
pub const FORKING_SUFFIX: &str = ".forking";
/// Suffix of the same file after the fork; the child's process id replaces the number.
pub const FORKED_SUFFIX: &str = ".forked";
/// The file of a session that holds its [`SessionPage`].
pub const SESSION_FILE: &str = "control";
/// First bytes of a session's control file.
pub const SESSION_MAGIC: u64 = u64::from_le_bytes(*b"hksess01");

/// `state` of a session: calls are recorded.
pub const SESSION_RECORDING: u32 = 0;
/// `state` of a session: recording is paused.
pub const SESSION_STOPPED: u32 = 1;
/// `state` of a session: no further call will be recorded.
pub const SESSION_ENDED: u32 = 2;

/// `origin`: the process image began with exec.
pub const ORIGIN_EXEC: u32 = 1;
/// `origin`: the process began with fork and inherited a heap.
pub const ORIGIN_FORK: u32 = 2;
/// `origin`: the recorder attached to the running process.
pub const ORIGIN_ATTACHED: u32 = 3;

/// `kind` of a chunk that a thread writes into.
pub const CHUNK_BUFFER: u32 = u32::from_le_bytes(*b"LANE");
/// `kind` of a chunk that is a copy of a full thread buffer.
pub const CHUNK_DRAINED: u32 = u32::from_le_bytes(*b"BLCK");

/// The page that all processes of a session share with `hksim`. Its `state` starts and stops the recording, without
/// signals.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SessionPage {
    /// [`SESSION_MAGIC`].
    pub magic: u64,
    /// [`SESSION_RECORDING`], [`SESSION_STOPPED`] or [`SESSION_ENDED`].
    pub state: u32,
    /// Processes that could not create a log.
    pub unrecorded: u32,
    /// Time stamp counter at which the recording ended; 0 before. Records with later times do not count.
    pub ended_ticks: u64,
    /// Limit on `bytes`, at which the recording ends; 0 for no limit.
    pub bytes_max: u64,
    /// Bytes of chunks allocated by all processes.
    pub bytes: u64,
    /// Frames of a call's stack to record; 0 for no call sites.
    pub stack_depth: u32,
    /// Not 0 if events have numbers instead of times, for a stream of accesses (`--accesses full`).
    pub numbered: u32,
    /// Number of events that may reuse one reading of the time stamp counter, within one `epoch` and while the process
    /// has one thread; 0 to read the counter at every event.
    pub untimed_events: u32,
    /// A number that changes periodically, and whenever an exact time matters.
    pub epoch: u32,
    /// Processes that have installed a system-call filter.
    pub filtered: u32,
    /// Processes that the options of the recording exclude.
    pub left_out: u32,
    /// Process id of `hksim` if only its direct child is recorded; 0 to record all descendants.
    pub only_child_of: u32,
    /// Bytes used of `only`.
    pub only_bytes: u32,
    /// Names of the programs to record, each terminated by a zero byte; empty to record all programs.
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
    /// [`ORIGIN_EXEC`], [`ORIGIN_FORK`] or [`ORIGIN_ATTACHED`].
    pub origin: u32,
    /// Chunks allocated, the control chunk included.
    pub chunks: u32,
    /// Threads numbered so far.
    pub threads: u32,
    /// Bytes used of `command`.
    pub command_bytes: u32,
    /// 1 if the executable defines `malloc` itself, so that the recorder's `malloc` is not called.
    pub own_malloc: u32,
    /// Bytes used of `allocator`.
    pub allocator_bytes: u32,
    /// Time stamp counter at the start.
    pub start_ticks: u64,
    /// Events lost.
    pub events_lost: u64,
    /// Address of two 64-bit counters, the first of which numbers the events; 0 if events have times.
    pub counters: u64,
    /// The command line, each word terminated by a zero byte.
    pub command: [u8; COMMAND_BYTES],
    /// Path of the object whose `malloc` serves the program; set when the recorder is loaded.
    pub allocator: [u8; ALLOCATOR_BYTES],
    /// Recorded calls whose call site was wanted but is unknown.
    pub sites_lost: u64,
    /// Result of `PR_GET_THP_DISABLE` when the log began.
    pub thp_disable: u32,
    /// The personality when the log began.
    pub personality: u32,
    /// Chunks mapped in advance.
    pub window: Window,
}

/// Chunks that a process has mapped in advance, because its system-call filter forbids mapping more.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Window {
    /// Number of the first chunk.
    pub first: u32,
    /// Number of chunks; 0 for no window.
    pub chunks: u32,
    /// Number of chunks with space reserved in the file. `hksim` raises it.
    pub granted: u32,
    /// Number of chunks in use.
    pub taken: u32,
}

/// The first bytes of a thread buffer or drained chunk.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`CHUNK_BUFFER`], [`CHUNK_DRAINED`] or `CHUNK_SITES` (`stacks.rs`); any other value means that
    /// the chunk is unused.
    pub kind: u32,
    /// Chunk number of the thread buffer: this chunk, or the buffer from which it was copied.
    pub buffer: u32,
    /// Number of the fill (high 32 bits) and words in it (low 32 bits).
    pub cursor: u64,
    /// In a thread buffer: number of nested records waiting. It may exceed [`NESTED_RECORDS`]; the excess is lost.
    pub nested: u32,
    /// Zero.
    pub unused: u32,
    /// Time stamp counter at which the buffer's owner ended; 0 while it runs.
    pub ended_ticks: u64,
}

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES && size_of::<SessionPage>() <= CONTROL_BYTES);
const _: () = assert!(size_of::<ChunkHeader>() <= NESTED_OFFSET);
const _: () = assert!(CHUNK_WORDS > ESCAPE_WORDS * (NESTED_RECORDS + 2), "all nested records fit into an empty chunk");

/// The fill number of a cursor.
#[must_use]
pub const fn fill(cursor: u64) -> u32 {
    (cursor >> 32) as u32
}

/// The number of words in a cursor's fill.
#[must_use]
pub const fn words(cursor: u64) -> usize {
    (cursor & 0xffff_ffff) as usize
}

/// The cursor at the start of the next fill.
#[must_use]
pub const fn next_fill(cursor: u64) -> u64 {
    ((cursor >> 32) + 1) << 32
}
