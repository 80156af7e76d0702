//! Workloads of glibc's malloc tracing branch (`trace2wl`): a stream of operations for each thread, with points at
//! which one thread waits for another.
//!
//! An operation is a byte followed by numbers in base 128, highest digit first. The header consists of operation 8 with
//! the number of pointers, 9 with the number of syncs, 10 with the number of threads, and 11 with the offset of the
//! stream for each thread. Operation 1 ends the header and each stream. A stream consists of calls and the operations 6
//! and 7 (below). A pointer number stands for an address; 0 is NULL.
//!
//! The file defines only one order between threads: operations before `6 n` (release) in one thread come before
//! operations after `7 n` (acquire) in another. The import lets threads take turns, one call each, and makes them wait
//! at acquires.

mod stream;

use super::failure::Failure;
use super::input::{Head, Input};
use super::records::align_log2;
use super::sink::Sink;
use super::{Format, no_times};
use crate::error::TraceError;
use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::resolve::{RawOp, WaitLimits};
use hksim_recording_files::open_regular;
use std::collections::HashSet;
use stream::Stream;

pub(super) const FORMAT: Format = Format {
    name: "glibc-wl",
    recognise: |head: &Head| looks_like_head(head.bytes()),
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &[
        "times",
        "the order of threads, except where a block passes from one thread to another: threads take turns",
        "posix_memalign and aligned_alloc, which are recorded as memalign",
        "when threads end",
    ],
    convert,
};

/// Maximum number of threads: each needs a buffer.
const THREADS_MAX: u64 = 1 << 14;
/// Maximum number of pending releases. Beyond that the releasing thread also waits.
const RELEASED_MAX: usize = 1 << 20;
const PAGE_LOG2: u8 = 12;
const DONE: u8 = 1;
const POINTERS: u8 = 8;
const SYNCS: u8 = 9;
const THREADS: u8 = 10;
const START: u8 = 11;
const REMEDY: &str = "use another copy; glibc's trace2wl writes such files";

fn looks_like_head(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    [POINTERS, SYNCS, THREADS].iter().all(|&code| {
        let found = rest.split_off_first() == Some(&code);
        let length = rest.iter().position(|&byte| byte < 0x80);
        found && length.and_then(|length| rest.split_off(..=length)).is_some()
    }) && rest.first() == Some(&START)
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let Some(path) = input.plain_path() else {
        let why = "a workload is read at one offset per thread, which a compressed file does not allow";
        return Err(Failure::new(why, "decompress it to a file first"));
    };
    let file = open_regular(path).map_err(|why| TraceError::io(path, "open", why))?;
    let file = file.ok_or_else(|| TraceError::NotAFile { path: path.to_path_buf() })?;
    let bytes = file.metadata().map_err(|why| TraceError::io(path, "inspect", why))?.len();
    let mut head = Stream::new(path, &file, 0..bytes);
    let pointers = head.announced(POINTERS)?;
    head.announced(SYNCS)?;
    let threads = head.announced(THREADS)?;
    if threads > THREADS_MAX {
        return Err(head.refuse(format!("{threads} threads, above {THREADS_MAX}"), REMEDY));
    }
    let mut starts = Vec::new();
    for _ in 0..threads {
        starts.push(head.announced(START)?);
    }
    if head.code()? != DONE {
        return Err(head.refuse("the header does not end after its threads".to_string(), REMEDY));
    }
    let mut ends = starts.clone();
    ends.sort_unstable();
    if ends.first().is_some_and(|&first| first < head.here()) || ends.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(head.refuse("two threads, or a thread and the header, have the same offset".to_string(), REMEDY));
    }
    ends.push(bytes);
    // A stream ends where the next one in the file begins, so no byte is read twice.
    let end = |start: u64| ends[ends.partition_point(|&end| end <= start).min(ends.len() - 1)];
    let streams = starts.iter().map(|&start| Some(Stream::new(path, &file, start..end(start)))).collect();
    let read = Turns { streams, pointers, released: HashSet::new() }.run(sink)?;
    input.count(head.here() + read);
    Ok(())
}

/// The state of all threads.
struct Turns<'a> {
    /// Threads that have not ended.
    streams: Vec<Option<Stream<'a>>>,
    /// All pointer numbers are below this.
    pointers: u64,
    /// Releases that have not been acquired yet.
    released: HashSet<u64>,
}

