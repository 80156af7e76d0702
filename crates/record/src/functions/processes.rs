//! From the events of probes to traces: one for the process, and one for each child that it forks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_recording_files as recording_files;
use hksim_trace::event::Op;
use hksim_trace::functions::Function;
use hksim_trace::header::{Clock, Footer, Header, Origin, Quality, TouchSource};
use hksim_trace::hkt::ResolvingWriter;
use hksim_trace::memory_policy::MemoryPolicy;
use hksim_trace::resolve::{RawEvent, RawOp, WaitLimits};
use tempfile::TempPath;

use super::forks::Forks;
use super::named::NamedFunction;
use super::order::Order;
use super::pairs::{Entry, Frames, Return, ThreadCalls};
use super::samples::{Event, What};
use super::subject::{Subject, threads_of, trampoline_of};
use crate::error::RecordError;
use crate::report::RecordedTrace;
use crate::session::secret;

/// Random characters in the name of an incomplete trace.
const RANDOM_DIGITS: usize = 16;

/// First number above all ids of threads (`PID_MAX_LIMIT`).
const TIDS_END: u32 = 1 << 22;

/// Calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls seen, also inside other calls.
    pub calls: u64,
    /// Calls left out, because a function of this role cannot have their arguments.
    pub impossible: u64,
}

/// The processes that are recorded.
pub struct Processes {
    functions: Vec<NamedFunction>,
    /// Whether the returns of each function are seen.
    with_return: Vec<bool>,
    output: PathBuf,
    /// `CLOCK_MONOTONIC` in nanoseconds; what ended earlier is left out.
    start_ns: u64,
    running: HashMap<u32, Process>,
    forks: Forks,
    /// Images so far by process id, since ids are used again.
    images: HashMap<u32, u32>,
    traces: Vec<RecordedTrace>,
    counts: Vec<Counts>,
    /// Calls of other processes that execute the same files.
    foreign_calls: u64,
    /// Events so far.
    events: u64,
}

/// A recorded process.
struct Process {
    pid: u32,
    parent_pid: u32,
    is_forked: bool,
    command: Vec<String>,
    image: Option<u32>,
    /// `None` until its first event.
    trace: Option<(TempPath, ResolvingWriter)>,
    threads: BTreeMap<u32, ThreadCalls>,
    /// Where the kernel lets probed functions return to, once it is known.
    trampoline: Option<u64>,
    /// Threads that have not ended.
    live: BTreeSet<u32>,
    /// Threads with calls that have ended, by their ids, which the kernel uses again.
    ended: HashMap<u32, u32>,
    quality: Quality,
    order: Order,
    last: (u64, u32),
    /// Settings for its memory that were in force when the recording began; forked children inherit them.
    policies: Vec<MemoryPolicy>,
}

impl Processes {
    /// Begins with one process; `start_ns` is the time of the trace's beginning.
    ///
    /// # Errors
    /// Its trace cannot be written.
    pub fn begin(
        subject: &Subject,
        functions: &[NamedFunction],
        output: &Path,
        start_ns: u64,
    ) -> Result<Self, RecordError> {
        // The events of threads are enabled, so all that begin or end from now on are seen.
        let threads = threads_of(subject.pid);
        let mut process = Process::new(subject.pid, subject.parent_pid, subject.command.clone(), threads);
        process.policies.clone_from(&subject.policies);
        Ok(Self {
            functions: functions.to_vec(),
            with_return: with_return(functions),
            output: output.to_path_buf(),
            start_ns,
            running: HashMap::from([(subject.pid, process)]),
            forks: Forks::default(),
            images: HashMap::from([(subject.pid, 1)]),
            traces: Vec::new(),
            counts: vec![Counts::default(); functions.len()],
            foreign_calls: 0,
            events: 0,
        })
    }

    /// Processes so far.
    pub fn processes(&self) -> usize {
        self.traces.len() + self.running.len()
    }

