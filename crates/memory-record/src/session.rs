//! A recording in progress: records are taken from the rings, interpreted, and written to files.

use std::thread;
use std::time::{Duration, Instant};

use hksim_memory_trace::{End, ExitStatus, Footer, Op, ThpDisabled};

use crate::clock::monotonic_ns;
use crate::error::MemoryRecordError;
use crate::fault_check::FaultCheck;
use crate::files::Files;
use crate::interpreter::{Interpreter, Output};
use crate::merge::Merger;
use crate::spaces::SpaceId;
use crate::thp_guard::ThpGuard;

/// Interval between two reads of the rings.
const INTERVAL: Duration = Duration::from_millis(2);
/// Longest time until an event is in its file, once it is settled: what a killed recorder loses.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Number of records that are interpreted between two reads of the rings.
const RECORDS_BETWEEN_READS: u64 = 1024;
/// Minimum age of a record when it is used. By then all rings hold the records before it, even if the host of a
/// virtual machine stopped a processor between taking a record's time and storing it.
const SETTLED_NS: u64 = 100_000_000;

/// A recording in progress.
pub struct Session {
    pub merger: Merger,
    pub interpreter: Interpreter,
    pub files: Files,
    pub check: FaultCheck,
    pub guard: Option<ThpGuard>,
    /// When the program exited, and the footer of its address space. The footer waits for the program's status.
    pub program_end: Option<(SpaceId, u64, Footer)>,
}

impl Session {
    /// Records until the program has ended, or until `must_stop`, which is not asked again once it said so. Returns whether the
    /// program has ended.
    pub fn watch(
        &mut self,
        has_ended: impl Fn() -> bool,
        mut must_stop: impl FnMut() -> bool,
    ) -> Result<bool, MemoryRecordError> {
        let mut flushed = Instant::now();
        let mut stops = false;
        loop {
            let has_ended = has_ended();
            let is_last = has_ended || stops || must_stop();
            let now_ns = monotonic_ns();
            if is_last {
                self.merger.stop();
                // Processes that go on are recorded until now.
                self.interpret(if has_ended { u64::MAX } else { now_ns })?;
                return Ok(has_ended);
            }
            let found = self.merger.take_all();
            stops = self.interpret_and_read(now_ns.saturating_sub(SETTLED_NS), &mut must_stop)?;
            if flushed.elapsed() >= FLUSH_INTERVAL {
                self.files.flush()?;
                flushed = Instant::now();
            }
            if !found {
                thread::sleep(INTERVAL);
            }
        }
    }

    /// Interprets the records that were read. The end of a recording reads no more: running processes can make records faster
    /// than they are interpreted.
    fn interpret(&mut self, until_ns: u64) -> Result<(), MemoryRecordError> {
        while let Some(record) = self.merger.next_until(until_ns) {
            self.interpreter.take(record);
            self.write()?;
        }
        Ok(())
    }

