//! The kernel's records of probes and processes, as events.

use std::collections::HashMap;

use hksim_linux_probe::perf::{SAMPLE_IDENTIFIER, SAMPLE_REGISTERS, SAMPLE_STACK, SAMPLE_TID, SAMPLE_TIME};
use hksim_linux_probe::ring::{
    HEADER_BYTES, MISC_COMM_EXEC, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_LOST, RECORD_SAMPLE, RecordHeader,
};
use hksim_linux_probe::uprobe::register;

use super::pairs::{Entry, Return};

/// What every record has: the number of its event, thread and time.
pub const COMMON: u64 = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME;
/// Contents of a sample at the return of a function.
pub const AT_RETURN: u64 = COMMON | SAMPLE_REGISTERS;
/// Contents of a sample at the entry of a function, and at the return of one that stores its result, mostly in its caller's
/// frame.
pub const WITH_STACK: u64 = COMMON | SAMPLE_REGISTERS | SAMPLE_STACK;
/// Registers at an entry: the arguments in [`ARGUMENTS_AT`], and the stack pointer.
pub const ENTRY_REGISTERS: u64 =
    register::CX | register::DX | register::SI | register::DI | register::SP | register::R8 | register::R9;
/// Registers at a return: result and stack pointer.
pub const RETURN_REGISTERS: u64 = register::AX | register::SP;
/// Bytes of the stack at an entry. The return addresses of calls around this one are in them, if those are near.
pub const ENTRY_STACK_BYTES: u32 = 256;
/// Bytes of the stack at the return of a function that stores its result.
pub const RETURN_STACK_BYTES: u32 = 1024;

/// Words of a sample before its registers: event, ids, time, and the ABI of the registers.
const WORDS_BEFORE: usize = 4;
/// Words of [`ENTRY_REGISTERS`], which are in the order of their bits, that have the six arguments.
const ARGUMENTS_AT: [usize; 6] = [3, 2, 1, 0, 5, 6];
/// The word with the stack pointer.
const ENTRY_STACK_AT: usize = 4;
/// The ABI of registers of 64-bit code.
const ABI_64: u64 = 2;
/// Bytes at the end of a record that is no sample: thread, time, event.
const TRAILER_BYTES: usize = 24;

/// What an event's samples mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The function with this index was entered.
    Entry(usize),
    /// The function with this index returned.
    Return(usize),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A function was entered; with the stack from the stack pointer on.
    Entry(Entry, Vec<u8>),
    /// A function returned; also with the stack, if the function stores its result.
    Return(Return, Vec<u8>),
    /// A thread or a process began.
    Begin {
        /// The process of the thread that began it.
        parent_pid: u32,
        /// The thread that began it.
        parent_tid: u32,
    },
    /// The thread ended.
    End,
    /// The process executed another program.
    Exec,
    /// Records were lost before this one.
    Lost,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What happened.
    pub what: What,
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?))
}

/// The event of a record; `None` if it is of no interest.
pub fn event_of(header: RecordHeader, record: &[u8], meanings: &HashMap<u64, Meaning>) -> Option<Event> {
    if header.kind == RECORD_SAMPLE {
        return sample(record, meanings);
    }
    let time_ns = time_of(record)?;
    let at = |at: usize| half(record, HEADER_BYTES + at);
    match header.kind {
        // Process, its parent, thread, its parent.
        RECORD_FORK => {
            let what = What::Begin { parent_pid: at(4)?, parent_tid: at(12)? };
            Some(Event { time_ns, pid: at(0)?, tid: at(8)?, what })
        }
        RECORD_EXIT => Some(Event { time_ns, pid: at(0)?, tid: at(8)?, what: What::End }),
        RECORD_COMM if header.misc & MISC_COMM_EXEC != 0 => {
            Some(Event { time_ns, pid: at(0)?, tid: at(4)?, what: What::Exec })
        }
        RECORD_LOST => Some(Event { time_ns, pid: 0, tid: 0, what: What::Lost }),
        _ => None,
    }
}

/// The time of a record that is no sample.
fn time_of(record: &[u8]) -> Option<u64> {
    word(record, record.len().checked_sub(TRAILER_BYTES)? + 8)
}

