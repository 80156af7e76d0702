//! The highest number of anonymous pages of each process, from the kernel's own counter: the tracepoint `kmem:rss_stat`
//! reports each change of it. The processes are not stopped for that.
//!
//! Before Linux 6.2 the tracepoint leaves out small changes.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hksim_linux_probe::perf::{self, FLAG_INHERIT, Request, SAMPLE_RAW, SAMPLE_TID, TYPE_TRACEPOINT};
use hksim_linux_probe::ring::{HEADER_BYTES, RECORD_SAMPLE, Ring};
use hksim_linux_probe::tracefs::Tracefs;
use hksim_linux_probe::{processor, sysfs};
use libc::pid_t;

use crate::snapshot::Peak;

/// Bytes by which the truth may differ from what older kernels report: they do so every 128 pages, and each thread keeps up
/// to 64 changes to itself.
const STEP_BYTES: u64 = (128 + 64) << 12;
/// Data bytes of a ring: for some 70 000 changes.
const RING_BYTES: usize = 4 << 20;
const INTERVAL: Duration = Duration::from_millis(1);
/// Offset of the tracepoint's data in a sample: after header, process and thread, and the data's length.
const RAW_AT: usize = HEADER_BYTES + 8 + 4;

/// The counters of a process and its descendants while they run.
pub struct AnonymousPeaks {
    must_end: Arc<AtomicBool>,
    reader: Option<JoinHandle<Option<BTreeMap<u32, Peak>>>>,
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
            sample_type: SAMPLE_TID | SAMPLE_RAW,
            flags: FLAG_INHERIT,
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
        let reader =
            thread::spawn(move || Reader { at, rings, spaces: HashMap::new(), samples: 0 }.run(&told, &events));
        Some(Self { must_end, reader: Some(reader) })
    }

    /// The highest bytes of each process, in the last program that it executed. `None` if changes were lost.
    pub fn finish(mut self) -> Option<BTreeMap<u32, Peak>> {
        self.must_end.store(true, Ordering::Release);
        self.reader.take()?.join().ok().flatten()
    }
}

/// Offsets in the tracepoint's data.
struct Layout {
    size: usize,
    mm_id: usize,
}

struct Reader {
    at: Layout,
    rings: Vec<Ring>,
    /// By process: its last address space, and the highest bytes in each one.
    spaces: HashMap<u32, (u32, HashMap<u32, u64>)>,
    samples: u64,
}

impl Reader {
    fn run(mut self, must_end: &AtomicBool, events: &[OwnedFd]) -> Option<BTreeMap<u32, Peak>> {
        loop {
            // Read once more after the end.
            let is_last = must_end.load(Ordering::Acquire);
            for index in 0..self.rings.len() {
                self.drain(index);
            }
            if is_last {
                break;
            }
            thread::sleep(INTERVAL);
        }
        let all: u64 = events.iter().map(perf::count).sum();
        let error_bytes = if reports_each_change() { 0 } else { STEP_BYTES };
        let peaks = self.spaces.iter().filter_map(|(&pid, (last, peaks))| {
            let bytes = *peaks.get(last)?;
            Some((pid, Peak { bytes, error_bytes }))
        });
        (self.samples == all).then(|| peaks.collect())
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
                let known = sample(&bytes, &self.at);
                let Some((pid, mm_id, size)) = known else { continue };
                let (last, peaks) = self.spaces.entry(pid).or_default();
                *last = mm_id;
                let peak = peaks.entry(mm_id).or_default();
                *peak = size.max(*peak);
            }
        }
        ring.release(tail);
    }
}

/// Whether this kernel reports each change: since Linux 6.2.
fn reports_each_change() -> bool {
    let release = sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers =
        release.split(|character: char| !character.is_ascii_digit()).map(|word| word.parse().unwrap_or(0u32));
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

/// The process, its address space, and the bytes.
fn sample(bytes: &[u8], at: &Layout) -> Option<(u32, u32, u64)> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((word(HEADER_BYTES)?, word(RAW_AT + at.mm_id)?, long(RAW_AT + at.size)?))
}
