//! The kernel's events about a process and its descendants: page faults, memory calls, processes and mappings. Each
//! processor has one ring for all of them.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use hksim_linux_probe::perf::{
    self, FLAG_COMM, FLAG_COMM_EXEC, FLAG_DISABLED, FLAG_INHERIT, FLAG_MMAP, FLAG_MMAP_DATA, FLAG_MMAP2,
    FLAG_SAMPLE_ID_ALL, FLAG_TASK, FLAG_USE_CLOCKID, FLAG_WATERMARK, Request, SAMPLE_RAW, SAMPLE_REGISTERS,
    SAMPLE_STACK, SAMPLE_TID, SAMPLE_TIME, SOFTWARE_DUMMY, TYPE_SOFTWARE, TYPE_TRACEPOINT,
};
use hksim_linux_probe::processor;
use hksim_linux_probe::ring::{self, Ring};
use hksim_linux_probe::tracefs::{Tracefs, Tracepoint};
use libc::{c_int, pid_t};

use crate::calls;
use crate::error::MemoryRecordError;
use crate::record::Layout;
use crate::stack_dump;

/// Data bytes of a ring: the largest power of two between these limits that the kernel grants.
const RING_BYTES_MAX: usize = 32 << 20;
const RING_BYTES_MIN: usize = 256 << 10;
/// Events also of the threads and processes that are started later.
const FLAGS: u64 = FLAG_INHERIT | FLAG_WATERMARK | FLAG_USE_CLOCKID | FLAG_SAMPLE_ID_ALL;
/// What every record carries.
const SAMPLE: u64 = SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW;

/// The tracepoints that are read.
struct Tracepoints {
    faults: [Tracepoint; 2],
    calls: [Tracepoint; 2],
    /// The entry of madvise: its filter sees the advice. `None` on kernels without tracepoints of single calls.
    madvise: Option<Tracepoint>,
    new_task: Tracepoint,
}

/// The open events; they end when this value is dropped.
pub struct KernelEvents {
    /// One ring for each processor.
    pub rings: Vec<Ring>,
    /// The layout of their records.
    pub layout: Layout,
    /// The open events.
    pub events: Vec<OwnedFd>,
    points: Tracepoints,
    with_stacks: bool,
    /// Each processor with the index of the event that has its ring.
    owners: Vec<(c_int, usize)>,
}

impl KernelEvents {
    /// Opens the events of the stopped process `pid` and of all processes that it starts: `with_stacks`, calls that make
    /// mappings with a dump of registers and stack.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn open(pid: pid_t, with_stacks: bool) -> Result<Self, MemoryRecordError> {
        Self::open_with(pid, with_stacks, FLAGS)
    }

    /// The rings, and no events yet: those of running threads are added. What takes time is done here, since the threads
    /// are stopped while their events are opened.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn without_threads(with_stacks: bool) -> Result<Self, MemoryRecordError> {
        let this_thread = 0;
        Self::open_with(this_thread, with_stacks, FLAGS & !FLAG_INHERIT | FLAG_DISABLED)
    }

    fn open_with(pid: pid_t, with_stacks: bool, flags: u64) -> Result<Self, MemoryRecordError> {
        let not_permitted = |why: String| MemoryRecordError::NotPermitted { why };
        let tracefs = Tracefs::open().ok_or_else(|| not_permitted("the kernel's tracepoints cannot be read".into()))?;
        let points = Tracepoints::find(&tracefs)
            .ok_or_else(|| not_permitted("this kernel lacks the tracepoints of page faults or system calls".into()))?;
        let layout = points
            .layout()
            .ok_or_else(|| not_permitted("the tracepoints of this kernel have an unknown layout".into()))?;
        let (mut rings, mut events, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for processor in processor::online() {
            let (ring, mut opened) = points
                .open_with_ring(pid, processor, with_stacks, flags)
                .map_err(|why| not_permitted(format!("perf events cannot be opened ({why})")))?;
            rings.push(ring);
            owners.push((processor, events.len()));
            events.append(&mut opened);
        }
        Ok(Self { rings, layout, events, points, with_stacks, owners })
    }

    /// Opens the events of another thread, and of all threads and processes that it starts. They use the same rings.
    ///
    /// # Errors
    /// The kernel does not permit it, or this process has too many open files.
    pub fn add(&mut self, thread: pid_t) -> io::Result<()> {
        for (processor, owner) in self.owners.clone() {
            let first = open_first(thread, processor, FLAGS)?;
            perf::set_output(&first, &self.events[owner])?;
            let rest = self.points.open_rest((thread, processor), self.with_stacks, FLAGS, &self.events[owner])?;
            self.events.push(first);
            self.events.extend(rest);
        }
        Ok(())
    }
}

impl Tracepoints {
    fn find(tracefs: &Tracefs) -> Option<Self> {
        let [user, kernel] =
            [c"events/exceptions/page_fault_user/format", c"events/exceptions/page_fault_kernel/format"]
                .map(|path| tracefs.tracepoint(path));
        let [enter, exit] = [c"events/raw_syscalls/sys_enter/format", c"events/raw_syscalls/sys_exit/format"]
            .map(|path| tracefs.tracepoint(path));
        let new_task = tracefs.tracepoint(c"events/task/task_newtask/format")?;
        let madvise = tracefs.tracepoint(c"events/syscalls/sys_enter_madvise/format");
        let madvise = madvise.filter(|madvise| madvise.offset_of("start").is_some());
        Some(Self { faults: [user?, kernel?], calls: [enter?, exit?], madvise, new_task })
    }

