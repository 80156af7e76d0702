//! Records of calls that the tracer makes, for the thread that merges them with the kernel's records.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::monotonic_ns;
use crate::record::{Record, What};

/// Records in the order of their times.
#[derive(Debug, Default)]
pub struct CallLog(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    records: Vec<Record>,
    is_closed: bool,
}

impl CallLog {
    /// Adds a record with the present time. A reader that locks the log later than at a time has all records up to
    /// that time.
    pub fn push(&self, pid: u32, tid: u32, what: What) {
        let mut contents = self.lock();
        if !contents.is_closed {
            let time_ns = monotonic_ns();
            contents.records.push(Record { time_ns, pid, tid, what });
        }
    }

    /// Adds a record of an earlier time, before the log is read for the first time. Later records must be added later.
    pub fn push_earlier(&self, record: Record) {
        self.lock().records.push(record);
    }

    /// Takes all records.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.lock().records)
    }

    /// Drops all records from now on.
    pub fn close(&self) {
        let mut contents = self.lock();
        contents.is_closed = true;
        contents.records = Vec::new();
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
