//! Merges the rings of all processors, and the tracer's log, by time.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hksim_linux_probe::perf;
use hksim_linux_probe::ring::{RECORD_SAMPLE, Ring};

use crate::call_log::CallLog;
use crate::record::{Record, Samples};
use crate::source::Events;

/// Bytes of records that may wait, with what the rings hold and what is reported within a tenth of a second. Processes can
/// make records faster than they are interpreted.
pub const BACKLOG_BYTES_MAX: usize = 1 << 30;

/// A record that waits, and the bytes that it takes.
#[derive(Clone, Debug)]
struct Waiting {
    record: Record,
    bytes: usize,
}

impl Waiting {
    /// A record that had so many bytes in its ring: what it refers to takes no more.
    fn new(record: Record, ring_bytes: usize) -> Self {
        Self { record, bytes: size_of::<Self>() + ring_bytes }
    }
}

/// The rings, and the records taken from them that are still too young to be sorted.
pub struct Merger {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    samples: Samples,
    samples_taken: u64,
    log: Arc<CallLog>,
    /// For each ring; the last one is for the log.
    waiting: Vec<VecDeque<Waiting>>,
    /// Bytes of all waiting records, and how many of them may wait.
    waiting_bytes: usize,
    waiting_bytes_max: usize,
    bytes: Vec<u8>,
}

impl Merger {
    /// A merger of the rings of these events and of a log, which is empty if no program is traced. So many bytes of records
    /// may wait.
    pub fn new(events: Events, log: Arc<CallLog>, waiting_bytes_max: usize) -> Self {
        let Events { rings, samples, open, .. } = events;
        let waiting = vec![VecDeque::new(); rings.len() + 1];
        let bytes = Vec::new();
        let (samples_taken, waiting_bytes) = (0, 0);
        Self { rings, events: open, samples, samples_taken, log, waiting, waiting_bytes, waiting_bytes_max, bytes }
    }

    /// Records that did not fit into the rings so far, as the kernel counts them.
    pub fn lost(&self) -> u64 {
        perf::lost(&self.events, self.samples_taken)
    }

    /// Ends the events, and takes the records that are there.
    pub fn stop(&mut self) {
        self.events.iter().for_each(perf::disable);
        self.take_all();
    }

    /// Takes all records from the rings, unless too many wait already. The rings then fill up, and the kernel counts what does
    /// not fit and reports the place.
    pub fn take_if_room(&mut self) {
        if self.waiting_bytes < self.waiting_bytes_max {
            self.take_all();
        }
    }

    /// Takes all records from the rings. Returns whether there were any.
    pub fn take_all(&mut self) -> bool {
        let (mut found, mut taken_bytes) = (false, 0);
        for (ring, waiting) in self.rings.iter().zip(&mut self.waiting) {
            let (head, mut tail) = (ring.head(), ring.tail());
            found |= tail < head;
            while tail < head {
                let header = ring.header(tail);
                self.bytes.resize(header.bytes as usize, 0);
                ring.copy(tail, &mut self.bytes);
                self.samples_taken += u64::from(header.kind == RECORD_SAMPLE);
                if let Some(record) = self.samples.parse(header, &self.bytes) {
                    let record = Waiting::new(record, header.bytes as usize);
                    taken_bytes += record.bytes;
                    waiting.push_back(record);
                }
                tail += header.bytes;
            }
            ring.release(tail);
        }
        let logged = self.log.take();
        found |= !logged.is_empty();
        if let Some(waiting) = self.waiting.last_mut() {
            for record in logged {
                let record = Waiting::new(record, 0);
                taken_bytes += record.bytes;
                waiting.push_back(record);
            }
        }
        self.waiting_bytes += taken_bytes;
        found
    }