    /// Whether all have ended, or executed another program.
    pub fn are_over(&self) -> bool {
        self.running.is_empty()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Calls of each function.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// Calls of other processes that execute the same files.
    pub fn foreign_calls(&self) -> u64 {
        self.foreign_calls
    }

    /// Takes the next event in order of time.
    ///
    /// # Errors
    /// A trace cannot be written.
    pub fn take(&mut self, event: &Event) -> Result<(), RecordError> {
        match &event.what {
            What::Entry(entry, stack) => self.enter(event, entry, stack),
            What::Return(back, stack) => self.leave(event, back, stack),
            What::Begin { parent_pid, .. } if *parent_pid == event.pid => {
                self.running.entry(event.pid).and_modify(|process| _ = process.live.insert(event.tid));
                Ok(())
            }
            What::Begin { parent_pid, parent_tid } => self.fork(event, *parent_pid, *parent_tid),
            What::End => self.end_thread(event),
            What::Exec => self.end_image(event, true),
            What::Lost => self.doubt(event.time_ns),
        }
    }

    fn enter(&mut self, event: &Event, entry: &Entry, stack: &[u8]) -> Result<(), RecordError> {
        let (Some(process), Some(function)) = (self.running.get_mut(&event.pid), self.functions.get(entry.function))
        else {
            self.foreign_calls += 1;
            return Ok(());
        };
        let thread = process.threads.entry(event.tid).or_default();
        let has_return = self.with_return[entry.function];
        if thread.is_busy() && process.trampoline.is_none() {
            process.trampoline = trampoline_of(event.pid);
        }
        let frames = Frames { bytes: stack, trampoline: process.trampoline };
        let resized = (function.function == Function::Realloc || function.function == Function::Reallocarray)
            .then(|| entry.arguments[function.skipped]);
        let is_outer = if has_return { thread.enter(*entry, &frames) } else { thread.enter_only(entry, &frames) };
        let missed = thread.take_missed();
        if missed > 0 {
            process.quality.events_lost += missed;
            if event.time_ns >= self.start_ns {
                process.push(
                    &self.output,
                    RawEvent::new(event.time_ns - self.start_ns, process.number(event.tid), RawOp::Gap),
                )?;
            }
        }
        if is_outer {
            process.begin_call(process.number(event.tid), resized)?;
        }
        if event.time_ns < self.start_ns {
            return Ok(());
        }
        self.counts[entry.function].calls += 1;
        // What frees is timed by its entry: from then on another thread may get the block.
        if !is_outer || has_return && !function.only_frees() {
            return Ok(());
        }
        self.call(event, entry, 0)
    }

    fn leave(&mut self, event: &Event, back: &Return, stack: &[u8]) -> Result<(), RecordError> {
        let Some(process) = self.running.get_mut(&event.pid) else { return Ok(()) };
        let thread = process.threads.entry(event.tid).or_default();
        let Some(entry) = thread.leave(back) else { return Ok(()) };
        let Some(function) = self.functions.get(entry.function) else { return Ok(()) };
        if event.time_ns < self.start_ns || function.only_frees() {
            return Ok(());
        }
        if !function.stores_result() {
            return self.call(event, &entry, back.result);
        }
        let is_error = back.result as u32 != 0;
        match stored(entry.arguments[function.skipped], back.stack, stack) {
            _ if is_error => self.call(event, &entry, 0),
            Some(address) => self.call(event, &entry, address),
            None => {
                process.quality.events_lost += 1;
                Ok(())
            }
        }
    }

    /// Appends an outermost call.
    fn call(&mut self, event: &Event, entry: &Entry, result: u64) -> Result<(), RecordError> {
        let function = &self.functions[entry.function];
        let first = function.skipped + usize::from(function.stores_result());
        let mut arguments = [0; 3];
        for (argument, given) in arguments.iter_mut().zip(&entry.arguments[first..]) {
            *argument = *given;
        }
        let op = function.function.op(arguments, result).ok().filter(is_possible);
        let Some(process) = self.running.get_mut(&event.pid) else { return Ok(()) };
        let Some(op) = op else {
            self.counts[entry.function].impossible += 1;
            process.quality.misnamed_calls += 1;
            return Ok(());
        };
        self.events += 1;
        let thread = process.number(event.tid);
        process.push(&self.output, RawEvent::new(event.time_ns - self.start_ns, thread, op))
    }

    fn fork(&mut self, event: &Event, parent_pid: u32, parent_tid: u32) -> Result<(), RecordError> {
        let Some(parent) = self.running.get_mut(&parent_pid) else { return Ok(()) };
        let time_ns = event.time_ns.saturating_sub(self.start_ns);
        if event.time_ns >= self.start_ns {
            let (thread, op) = (parent.number(parent_tid), RawOp::Fork { child_pid: event.pid });
            parent.push(&self.output, RawEvent::new(time_ns, thread, op))?;
        }
        // By now the child may have executed another program, whose command line is not that of this trace.
        let mut child = Process::new(event.pid, parent_pid, parent.command.clone(), BTreeSet::from([event.tid]));
        let images = self.images.entry(event.pid).or_default();
        child.image = (*images > 0).then_some(*images);
        child.is_forked = true;
        child.policies.clone_from(&parent.policies);
        *images += 1;
        self.forks.begin(parent_pid, event.pid);
        self.running.insert(event.pid, child);
        Ok(())
    }

    fn end_thread(&mut self, event: &Event) -> Result<(), RecordError> {
        let Some(process) = self.running.get_mut(&event.pid) else { return Ok(()) };
        process.live.remove(&event.tid);
        if let Some(mut calls) = process.threads.remove(&event.tid) {
            calls.forget();
            process.add(&calls);
            if event.time_ns >= self.start_ns {
                let (time_ns, thread) = (event.time_ns - self.start_ns, process.number(event.tid));
                process.push(&self.output, RawEvent::new(time_ns, thread, RawOp::ThreadExit))?;
                *process.ended.entry(event.tid).or_default() += 1;
            }
        }
        if process.live.is_empty() { self.end_image(event, false) } else { Ok(()) }
    }

    /// Ends a process's trace: it has ended, or executed another program.
    fn end_image(&mut self, event: &Event, is_exec: bool) -> Result<(), RecordError> {
        let Some(mut process) = self.running.remove(&event.pid) else { return Ok(()) };
        let time_ns = event.time_ns.saturating_sub(self.start_ns);
        for (ancestor, child_pid) in self.forks.end(event.pid) {
            if let Some(ancestor) = self.running.get_mut(&ancestor) {
                let op = RawOp::ForkEnd { child_pid, outlives: false };
                ancestor.push(&self.output, RawEvent::new(time_ns, ancestor.last.1, op))?;
            }
        }
        if is_exec && process.trace.is_some() {
            process.push(&self.output, RawEvent::new(time_ns, process.last.1, RawOp::Exec))?;
        }
        self.finish(process, false)
    }

    /// Records were lost: any live block may have been freed, and any call in progress may have returned.
    fn doubt(&mut self, time_ns: u64) -> Result<(), RecordError> {
        for process in self.running.values_mut() {
            process.threads.values_mut().for_each(ThreadCalls::forget);
            if process.trace.is_some() {
                let time_ns = time_ns.saturating_sub(self.start_ns);
                process.push(&self.output, RawEvent::new(time_ns, process.last.1, RawOp::Gap))?;
            }
        }
        Ok(())
    }

    /// Ends all traces; `lost` records did not fit. The process's own trace is first.
    ///
    /// # Errors
    /// A trace cannot be written.
    pub fn end(mut self, root: u32, lost: u64) -> Result<Vec<RecordedTrace>, RecordError> {
        let mut pids: Vec<u32> = self.running.keys().copied().collect();
        pids.sort_unstable();
        for pid in &pids {
            for child_pid in self.forks.open_of(*pid) {
                if let Some(process) = self.running.get_mut(pid) {
                    let (time_ns, thread) = process.last;
                    let op = RawOp::ForkEnd { child_pid, outlives: true };
                    process.push(&self.output, RawEvent::new(time_ns, thread, op))?;
                }
            }
        }
        for pid in pids {
            let Some(mut process) = self.running.remove(&pid) else { continue };
            process.quality.events_lost += if pid == root { lost } else { 0 };
            self.finish(process, true)?;
        }
        self.traces.sort_by_key(|trace| trace.path != self.output);
        Ok(self.traces)
    }

    /// Writes the trace of a process, if it has events.
    fn finish(&mut self, mut process: Process, still_running: bool) -> Result<(), RecordError> {
        for (_, calls) in std::mem::take(&mut process.threads) {
            // A call in progress at the end of the recording is no call of it.
            process.add(&calls);
        }
        let mut ready = Vec::new();
        process.order.end(&mut ready);
        process.write(&ready)?;
        let path = process.path(&self.output)?;
        let Some((unfinished, writer)) = process.trace.take() else { return Ok(()) };
        let mut quality = Quality::default();
        let summary = writer.finish(|repaired| {
            quality = repaired + process.quality;
            Footer { quality, ..Footer::default() }
        })?;
        unfinished.persist(&path).map_err(|why| RecordError::io(&path, "create the trace here")(why.error))?;
        self.traces.push(RecordedTrace {
            // For display only: the trace is written.
            trace_bytes: fs::metadata(&path).map_or(0, |data| data.len()),
            path,
            pid: process.pid,
            parent_pid: process.parent_pid,
            forked: process.is_forked,
            still_running,
            command: process.command,
            allocator: None,
            events: summary.events,
            threads: summary.threads,
            objects_peak: summary.objects_peak,
            duration_ns: summary.duration_ns,
            quality,
            touches: None,
        });
        Ok(())
    }
}

impl Process {
    fn new(pid: u32, parent_pid: u32, command: Vec<String>, live: BTreeSet<u32>) -> Self {
        Self {
            pid,
            parent_pid,
            is_forked: false,
            command,
            image: None,
            trace: None,
            threads: BTreeMap::new(),
            trampoline: None,
            live,
            ended: HashMap::new(),
            quality: Quality::default(),
            order: Order::default(),
            last: (0, pid),
            policies: Vec::new(),
        }
    }

