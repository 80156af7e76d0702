//! The most common calls of a thread buffer, decoded in batches.

use hksim_trace::resolve::{Plain, PlainCall};

use crate::encoding::{Kind, Record, Regions};
use crate::stamps::BufferClock;

/// Most calls decoded at once.
const PLAIN_CALLS: usize = 128;
/// The calls of compact records, by the number of their kind. A table, because a branch on the kind is unpredictable.
const CALLS: [PlainCall; 4] = [PlainCall::Malloc, PlainCall::Malloc, PlainCall::Free, PlainCall::Calloc];
const _: () = assert!(Kind::Malloc as u8 == 1 && Kind::Free as u8 == 2 && Kind::Calloc as u8 == 3);

/// Decoded calls that are not consumed yet, in order.
#[derive(Default)]
pub struct PlainCalls {
    calls: Vec<Plain>,
    /// Index of the next call.
    next: usize,
}

/// Result of decoding a batch.
pub struct Decoded {
    /// Words read.
    pub words: usize,
    /// The record after the calls, if it is compact but none of these calls.
    pub other: Option<Record>,
}

impl PlainCalls {
    /// The calls that are left.
    #[inline(always)]
    pub fn rest(&self) -> &[Plain] {
        self.calls.get(self.next..).unwrap_or_default()
    }

    /// Consumes the next calls.
    #[inline(always)]
    pub fn pass(&mut self, calls: usize) {
        self.next += calls;
    }

    /// Whether at least half a batch is consumed.
    pub fn runs_short(&self) -> bool {
        self.rest().len() <= PLAIN_CALLS / 2
    }

    /// Whether no more are decoded before some are consumed.
    pub fn is_full(&self) -> bool {
        self.rest().len() >= PLAIN_CALLS
    }

    /// Decodes words of `thread`, up to the first that is not one of these calls.
    pub fn decode(&mut self, words: &[u64], thread: u32, clock: &mut BufferClock, regions: &mut Regions) -> Decoded {
        self.calls.drain(..self.next);
        self.next = 0;
        let mut now = *clock;
        let mut other = None;
        let mut read = 0;
        for &word in words.iter().take(PLAIN_CALLS - self.calls.len()) {
            let Some(record) = regions.decode_compact(word) else { break };
            read += 1;
            let call = CALLS[record.kind as usize % CALLS.len()];
            let time_ns = now.advance(record.ticks);
            match Plain::new(time_ns, thread, call, record.address, record.size as u32) {
                Some(call) => self.calls.push(call),
                None => {
                    other = Some(record);
                    break;
                }
            }
        }
        *clock = now;
        Decoded { words: read, other }
    }
}