    /// The oldest record, if it is not later than `until_ns`. All rings and the log must have been read after `until_ns` passed.
    pub fn next_until(&mut self, until_ns: u64) -> Option<Record> {
        let fronts = self.waiting.iter().enumerate();
        let times = fronts.filter_map(|(index, waiting)| Some((waiting.front()?.record.time_ns, index)));
        let (_, index) = times.min().filter(|(time_ns, _)| *time_ns <= until_ns)?;
        let Waiting { record, bytes } = self.waiting[index].pop_front()?;
        self.waiting_bytes -= bytes;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use hksim_linux_probe::PAGE_BYTES;
    use hksim_linux_probe::perf::{
        FLAG_SAMPLE_ID_ALL, FLAG_USE_CLOCKID, Request, SAMPLE_ADDRESS, SAMPLE_TID, SAMPLE_TIME, SOFTWARE_PAGE_FAULTS,
        TYPE_SOFTWARE,
    };
    use hksim_memory_trace::{Calls, Faults, Visibility};

    use super::*;
    use crate::record::What;

    const RING_BYTES: usize = 64 << 10;

    /// A merger of this thread's page faults; `None`, with the reason printed, where the kernel does not permit it.
    fn merger(waiting_bytes_max: usize) -> Option<Merger> {
        let request = Request {
            kind: TYPE_SOFTWARE,
            config: SOFTWARE_PAGE_FAULTS,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDRESS,
            flags: FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCKID,
            clockid: libc::CLOCK_MONOTONIC,
            ..Request::default()
        };
        let opened = perf::open_with_losses(0, &request, None).and_then(|event| {
            let ring = Ring::map(&event, RING_BYTES)?;
            Ok((event, ring))
        });
        let (event, ring) = opened.map_err(|why| eprintln!("skipped: {why}")).ok()?;
        let visibility = Visibility { faults: Faults::All, calls: Calls::Stops };
        let events = Events { rings: vec![ring], samples: Samples::Faults, visibility, open: vec![event] };
        Some(Merger::new(events, Arc::default(), waiting_bytes_max))
    }

    /// Faults on so many pages.
    fn fault(pages: usize) {
        let bytes = pages * PAGE_BYTES as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, of which a byte of each page is written before it goes.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            libc::madvise(map, bytes, libc::MADV_NOHUGEPAGE);
            (0..pages).for_each(|page| map.cast::<u8>().add(page * PAGE_BYTES as usize).write_volatile(1));
            libc::munmap(map, bytes);
        }
    }

    /// The records and the losses after so many rounds of faults, and the most bytes that waited.
    fn after_rounds(merger: &mut Merger, rounds: usize) -> (u64, u64, usize) {
        let mut most_bytes = 0;
        for _ in 0..rounds {
            fault(200);
            merger.take_if_room();
            most_bytes = most_bytes.max(merger.waiting_bytes);
        }
        merger.stop();
        let mut records = 0;
        while let Some(record) = merger.next_until(u64::MAX) {
            records += u64::from(!matches!(record.what, What::Lost(_)));
        }
        assert_eq!(merger.waiting_bytes, 0);
        (records, merger.lost(), most_bytes)
    }

    #[test]
    fn what_does_not_fit_into_the_backlog_is_counted_as_lost() {
        let backlog_bytes = 32 << 10;
        let Some(mut small) = merger(backlog_bytes) else { return };
        let (records, lost, most_bytes) = after_rounds(&mut small, 100);
        assert!(lost > 0 && records + lost >= 100 * 200, "{records} records and {lost} lost");
        // A ring's records take more bytes here than there.
        let ring_bytes = RING_BYTES * (1 + size_of::<Waiting>() / 32);
        assert!((backlog_bytes..=backlog_bytes + ring_bytes).contains(&most_bytes), "{most_bytes} bytes");
        let Some(mut large) = merger(BACKLOG_BYTES_MAX) else { return };
        let (records, lost, _) = after_rounds(&mut large, 100);
        assert!(lost == 0 && records >= 100 * 200, "{records} records and {lost} lost");
    }
}