    /// The number in the trace of the thread that has this id now.
    fn number(&self, tid: u32) -> u32 {
        tid.wrapping_add(self.ended.get(&tid).map_or(0, |&ended| ended.wrapping_mul(TIDS_END)))
    }

    fn add(&mut self, calls: &ThreadCalls) {
        self.quality.nested_calls += calls.nested;
        self.quality.unfinished_calls += calls.unfinished;
    }

    fn push(&mut self, output: &Path, raw: RawEvent) -> Result<(), RecordError> {
        if self.trace.is_none() {
            let (path, mut writer) = self.create(output)?;
            for &policy in &self.policies {
                writer.push(&RawEvent::new(0, self.pid, RawOp::MemoryPolicy { policy, inherited: true }))?;
            }
            self.trace = Some((path, writer));
        }
        self.last = (raw.time_ns, raw.thread);
        let mut ready = Vec::new();
        self.order.take(raw, &mut ready);
        self.write(&ready)
    }

    /// A thread begins an outermost call, of a function that resizes the block at `resized` or of another one.
    fn begin_call(&mut self, thread: u32, resized: Option<u64>) -> Result<(), RecordError> {
        let mut ready = Vec::new();
        self.order.begin(thread, resized, &mut ready);
        self.write(&ready)
    }

    fn write(&mut self, ready: &[RawEvent]) -> Result<(), RecordError> {
        let Some((_, writer)) = &mut self.trace else { return Ok(()) };
        Ok(ready.iter().try_for_each(|raw| writer.push(raw))?)
    }