    fn layout(&self) -> Option<Layout> {
        let [user, kernel] = &self.faults;
        let [enter, exit] = &self.calls;
        let same = |field| user.offset_of(field).filter(|&at| kernel.offset_of(field) == Some(at));
        Some(Layout {
            fault_ids: [user.id as u16, kernel.id as u16],
            fault_address_at: same("address")?,
            fault_error_at: same("error_code")?,
            enter_id: enter.id as u16,
            enter_number_at: enter.offset_of("id")?,
            enter_arguments_at: enter.offset_of("args")?,
            madvise: self.madvise.as_ref().and_then(|point| Some((point.id as u16, point.offset_of("start")?))),
            exit_id: exit.id as u16,
            exit_number_at: exit.offset_of("id")?,
            exit_result_at: exit.offset_of("ret")?,
            new_task_id: self.new_task.id as u16,
            new_task_flags_at: self.new_task.offset_of("clone_flags")?,
        })
    }

    /// All events on one processor, in one new ring.
    fn open_with_ring(
        &self,
        pid: pid_t,
        processor: c_int,
        with_stacks: bool,
        flags: u64,
    ) -> io::Result<(Ring, Vec<OwnedFd>)> {
        let first = open_first(pid, processor, flags)?;
        let ring = map_largest(&first)?;
        let rest = self.open_rest((pid, processor), with_stacks, flags, &first)?;
        Ok((ring, [first].into_iter().chain(rest).collect()))
    }

    /// The tracepoints' events, in the ring of `output`.
    fn open_rest(
        &self,
        (pid, processor): (pid_t, c_int),
        with_stacks: bool,
        flags: u64,
        output: &OwnedFd,
    ) -> io::Result<Vec<OwnedFd>> {
        let with_dump = |request: Request| Request {
            sample_type: SAMPLE | SAMPLE_REGISTERS | SAMPLE_STACK,
            registers: stack_dump::sampled_mask(),
            stack_bytes: stack_dump::STACK_BYTES,
            ..request
        };
        let traced = |point: &Tracepoint| request(TYPE_TRACEPOINT, point.id, flags);
        let [enter, exit] = &self.calls;
        let madvise = self.madvise.as_ref().filter(|_| with_stacks);
        let is_dumped = |&number: &i64| with_stacks && calls::has_site(number);
        let is_apart = |number: &i64| is_dumped(number) || madvise.is_some() && *number == libc::SYS_madvise;
        let mut points: Vec<(Request, Option<CString>)> = vec![
            (traced(&self.faults[0]), None),
            (traced(&self.faults[1]), None),
            (traced(enter), Some(filter(calls::numbers().filter(|number| !is_apart(number))))),
            (traced(exit), Some(filter(calls::numbers()))),
            (traced(&self.new_task), None),
        ];
        if with_stacks {
            points.push((with_dump(traced(enter)), Some(filter(calls::numbers().filter(is_dumped)))));
        }
        if let Some(madvise) = madvise {
            points.push((with_dump(traced(madvise)), Some(advice_filter("==", " || "))));
            points.push((traced(madvise), Some(advice_filter("!=", " && "))));
        }
        let mut events = Vec::new();
        for (request, filter) in points {
            let event = perf::open_with_losses(pid, &request, Some(processor))?;
            if let Some(filter) = filter {
                perf::set_filter(&event, &filter)?;
            }
            perf::set_output(&event, output)?;
            events.push(event);
        }
        Ok(events)
    }
}

/// The event that reports processes and mappings.
fn open_first(pid: pid_t, processor: c_int, flags: u64) -> io::Result<OwnedFd> {
    let process_flags = FLAG_MMAP | FLAG_MMAP_DATA | FLAG_MMAP2 | FLAG_COMM | FLAG_COMM_EXEC | FLAG_TASK;
    let request = request(TYPE_SOFTWARE, SOFTWARE_DUMMY, flags | process_flags);
    perf::open_with_losses(pid, &request, Some(processor))
}

/// An event whose every occurrence has a record.
fn request(kind: u32, config: u64, flags: u64) -> Request {
    Request {
        kind,
        config,
        sample_period: 1,
        sample_type: SAMPLE,
        flags,
        wakeup_bytes: (RING_BYTES_MAX / 8) as u32,
        clockid: libc::CLOCK_MONOTONIC,
        ..Request::default()
    }
}

fn map_largest(event: &OwnedFd) -> io::Result<Ring> {
    ring::largest(RING_BYTES_MIN..=RING_BYTES_MAX, |data_bytes| Ring::map(event, data_bytes))
}

/// The filter for calls of madvise whose call site is of interest, or for the others.
fn advice_filter(operator: &str, joint: &str) -> CString {
    let words = calls::ADVICE_WITH_SITE.map(|advice| format!("behavior {operator} {advice}"));
    CString::new(words.join(joint)).unwrap_or_default()
}

/// The filter for system calls.
fn filter(numbers: impl Iterator<Item = i64>) -> CString {
    let words: Vec<String> = numbers.map(|number| format!("id == {number}")).collect();
    CString::new(words.join(" || ")).unwrap_or_default()
}