fn sample(record: &[u8], meanings: &HashMap<u64, Meaning>) -> Option<Event> {
    let at = |index: usize| word(record, HEADER_BYTES + 8 * index);
    let meaning = *meanings.get(&at(0)?)?;
    let (ids, time_ns) = (at(1)?, at(2)?);
    if at(3)? != ABI_64 {
        return None;
    }
    let register = |index: usize| at(WORDS_BEFORE + index);
    let what = match meaning {
        Meaning::Entry(function) => {
            let mut arguments = [0; 6];
            for (argument, index) in arguments.iter_mut().zip(ARGUMENTS_AT) {
                *argument = register(index)?;
            }
            let entry = Entry { function, arguments, stack: register(ENTRY_STACK_AT)? };
            What::Entry(entry, stack_of(record, ENTRY_REGISTERS))
        }
        Meaning::Return(function) => {
            let back = Return { function, result: register(0)?, stack: register(1)? };
            What::Return(back, stack_of(record, RETURN_REGISTERS))
        }
    };
    Some(Event { time_ns, pid: ids as u32, tid: (ids >> 32) as u32, what })
}

/// The stack in a sample after these registers; empty if it has none.
fn stack_of(record: &[u8], registers: u64) -> Vec<u8> {
    let size_at = HEADER_BYTES + 8 * (WORDS_BEFORE + registers.count_ones() as usize);
    let stack = || {
        let size = word(record, size_at)? as usize;
        let start = size_at + 8;
        // After the bytes comes the number of those that could be read.
        let read = word(record, start.checked_add(size)?)? as usize;
        record.get(start..start.checked_add(read.min(size))?)
    };
    stack().unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(words: &[u64]) -> Vec<u8> {
        [0].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn header(kind: u32, misc: u16) -> RecordHeader {
        RecordHeader { kind, misc, bytes: 0 }
    }

    const MEANINGS: [(u64, Meaning); 2] = [(70, Meaning::Entry(1)), (71, Meaning::Return(1))];

    #[test]
    fn arguments_and_results_are_read() {
        let meanings = MEANINGS.into();
        let ids = 5 | 6 << 32;
        // cx, dx, si, di, sp, r8, r9.
        let entry = record(&[70, ids, 1000, ABI_64, 4, 3, 2, 1, 0x7000, 5, 6]);
        let what = What::Entry(Entry { function: 1, arguments: [1, 2, 3, 4, 5, 6], stack: 0x7000 }, Vec::new());
        let expected = Event { time_ns: 1000, pid: 5, tid: 6, what };
        assert_eq!(event_of(header(RECORD_SAMPLE, 0), &entry, &meanings), Some(expected));
        let back = record(&[71, ids, 1001, ABI_64, 0x5555, 0x7008, 16, 11, 12, 8]);
        let event = event_of(header(RECORD_SAMPLE, 0), &back, &meanings).expect("an event");
        let stack = 11_u64.to_ne_bytes().to_vec();
        assert_eq!(event.what, What::Return(Return { function: 1, result: 0x5555, stack: 0x7008 }, stack));
        for cut in 0..back.len() {
            let _ = event_of(header(RECORD_SAMPLE, 0), &back[..cut], &meanings);
            let _ = event_of(header(RECORD_LOST, 0), &back[..cut], &meanings);
        }
        assert_eq!(event_of(header(RECORD_SAMPLE, 0), &record(&[9, ids, 1, ABI_64, 1, 1]), &meanings), None);
    }

    #[test]
    fn processes_are_read() {
        let trailer = [9 | 10 << 32, 2000, 77];
        let with = |words: &[u64]| record(&[words, &trailer].concat());
        let fork = with(&[20 | 10 << 32, 21 | 11 << 32, 1999]);
        let read = |kind, misc, record: &[u8]| event_of(header(kind, misc), record, &HashMap::new());
        let begin = What::Begin { parent_pid: 10, parent_tid: 11 };
        let event = |pid, tid, what| Some(Event { time_ns: 2000, pid, tid, what });
        assert_eq!(read(RECORD_FORK, 0, &fork), event(20, 21, begin));
        assert_eq!(read(RECORD_EXIT, 0, &fork), event(20, 21, What::End));
        let comm = with(&[20 | 21 << 32, 0x6873]);
        assert_eq!(read(RECORD_COMM, MISC_COMM_EXEC, &comm), event(20, 21, What::Exec));
        assert_eq!(read(RECORD_COMM, 0, &comm), None, "a new name only");
        assert_eq!(read(RECORD_LOST, 0, &with(&[77, 5])), event(0, 0, What::Lost));
    }
}