    /// Begins the trace, under a name that nobody can guess.
    fn create(&self, output: &Path) -> Result<(TempPath, ResolvingWriter), RecordError> {
        let origin =
            Origin::Recorded { command: self.command.clone(), pid: self.pid, program_version: None, attached: true };
        let header = Header::new(origin, TouchSource::Assumed, Clock::Measured);
        let random = secret().map_err(RecordError::io(output, "choose a temporary name next to"))?;
        let mut name = OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(format!(".{}", &random[..RANDOM_DIGITS]));
        let path = output.with_file_name(name);
        let writer = ResolvingWriter::create(&path, &header, WaitLimits::UNLOCKED_STAMPS)?;
        let path = TempPath::try_from_path(&path).map_err(RecordError::io(output, "create the trace next to"))?;
        Ok((path, writer))
    }

    /// The path of its trace. Creates the folder of children's traces.
    fn path(&self, output: &Path) -> Result<PathBuf, RecordError> {
        if !self.is_forked || self.trace.is_none() {
            return Ok(output.to_path_buf());
        }
        // SAFETY: has no precondition.
        let user = unsafe { libc::geteuid() };
        let folder = recording_files::folder(output);
        recording_files::create_folder(output, user)
            .map_err(RecordError::io(&folder, "create the directory of the other processes' traces"))?;
        Ok(recording_files::beside(output, &self.command, self.pid, self.image))
    }
}

/// Whether the returns of each function are probed. That of a function that frees shows nothing but which other calls are
/// inside it, which only another function that frees can be.
pub fn with_return(functions: &[NamedFunction]) -> Vec<bool> {
    let frees = functions.iter().filter(|function| function.only_frees()).count();
    let is_seen = |named: &NamedFunction| match named.function {
        Function::Free => frees > 1,
        Function::UsableSize => false,
        _ => true,
    };
    functions.iter().map(is_seen).collect()
}

/// The word that a function stored at `address`, if the stack from `start` on contains it.
fn stored(address: u64, start: u64, stack: &[u8]) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(start)?).ok()?;
    Some(u64::from_ne_bytes(stack.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Whether a call that succeeded can have this size. That of a block from one address to the end of the addresses is the
/// largest: a pointer that was taken for a size is mostly larger.
fn is_possible(op: &RawOp) -> bool {
    let end = Op::BLOCK_BYTES_END;
    let is_within = |address: u64, size: u64| size < if address < end { end - address } else { end };
    match *op {
        RawOp::Alloc { address, size, .. } => address == 0 || is_within(address, size),
        RawOp::Realloc { new, size, .. } => new == 0 || is_within(new, size),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_goes_beyond_the_addresses() {
        let alloc = |address, size| Function::Realloc.op([1, size, 0], address).is_ok_and(|op| is_possible(&op));
        let (heap, mapped) = (0x5555_5555_8010, 0x7fff_f7a0_0010);
        assert!(alloc(heap, 1 << 40) && alloc(mapped, 1 << 20) && alloc(1 << 50, 1 << 40) && alloc(0, u64::MAX));
        assert!(!alloc(heap, heap) && !alloc(mapped, heap) && !alloc(mapped, mapped) && !alloc(heap, 1 << 47));
    }

    #[test]
    fn stored_addresses_are_found_in_the_callers_frame() {
        let stack: Vec<u8> = [1_u64, 2, 3].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(stored(0x7008, 0x7000, &stack), Some(2));
        assert_eq!(stored(0x7010, 0x7000, &stack), Some(3));
        for address in [0x6fff, 0x7011, 0x7018, u64::MAX, 0] {
            assert_eq!(stored(address, 0x7000, &stack), None, "{address:#x}");
        }
    }
}
