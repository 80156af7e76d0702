//! What the child of an explained run records, in order, and its encoding in words.

use hksim_linux_probe::trap_samples::TrapSample;

/// What the replay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// Its own work.
    Replay,
    /// The allocator performs a request.
    Call,
    /// The program accesses its block.
    Touch,
}

impl Moment {
    fn of(code: u64) -> Moment {
        match code {
            1 => Moment::Call,
            2 => Moment::Touch,
            _ => Moment::Replay,
        }
    }
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The index of the event in the trace.
    pub event: u64,
    /// What the replay did for it.
    pub moment: Moment,
}

/// Return addresses that are kept of a stack.
pub const CALLERS: usize = 4;

/// Words that are kept of what the allocator has accessed.
pub const WORDS: usize = 4;

/// Where in the code something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The instruction.
    pub instruction: u64,
    /// Return addresses in the allocator's file that were found on the stack, innermost first; then zeros.
    pub callers: [u64; CALLERS],
}

/// Pages that were present right after a trap: those around its address, without a gap, in its range of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentRun {
    /// The first page, from address 0.
    pub first_page: u64,
    /// Their number; 0 if the kernel cannot tell.
    pub pages: u64,
    /// Whether they are one huge page.
    pub is_huge: bool,
}

/// A page-fault exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapRecord {
    /// When.
    pub when: When,
    /// The address accessed.
    pub address: u64,
    /// The instruction that accessed it.
    pub place: Place,
    /// For an access of the allocator: the words from the address on, rounded down to 8 bytes, after the access;
    /// otherwise zeros.
    pub words: [u64; WORDS],
    /// What it made present.
    pub present: PresentRun,
}

/// A system call on mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When.
    pub when: When,
    /// Whether the thread that performs the trace made it.
    pub is_of_replay_thread: bool,
    /// Its number.
    pub number: i64,
    /// Its first five arguments.
    pub arguments: [u64; 5],
    /// Its result; errors are negative.
    pub result: i64,
    /// Faults that the kernel charged during the call: pages that it populated.
    pub faults: u64,
    /// Present huge pages in the populated range after the call.
    pub huge_pages: u64,
    /// Where.
    pub place: Place,
}

/// A record of an explained run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The mappings before the first event, as in `/proc/self/maps`.
    Maps(String),
    /// Pages that were present before the first event.
    Present {
        /// The first page, from address 0.
        first_page: u64,
        /// Their number.
        pages: u64,
    },
    /// The allocator returned a block for the event.
    Placed {
        /// The index of the event.
        event: u64,
        /// The block's address; 0 if the request failed.
        address: u64,
    },
    /// A page-fault exception.
    Trap(TrapRecord),
    /// A system call.
    Call(CallRecord),
}

const MAPS: u64 = 1;
const PRESENT: u64 = 2;
const PLACED: u64 = 3;
const TRAP: u64 = 4;
const CALL: u64 = 5;
const HUGE: u64 = 1 << 63;

/// The longest record that has no text, in words.
pub(crate) const WORDS_MAX: usize = 16;

/// A record in words. Building one allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    words: [u64; WORDS_MAX],
    used: usize,
}

impl Words {
    /// The first word has the kind, the moment, a flag, and the event.
    fn new(kind: u64, when: When, flag: bool) -> Words {
        let mut words = [0; WORDS_MAX];
        words[0] = kind | (when.moment as u64) << 8 | u64::from(flag) << 16 | when.event << 24;
        Words { words, used: 1 }
    }

    fn with(mut self, more: &[u64]) -> Words {
        self.words[self.used..self.used + more.len()].copy_from_slice(more);
        self.used += more.len();
        self
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.words[..self.used]
    }

    /// The words before a text of so many bytes.
    pub(crate) fn maps(bytes: usize) -> Words {
        Words::new(MAPS, When { event: 0, moment: Moment::Replay }, false).with(&[bytes as u64])
    }

    pub(crate) fn present(first_page: u64, pages: u64) -> Words {
        Words::new(PRESENT, When { event: 0, moment: Moment::Replay }, false).with(&[first_page, pages])
    }

    pub(crate) fn placed(event: u64, address: u64) -> Words {
        Words::new(PLACED, When { event, moment: Moment::Call }, false).with(&[address])
    }