/// How a thread's turn ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Moved,
    /// The thread waits at an operation that it has not consumed.
    Waits,
    Ended,
}

impl Turns<'_> {
    /// Runs all threads to their ends. Returns the number of bytes read.
    fn run(mut self, sink: &mut Sink) -> Result<u64, Failure> {
        let mut read = 0;
        let mut released_max = RELEASED_MAX;
        loop {
            let (mut moved, mut waiting) = (false, None);
            for thread in 0..self.streams.len() {
                match self.turn(thread, released_max, sink)? {
                    None => (),
                    Some(Turn::Moved) => moved = true,
                    Some(Turn::Waits) => waiting = waiting.or(Some(thread)),
                    Some(Turn::Ended) => {
                        moved = true;
                        read += self.streams[thread].take().map_or(0, |stream| stream.read());
                    }
                }
            }
            match waiting {
                None if !moved => return Ok(read),
                Some(_) if !moved && self.released.len() >= released_max => released_max = usize::MAX,
                Some(thread) if !moved => return Err(self.stuck(thread)),
                _ => (),
            }
        }
    }

    /// Runs one call of a thread, and the releases and acquires before that call. `None` if the thread has already
    /// ended.
    fn turn(&mut self, thread: usize, released_max: usize, sink: &mut Sink) -> Result<Option<Turn>, Failure> {
        let Some(stream) = self.streams[thread].as_mut() else { return Ok(None) };
        let mut turn = Turn::Waits;
        loop {
            let before = stream.here();
            let code = stream.code()?;
            match code {
                0 => (),
                DONE => return Ok(Some(Turn::Ended)),
                6 if self.released.len() >= released_max => {
                    stream.go_back(before);
                    return Ok(Some(turn));
                }
                6 => _ = self.released.insert(stream.number()?),
                7 => {
                    let sync = stream.number()?;
                    if !self.released.remove(&sync) {
                        stream.go_back(before);
                        return Ok(Some(turn));
                    }
                }
                _ => {
                    let op = call(code, stream, self.pointers)?;
                    sink.push(thread as u64, op).map_err(|why| stream.place(why))?;
                    return Ok(Some(Turn::Moved));
                }
            }
            turn = Turn::Moved;
        }
    }

    fn stuck(&mut self, thread: usize) -> Failure {
        match self.streams[thread].as_mut() {
            Some(stream) => stream.refuse(
                "the threads wait for each other, or for a sync that is never released".to_string(),
                "use another copy; no program can have produced these syncs",
            ),
            None => Failure::new("the threads wait for each other", REMEDY),
        }
    }
}

/// Reads the arguments of a call, after its code.
fn call(code: u8, stream: &mut Stream<'_>, pointers: u64) -> Result<RawOp, Failure> {
    let alloc = |stream: &mut Stream<'_>, call, align_log2| -> Result<RawOp, Failure> {
        Ok(RawOp::Alloc {
            address: stream.pointer(pointers)?,
            size: stream.number()?,
            align_log2,
            call,
            initial_touch: InitialTouch::None,
        })
    };
    Ok(match code {
        2 => alloc(stream, AllocCall::Malloc, 0)?,
        3 => alloc(stream, AllocCall::Calloc, 0)?,
        4 => {
            let (new, old) = (stream.pointer(pointers)?, stream.pointer(pointers)?);
            RawOp::Realloc {
                old,
                new,
                size: stream.number()?,
                call: ReallocCall::Realloc,
                initial_touch: InitialTouch::None,
            }
        }
        5 => RawOp::Free { address: stream.pointer(pointers)? },
        12 => {
            let (address, align) = (stream.pointer(pointers)?, stream.number()?);
            let align_log2 = align_log2(align).map_err(|why| stream.place(why))?;
            RawOp::Alloc {
                address,
                size: stream.number()?,
                align_log2,
                call: AllocCall::Memalign,
                initial_touch: InitialTouch::None,
            }
        }
        13 => alloc(stream, AllocCall::Valloc, PAGE_LOG2)?,
        14 => alloc(stream, AllocCall::Pvalloc, PAGE_LOG2)?,
        other => return Err(stream.refuse(format!("operation {other} is unknown"), REMEDY)),
    })
}
