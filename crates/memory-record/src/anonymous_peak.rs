//! The anonymous pages of each process over time, and their highest number, from the kernel's own counter: the tracepoint `kmem:rss_stat`
//! reports each change of it. The processes are not stopped for that.
//!
//! The kernel names an address space by its place in the kernel's memory, which a later one may get. So changes are taken in
//! the order of their times, and each exec begins anew.
//!
//! Before Linux 6.2 the tracepoint leaves out small changes.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hksim_linux_probe::perf::{
    self, FLAG_INHERIT, FLAG_USE_CLOCKID, Request, SAMPLE_RAW, SAMPLE_TID, SAMPLE_TIME, TYPE_TRACEPOINT,
};
use hksim_linux_probe::ring::{HEADER_BYTES, RECORD_SAMPLE, Ring};
use hksim_linux_probe::tracefs::Tracefs;
use hksim_linux_probe::{processor, sysfs};
use libc::pid_t;

use crate::clock;
use crate::levels::Levels;
use crate::snapshot::Peak;

/// Bytes by which the truth may differ from what older kernels report: they do so every 128 pages, and each thread keeps up
/// to 64 changes to itself.
const STEP_BYTES: u64 = (128 + 64) << 12;
/// Data bytes of a ring: for some 70 000 changes.
const RING_BYTES: usize = 4 << 20;
const INTERVAL: Duration = Duration::from_millis(1);
/// Offset of the time in a sample: after header, process and thread.
const TIME_AT: usize = HEADER_BYTES + 8;
/// Offset of the tracepoint's data: after the time and the data's length.
const RAW_AT: usize = TIME_AT + 8 + 4;

/// By process: the highest bytes in the last program that it executed, and their levels over time.
pub type AnonymousLevels = BTreeMap<u32, (Peak, Levels)>;

/// The counters of a process and its descendants while they run.
pub struct AnonymousPeaks {
    must_end: Arc<AtomicBool>,
    reader: Option<JoinHandle<Option<AnonymousLevels>>>,
}

impl Drop for AnonymousPeaks {
    fn drop(&mut self) {
        self.must_end.store(true, Ordering::Release);
    }
}

impl AnonymousPeaks {
    /// Begins to watch the process `pid` and all that it starts. `None` if the kernel does not permit it.
    pub fn watch(pid: pid_t) -> Option<Self> {
        let point = Tracefs::open()?.tracepoint(c"events/kmem/rss_stat/format")?;
        let at = Layout { size: point.offset_of("size")?, mm_id: point.offset_of_int("mm_id")? };
        let request = Request {
            kind: TYPE_TRACEPOINT,
            config: point.id,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
            flags: FLAG_INHERIT | FLAG_USE_CLOCKID,
            clockid: libc::CLOCK_MONOTONIC,
            ..Request::default()
        };
        let open = |processor| -> std::io::Result<(Ring, OwnedFd)> {
            let event = perf::open_of(pid, &request, Some(processor))?;
            // Anonymous pages, changed by the process itself.
            perf::set_filter(&event, c"member == 1 && curr == 1")?;
            Ok((Ring::map(&event, RING_BYTES)?, event))
        };
        let (rings, events): (Vec<Ring>, Vec<OwnedFd>) =
            processor::online().into_iter().map(open).collect::<Result<Vec<_>, _>>().ok()?.into_iter().unzip();
        let must_end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&must_end);
        let reader = thread::spawn(move || {
            Reader { at, rings, waiting: Vec::new(), peaks: Peaks::default(), samples: 0 }.run(&told, &events)
        });
        Some(Self { must_end, reader: Some(reader) })
    }

    /// The bytes of each process over time. `None` if changes were lost.
    pub fn finish(mut self) -> Option<AnonymousLevels> {
        self.must_end.store(true, Ordering::Release);
        self.reader.take()?.join().ok().flatten()
    }
}

/// Offsets in the tracepoint's data.
struct Layout {
    size: usize,
    mm_id: usize,
}

/// A change of a process's anonymous memory.
#[derive(Clone, Copy, Debug)]
struct Change {
    time_ns: u64,
    pid: u32,
    /// The kernel's number of the address space. A later address space may get the same.
    mm_id: u32,
    bytes: u64,
}

