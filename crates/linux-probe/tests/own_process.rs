//! Compares what the kernel reports about this process with what the process did.

use std::ptr;

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::pagemap::PageMap;
use hksim_linux_probe::perf::{self, Request};
use hksim_linux_probe::procfs::ProcText;
use hksim_linux_probe::ring::{RECORD_SAMPLE, Ring};
use hksim_linux_probe::traps::TrapStream;

const PAGES: usize = 64;

/// A fresh private mapping of 64 small pages, between two inaccessible pages. Without them, an adjacent mapping of
/// another thread would sometimes merge with it.
struct Map(*mut u8);

impl Map {
    fn new() -> Map {
        let (bytes, guard_bytes) = (PAGES * PAGE_BYTES as usize, PAGE_BYTES as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel. The calls below change only its middle.
        let at = unsafe {
            let around = libc::mmap(ptr::null_mut(), bytes + 2 * guard_bytes, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(around, libc::MAP_FAILED);
            let at = around.byte_add(guard_bytes);
            assert_eq!(libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
            libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
            at
        };
        Map(at.cast())
    }

    fn first_page(&self) -> u64 {
        self.0 as u64 / PAGE_BYTES
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < PAGES);
        // SAFETY: inside the mapping.
        unsafe { self.0.add(page * PAGE_BYTES as usize) }
    }

    fn write(&self, page: usize) {
        // SAFETY: inside the mapping, which is writable.
        unsafe { self.at(page).write_volatile(1) };
    }

    fn read(&self, page: usize) {
        // SAFETY: inside the mapping, which is readable.
        unsafe { self.at(page).read_volatile() };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let guard_bytes = PAGE_BYTES as usize;
        // SAFETY: the mapping and the page on either side are this value's own.
        unsafe { libc::munmap(self.0.sub(guard_bytes).cast(), PAGES * PAGE_BYTES as usize + 2 * guard_bytes) };
    }
}

#[test]
fn a_scan_distinguishes_read_and_written_pages() {
    let mut scans = match PageMap::open() {
        Ok(scans) => scans,
        Err(why) => return eprintln!("skipped: no page-table scans: {why}"),
    };
    let map = Map::new();
    (3..7).for_each(|page| map.write(page));
    (10..12).for_each(|page| map.read(page));
    let first = map.first_page();
    let seen: Vec<_> = scans.scan(first, first + PAGES as u64).collect();
    let reported: Vec<_> = seen.iter().map(|run| (run.first_page - first, run.end_page - first, run.is_zero)).collect();
    assert_eq!(reported, [(3, 7, false), (10, 12, true)]);
    assert!(seen.iter().all(|run| !run.is_huge));
    assert_eq!(scans.failures(), 0);
}

#[test]
fn traps_are_reported_with_their_addresses() {
    let mut stream = match TrapStream::open() {
        Ok(stream) => stream,
        Err(why) => return eprintln!("skipped: no page-fault event: {why}"),
    };
    let map = Map::new();
    stream.counter().enable();
    for page in (0..PAGES).rev() {
        map.write(page);
    }
    stream.counter().disable();
    let mut pages = Vec::new();
    let inside = map.first_page()..map.first_page() + PAGES as u64;
    stream.drain(|address| pages.extend(Some(address / PAGE_BYTES).filter(|page| inside.contains(page))));
    assert_eq!(pages, inside.rev().collect::<Vec<_>>());
    assert_eq!(stream.lost(), 0);
}

#[test]
fn mappings_are_counted_by_start_address() {
    let mut maps = ProcText::open("/proc/self/maps").expect("every process has maps");
    let map = Map::new();
    let start = map.0 as u64;
    // SAFETY: a page in the middle of our own mapping.
    let cut = unsafe { libc::mprotect(map.at(5).cast(), PAGE_BYTES as usize, libc::PROT_NONE) };
    assert_eq!(cut, 0);
    assert_eq!(maps.maps_within(start, start + PAGES as u64 * PAGE_BYTES), Some(3));
}

/// Both ways of counting what a ring loses: the kernel's own count, and, for older kernels, the event's count.
#[test]
fn losses_after_the_last_record_are_counted() {
    let request = Request {
        kind: perf::TYPE_SOFTWARE,
        config: perf::SOFTWARE_PAGE_FAULTS,
        sample_period: 1,
        sample_type: perf::SAMPLE_ADDRESS,
        flags: perf::FLAG_EXCLUDE_KERNEL | perf::FLAG_EXCLUDE_HV,
        ..Request::default()
    };
    let (counted, plain) = match (perf::open_with_losses(0, &request, None), perf::open(&request, None)) {
        (Ok(counted), Ok(plain)) => (counted, plain),
        (counted, plain) => return eprintln!("skipped: no page-fault event: {counted:?}, {plain:?}"),
    };
    let rings = [&counted, &plain].map(|event| Ring::map(event, PAGE_BYTES as usize));
    let [Ok(counted_ring), Ok(plain_ring)] = rings else { return eprintln!("skipped: no ring: {rings:?}") };
    let faults = 1000;
    for _ in 0..faults {
        let map = Map::new();
        map.write(0);
    }
    [&counted, &plain].into_iter().for_each(perf::disable);
    for (event, ring) in [(counted, counted_ring), (plain, plain_ring)] {
        let (mut tail, mut samples) = (ring.tail(), 0);
        while tail < ring.head() {
            let header = ring.header(tail);
            assert_eq!(header.kind, RECORD_SAMPLE, "the ring itself reports no loss");
            samples += 1;
            tail += header.bytes;
        }
        let lost = perf::lost(&[event], samples);
        assert!(samples < 300 && (faults..faults + 100).contains(&(samples + lost)), "{samples} read, {lost} lost");
    }
}
