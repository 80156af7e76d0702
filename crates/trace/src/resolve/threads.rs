//! The threads of the merge.

use super::RawEvent;
use super::address_map::AddressMap;
use crate::error::TraceError;
use crate::event::ThreadId;
use std::collections::VecDeque;

/// Raw numbers below this are always looked up in `dense`.
const DENSE_MIN: usize = 1024;
/// `dense` has at most this many entries per thread, above `DENSE_MIN`.
const DENSE_PER_THREAD: usize = 8;

/// A thread of the source.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// Empty unless the thread waits; then the first event is the one that waits.
    pub(super) queue: VecDeque<RawEvent>,
    emitted_as: Option<ThreadId>,
}

/// All threads. They are emitted under numbers in order of their first emitted event.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) list: Vec<Thread>,
    /// Raw thread number to index in `list`.
    index_of: AddressMap,
    /// The same for small raw numbers, by raw number: `u32::MAX` if not known. A recorder numbers threads from 0; other
    /// sources have thread ids.
    dense: Vec<u32>,
    emitted: u32,
}

impl Threads {
    pub(super) fn new() -> Self {
        Threads { list: Vec::new(), index_of: AddressMap::new(), dense: Vec::new(), emitted: 0 }
    }

    /// The index of the thread with this raw number; a new one if the number is new.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`]: there are 2^32 threads.
    #[inline(always)]
    pub(super) fn index(&mut self, raw: u32) -> Result<usize, TraceError> {
        match self.dense.get(raw as usize) {
            Some(&index) if index != u32::MAX => Ok(index as usize),
            _ => self.find(raw),
        }
    }

    #[inline(never)]
    fn find(&mut self, raw: u32) -> Result<usize, TraceError> {
        let index = match self.index_of.get(raw.into()) {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.list.len()).map_err(|_| TraceError::TooManyObjects)?;
                self.index_of.insert(raw.into(), index);
                self.list.push(Thread::default());
                index
            }
        };
        let place = raw as usize;
        if place < DENSE_MIN + DENSE_PER_THREAD * self.list.len() {
            self.dense.resize(self.dense.len().max(place + 1), u32::MAX);
            self.dense[place] = index;
        }
        Ok(index as usize)
    }

    /// The number under which a thread's events are emitted.
    #[inline(always)]
    pub(super) fn emitted_as(&mut self, index: usize) -> ThreadId {
        let emitted = &mut self.emitted;
        *self.list[index].emitted_as.get_or_insert_with(|| {
            *emitted += 1;
            ThreadId(*emitted - 1)
        })
    }

    /// The number under which the thread with this raw number was emitted; `None` if it was not, or its raw number is
    /// not small.
    #[inline(always)]
    pub(super) fn known_number(&self, raw: u32) -> Option<u32> {
        let &index = self.dense.get(raw as usize)?;
        Some(self.list.get(index as usize)?.emitted_as?.0)
    }

    /// Raw numbers that are small: those below this.
    pub(super) fn dense(&self) -> usize {
        self.dense.len()
    }
}