/// By process.
#[derive(Debug, Default)]
struct Peaks(HashMap<u32, OfProcess>);

/// The last address space of a process, and the bytes in it.
#[derive(Debug, Default)]
struct OfProcess {
    mm_id: u32,
    bytes_peak: u64,
    levels: Levels,
}

impl Peaks {
    /// Takes the next change of a process. An address space is that of the change before until its number differs.
    fn take(&mut self, change: &Change) {
        let own = self.0.entry(change.pid).or_default();
        if own.mm_id != change.mm_id {
            *own = OfProcess { mm_id: change.mm_id, ..OfProcess::default() };
        }
        own.bytes_peak = own.bytes_peak.max(change.bytes);
        own.levels.take(change.time_ns, change.bytes);
    }
}

struct Reader {
    at: Layout,
    rings: Vec<Ring>,
    /// Changes that an earlier one, in another ring, may still precede.
    waiting: Vec<Change>,
    peaks: Peaks,
    samples: u64,
}

impl Reader {
    fn run(mut self, must_end: &AtomicBool, events: &[OwnedFd]) -> Option<AnonymousLevels> {
        loop {
            // Read once more after the end.
            let is_last = must_end.load(Ordering::Acquire);
            // What is older by an interval is in the rings already.
            let complete_ns =
                if is_last { u64::MAX } else { clock::monotonic_ns().saturating_sub(INTERVAL.as_nanos() as u64) };
            for index in 0..self.rings.len() {
                self.drain(index);
            }
            self.take_until(complete_ns);
            if is_last {
                break;
            }
            thread::sleep(INTERVAL);
        }
        let all: u64 = events.iter().map(perf::count).sum();
        let error_bytes = if reports_each_change() { 0 } else { STEP_BYTES };
        let levels = self
            .peaks
            .0
            .into_iter()
            .map(|(pid, OfProcess { bytes_peak: bytes, levels, .. })| (pid, (Peak { bytes, error_bytes }, levels)));
        (self.samples == all).then(|| levels.collect())
    }

    fn drain(&mut self, index: usize) {
        let ring = &self.rings[index];
        let (head, mut tail) = (ring.head(), ring.tail());
        let mut bytes = Vec::new();
        while tail < head {
            let header = ring.header(tail);
            bytes.resize(header.bytes as usize, 0);
            ring.copy(tail, &mut bytes);
            tail += header.bytes;
            if header.kind == RECORD_SAMPLE {
                self.samples += 1;
                self.waiting.extend(sample(&bytes, &self.at));
            }
        }
        ring.release(tail);
    }

    /// Takes the changes before a time, in order.
    fn take_until(&mut self, end_ns: u64) {
        self.waiting.sort_by_key(|change| change.time_ns);
        let count = self.waiting.partition_point(|change| change.time_ns < end_ns);
        self.waiting.drain(..count).for_each(|change| self.peaks.take(&change));
    }
}

/// Whether this kernel reports each change: since Linux 6.2.
fn reports_each_change() -> bool {
    let release = sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers =
        release.split(|character: char| !character.is_ascii_digit()).map(|word| word.parse().unwrap_or(0u32));
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

fn sample(bytes: &[u8], at: &Layout) -> Option<Change> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(Change {
        time_ns: long(TIME_AT)?,
        pid: word(HEADER_BYTES)?,
        mm_id: word(RAW_AT + at.mm_id)?,
        bytes: long(RAW_AT + at.size)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_space_in_the_place_of_an_earlier_one_begins_anew() {
        let mut peaks = Peaks::default();
        for (time_ns, mm_id, bytes) in [(1, 7, 900), (2, 8, 10), (3, 8, 40), (4, 7, 300), (5, 7, 200)] {
            peaks.take(&Change { time_ns, pid: 1, mm_id, bytes });
        }
        let OfProcess { mm_id, bytes_peak, levels } = &peaks.0[&1];
        assert_eq!((*mm_id, *bytes_peak, levels.at(3), levels.at(5)), (7, 300, None, Some(200)));
    }
}
