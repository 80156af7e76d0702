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
#[derive(Debug)]
pub(super) struct Thread {
    /// Empty unless the thread waits; then the first event is the one that waits.
    pub(super) queue: VecDeque<RawEvent>,
    raw: u32,
    emitted_as: Option<ThreadId>,
}

/// What batches need to know about a thread. `u32::MAX`: not known.
#[derive(Clone, Copy, Debug)]
struct Dense {
    index: u32,
    emitted_as: u32,
}

const UNKNOWN: Dense = Dense { index: u32::MAX, emitted_as: u32::MAX };

/// All threads, by index in order of their first raw event. They are emitted under numbers in order of their first emitted event.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) list: Vec<Thread>,
    /// Raw thread number to index in `list`.
    index_of: AddressMap,
    /// Threads with small raw numbers, by raw number. A recorder numbers threads from 0; other sources have thread ids.
    dense: Vec<Dense>,
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
            Some(dense) if dense.index != u32::MAX => Ok(dense.index as usize),
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
                self.list.push(Thread { queue: VecDeque::new(), raw, emitted_as: None });
                index
            }
        };
        let place = raw as usize;
        if place < DENSE_MIN + DENSE_PER_THREAD * self.list.len() {
            self.dense.resize(self.dense.len().max(place + 1), UNKNOWN);
            let emitted_as = self.list[index as usize].emitted_as.map_or(u32::MAX, |thread| thread.0);
            self.dense[place] = Dense { index, emitted_as };
        }
        Ok(index as usize)
    }

    /// The number under which a thread's events are emitted.
    #[inline(always)]
    pub(super) fn emitted_as(&mut self, index: usize) -> ThreadId {
        match self.list[index].emitted_as {
            Some(number) => number,
            None => self.number(index),
        }
    }

    #[cold]
    fn number(&mut self, index: usize) -> ThreadId {
        let number = ThreadId(self.emitted);
        self.emitted += 1;
        let thread = &mut self.list[index];
        thread.emitted_as = Some(number);
        if let Some(dense) = self.dense.get_mut(thread.raw as usize) {
            dense.emitted_as = number.0;
        }
        number
    }

    /// The number under which the thread with this raw number was emitted; `None` if that is not known at once.
    #[inline(always)]
    pub(super) fn known_number(&self, raw: u32) -> Option<u32> {
        self.dense.get(raw as usize).map(|dense| dense.emitted_as).filter(|&number| number != u32::MAX)
    }

    /// Raw numbers that [`Threads::known_number`] can know: those below this.
    pub(super) fn dense(&self) -> usize {
        self.dense.len()
    }
}