    /// The same, and reads the rings meanwhile, as long as not too many records wait: small ones fill up while many records are
    /// interpreted. Returns early, and true, when the recording must stop: otherwise the many records of one turn would delay
    /// its end.
    fn interpret_and_read(
        &mut self,
        until_ns: u64,
        must_stop: &mut impl FnMut() -> bool,
    ) -> Result<bool, MemoryRecordError> {
        let mut records = 0u64;
        while let Some(record) = self.merger.next_until(until_ns) {
            records += 1;
            if records.is_multiple_of(RECORDS_BETWEEN_READS) {
                self.merger.take_if_room();
            }
            self.interpreter.take(record);
            self.write()?;
            if records.is_multiple_of(RECORDS_BETWEEN_READS) && must_stop() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write(&mut self) -> Result<(), MemoryRecordError> {
        while let Some((time_ns, space, output)) = self.interpreter.next_output() {
            match output {
                Output::Begin { pid, image, origin, thp } => {
                    let lost_before = self.interpreter.lost;
                    self.files.begin(space, (pid, image), origin, thp, lost_before)?;
                    self.guarded(space, !thp.is_chosen || thp.disable == ThpDisabled::Off);
                }
                Output::Op { tid, op, name, stack } => {
                    self.check.see(&op);
                    if let Op::DisableThp { value, .. } = op {
                        self.guarded(space, value == 0);
                    }
                    self.files.push(space, time_ns, tid, op, (name, stack.as_deref()))?;
                }
                Output::End(end) => {
                    self.guarded(space, end == End::Exec);
                    let footer = self.footer(space, end);
                    match end {
                        End::Exit if self.files.is_program(space) => self.program_end = Some((space, time_ns, footer)),
                        _ => self.files.end(space, time_ns, footer)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells the guard whether the process of an address space is to have huge pages after the recording.
    fn guarded(&mut self, space: SpaceId, is_guarded: bool) {
        let Some((guard, pid)) = self.guard.as_mut().zip(self.files.pid(space)) else { return };
        if is_guarded { guard.begins(pid) } else { guard.ends(pid) }
    }

    /// Completes the recording, whose program left this status, or removes all files if it failed.
    pub fn complete(&mut self, status: Result<Option<ExitStatus>, MemoryRecordError>) -> Result<(), MemoryRecordError> {
        let completed = status.and_then(|status| self.finish(status));
        if completed.is_err() {
            self.files.discard();
        }
        completed
    }

    /// Completes the file of the program, and those of address spaces that still exist.
    fn finish(&mut self, status: Option<ExitStatus>) -> Result<(), MemoryRecordError> {
        if let Some((space, time_ns, footer)) = self.program_end.take() {
            self.files.end(space, time_ns, Footer { status, ..footer })?;
        }
        for space in self.interpreter.in_use() {
            let footer = self.footer(space, End::Running);
            self.files.end(space, monotonic_ns(), footer)?;
        }
        Ok(())
    }

    fn footer(&mut self, space: SpaceId, end: End) -> Footer {
        let unrecorded = self.interpreter.unrecorded.remove(&space).unwrap_or_default();
        let unrecorded_calls = unrecorded.into_iter().map(|(call, calls)| (call, Some(calls))).collect();
        Footer { end, end_ns: None, lost_events: self.lost(), unrecorded_calls, status: None }
    }

    /// Events lost so far: those that the rings reported at their place, and those that only the kernel's counts show.
    pub fn lost(&self) -> u64 {
        self.interpreter.lost.max(self.merger.lost())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use hksim_memory_trace::{Beginning, Calls, Faults, Header, Inherited, TouchKind, Visibility};

    use super::*;
    use crate::call_log::CallLog;
    use crate::machine;
    use crate::merge::BACKLOG_BYTES_MAX;
    use crate::record::{Record, Samples, What};
    use crate::source::Events;

    const VISIBILITY: Visibility = Visibility { faults: Faults::All, calls: Calls::Stops };

    fn header() -> Header {
        Header {
            producer: "test".to_string(),
            run_id: "1-1".to_string(),
            command: Vec::new(),
            input: None,
            directory: None,
            environment: BTreeMap::new(),
            pid: 1,
            image: 0,
            beginning: Beginning::Exec,
            visibility: VISIBILITY,
            machine: machine::machine(false, true),
            inherited: Inherited::default(),
            stack_depth: None,
            history: Vec::new(),
        }
    }

    /// A recording in which so many records of processes that are not recorded wait.
    fn session(records: u64) -> Session {
        let log = Arc::new(CallLog::default());
        for time_ns in 0..records {
            let what = What::Fault { address: 0, kind: TouchKind::Read };
            log.push_earlier(Record { time_ns, pid: 2, tid: 2, what });
        }
        let events = Events { rings: Vec::new(), samples: Samples::Faults, visibility: VISIBILITY, open: Vec::new() };
        let output = std::env::temp_dir().join("hksim-session-test.hkm");
        Session {
            merger: Merger::new(events, log, BACKLOG_BYTES_MAX),
            interpreter: Interpreter::of_running(None),
            files: Files::create(&output, header(), 0).expect("a temporary directory"),
            check: FaultCheck::new(0),
            guard: None,
            program_end: None,
        }
    }

    fn waiting(session: &mut Session) -> u64 {
        std::iter::from_fn(|| session.merger.next_until(u64::MAX)).count() as u64
    }

    /// Processes that fork without end make records during a turn, so a turn that looks for no end has none.
    #[test]
    fn a_turn_with_many_records_ends_when_the_recording_must_stop() {
        let all = 10 * RECORDS_BETWEEN_READS;
        for (looks, interpreted) in [(1, RECORDS_BETWEEN_READS), (4, 4 * RECORDS_BETWEEN_READS), (11, all)] {
            let mut session = session(all);
            session.merger.take_all();
            let mut looked = 0;
            let mut must_stop = || {
                looked += 1;
                looked == looks
            };
            let stops = session.interpret_and_read(u64::MAX, &mut must_stop).expect("no file is written");
            assert_eq!(stops, looked == looks);
            assert_eq!(all - waiting(&mut session), interpreted, "told to stop at look {looks}");
            session.files.discard();
        }
    }

    /// A channel that is read, for example, says so only once.
    #[test]
    fn who_tells_a_recording_to_stop_is_not_asked_again() {
        for looks in [1, 2, 5] {
            let mut session = session(10 * RECORDS_BETWEEN_READS);
            let mut looked = 0;
            let must_stop = || {
                looked += 1;
                assert!(looked <= looks, "look {looked}, after look {looks} said stop");
                looked == looks
            };
            assert!(!session.watch(|| false, must_stop).expect("no file is written"));
            session.files.discard();
        }
    }
}
