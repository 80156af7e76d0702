//! The commonest calls of a lane, decoded many at once.

use hksim_trace::resolve::{Plain, PlainCall};

use crate::encoding::{Kind, Record, Regions};
use crate::lane_events::{Stamps, TIME_NS_MAX};

/// Calls decoded ahead at the most.
const PLAIN_CALLS: usize = 128;
/// The calls of compact records, by the number of their kind. Looked up: which comes next nobody can guess.
const CALLS: [PlainCall; 4] = [PlainCall::Malloc, PlainCall::Malloc, PlainCall::Free, PlainCall::Calloc];
const _: () = assert!(Kind::Malloc as u8 == 1 && Kind::Free as u8 == 2 && Kind::Calloc as u8 == 3);

/// Decoded calls that are not passed yet, in order.
#[derive(Default)]
pub struct PlainCalls {
    calls: Vec<Plain>,
    /// Index of the next one.
    next: usize,
}

/// What decoding needs to know of a lane.
pub struct Lane {
    pub thread: u32,
    pub stamps: Stamps,
    pub start_ticks: u64,
    /// Time of its last event.
    pub time_ns: u64,
}

/// How far decoding came.
pub struct Decoded {
    /// Words read.
    pub words: usize,
    /// Time of the last call.
    pub time_ns: u64,
    /// The record behind the calls, where it is compact but not such a call.
    pub other: Option<Record>,
}

impl PlainCalls {
    /// Those left.
    #[inline(always)]
    pub fn rest(&self) -> &[Plain] {
        self.calls.get(self.next..).unwrap_or_default()
    }

    /// Passes over the next ones.
    #[inline(always)]
    pub fn pass(&mut self, calls: usize) {
        self.next += calls;
    }

    /// Whether half of what is decoded at once is passed.
    pub fn runs_short(&self) -> bool {
        self.rest().len() <= PLAIN_CALLS / 2
    }

    /// Whether no more are decoded before some are passed.
    pub fn is_full(&self) -> bool {
        self.rest().len() >= PLAIN_CALLS
    }

    /// Decodes words, up to the first that is no such call.
    pub fn decode(&mut self, words: &[u64], lane: &Lane, regions: &mut Regions) -> Decoded {
        self.calls.drain(..self.next);
        self.next = 0;
        let &Lane { thread, stamps, start_ticks, mut time_ns } = lane;
        let mut other = None;
        let mut read = 0;
        for &word in words.iter().take(PLAIN_CALLS - self.calls.len()) {
            let Some(record) = regions.decode_compact(word) else { break };
            read += 1;
            let call = CALLS[record.kind as usize % CALLS.len()];
            time_ns = time_ns.max(stamps.time_ns(record.ticks, start_ticks)).min(TIME_NS_MAX);
            match Plain::new(time_ns, thread, call, record.address, record.size as u32) {
                Some(call) => self.calls.push(call),
                None => {
                    other = Some(record);
                    break;
                }
            }
        }
        Decoded { words: read, time_ns, other }
    }
}