    pub(crate) fn trap(
        when: When,
        sample: &TrapSample,
        place: &Place,
        words: &[u64; WORDS],
        present: PresentRun,
    ) -> Words {
        let pages = present.pages | if present.is_huge { HUGE } else { 0 };
        Words::new(TRAP, when, false)
            .with(&[sample.address, place.instruction])
            .with(&place.callers)
            .with(words)
            .with(&[present.first_page, pages])
    }

    pub(crate) fn call(call: &CallRecord) -> Words {
        Words::new(CALL, call.when, call.is_of_replay_thread)
            .with(&[call.number as u64])
            .with(&call.arguments)
            .with(&[call.result as u64, call.faults, call.huge_pages, call.place.instruction])
            .with(&call.place.callers)
    }
}

/// Splits words into records.
pub(crate) struct Records<'a>(pub(crate) &'a [u64]);

impl Records<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn place(&mut self) -> Option<Place> {
        let [instruction] = self.take()?;
        Some(Place { instruction, callers: self.take()? })
    }

    fn text(&mut self) -> Option<String> {
        let [bytes] = self.take()?;
        let (taken, rest) = self.0.split_at_checked((bytes as usize).div_ceil(8))?;
        self.0 = rest;
        let mut text: Vec<u8> = taken.iter().flat_map(|word| word.to_ne_bytes()).collect();
        text.truncate(bytes as usize);
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn record(&mut self) -> Option<Record> {
        let [head] = self.take()?;
        let when = When { event: head >> 24, moment: Moment::of(head >> 8 & 0xff) };
        Some(match head & 0xff {
            MAPS => Record::Maps(self.text()?),
            PRESENT => {
                let [first_page, pages] = self.take()?;
                Record::Present { first_page, pages }
            }
            PLACED => {
                let [address] = self.take()?;
                Record::Placed { event: when.event, address }
            }
            TRAP => {
                let [address] = self.take()?;
                let place = self.place()?;
                let words = self.take()?;
                let [first_page, pages] = self.take()?;
                let present = PresentRun { first_page, pages: pages & !HUGE, is_huge: pages & HUGE != 0 };
                Record::Trap(TrapRecord { when, address, place, words, present })
            }
            CALL => {
                let [number] = self.take()?;
                let arguments = self.take()?;
                let [result, faults, huge_pages] = self.take()?;
                Record::Call(CallRecord {
                    when,
                    is_of_replay_thread: head >> 16 & 1 == 1,
                    number: number as i64,
                    arguments,
                    result: result as i64,
                    faults,
                    huge_pages,
                    place: self.place()?,
                })
            }
            _ => return None,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.record().ok_or_else(|| "a damaged record".to_string());
        if record.is_err() {
            self.0 = &[];
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let when = When { event: 77_000_000_000, moment: Moment::Touch };
        let place = Place { instruction: 5, callers: [6, 7, 0, 0] };
        let present = PresentRun { first_page: 512, pages: 512, is_huge: true };
        let sample = TrapSample { address: u64::MAX, ..TrapSample::default() };
        let call = CallRecord {
            when: When { event: 1, moment: Moment::Call },
            is_of_replay_thread: true,
            number: 9,
            arguments: [1, 2, 3, 4, 5],
            result: -12,
            faults: 3,
            huge_pages: 1,
            place,
        };
        let mut words = Words::placed(3, 0x1000).as_slice().to_vec();
        words.extend(Words::trap(when, &sample, &place, &[9, 8, 7, 6], present).as_slice());
        words.extend(Words::call(&call).as_slice());
        words.extend(Words::present(4, 5).as_slice());
        words.extend(Words::maps(9).as_slice());
        words.extend([u64::from_ne_bytes(*b"1000-200"), u64::from(b'0')]);
        let trap = TrapRecord { when, address: u64::MAX, place, words: [9, 8, 7, 6], present };
        let expected = [
            Record::Placed { event: 3, address: 0x1000 },
            Record::Trap(trap),
            Record::Call(call),
            Record::Present { first_page: 4, pages: 5 },
            Record::Maps("1000-2000".into()),
        ];
        assert_eq!(Records(&words).collect::<Result<Vec<_>, _>>(), Ok(expected.to_vec()));
        assert!(Records(&words[..words.len() - 1]).any(|record| record.is_err()));
        assert!(Records(&[250]).all(|record| record.is_err()));
    }
}
