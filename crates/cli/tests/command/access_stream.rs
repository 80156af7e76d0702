//! `export --to accesses`: TLB misses counted again by plain LRU lists from the exported rows.

use std::collections::BTreeMap;

use crate::support::{Bench, number};

const HEAD: &str = "event,op,address,bytes,entry_bytes,cause";
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;

/// A row of the exported stream.
struct Row {
    event: u64,
    op: String,
    address: u64,
    bytes: u64,
    entry_bytes: Option<u64>,
    cause: String,
}

fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEAD));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let address = u64::from_str_radix(cells[2].strip_prefix("0x").expect("an address"), 16).expect("an address");
        let (event, bytes) = (cells[0].parse().expect("an event"), cells[3].parse().expect("bytes"));
        Row { event, op: cells[1].into(), address, bytes, entry_bytes: cells[4].parse().ok(), cause: cells[5].into() }
    };
    lines.map(row).collect()
}

/// A TLB: the time of the last use of each entry, and the entry used at each of these times. An entry is the start and
/// the bytes of the memory that it maps. The entry used least recently is evicted.
struct Lru {
    entries_max: usize,
    times: BTreeMap<(u64, u64), u64>,
    entries: BTreeMap<u64, (u64, u64)>,
    misses: u64,
}

impl Lru {
    fn new(entries_max: usize) -> Lru {
        Lru { entries_max, times: BTreeMap::new(), entries: BTreeMap::new(), misses: 0 }
    }

    fn access(&mut self, time: u64, address: u64, entry_bytes: u64) {
        let entry = (address / entry_bytes * entry_bytes, entry_bytes);
        self.entries.insert(time, entry);
        if let Some(before) = self.times.insert(entry, time) {
            self.entries.remove(&before);
            return;
        }
        self.misses += 1;
        if self.times.len() > self.entries_max {
            let (_, oldest) = self.entries.pop_first().expect("entries");
            self.times.remove(&oldest);
        }
    }

    fn flush(&mut self, address: u64, bytes: u64) {
        let is_outside = |&(start, length): &(u64, u64)| start + length <= address || start >= address + bytes;
        self.times.retain(|entry, _| is_outside(entry));
        self.entries.retain(|_, entry| is_outside(entry));
    }
}

/// The misses of TLBs with this many entries, if every entry has `entry_bytes`, or the size of the row.
fn misses(rows: &[Row], sizes: &[u64], entry_bytes: Option<u64>) -> Vec<u64> {
    let count = |&entries: &u64| {
        let mut tlb = Lru::new(entries as usize);
        for (time, row) in rows.iter().enumerate() {
            match row.op.as_str() {
                "access" => tlb.access(time as u64, row.address, entry_bytes.or(row.entry_bytes).expect("a size")),
                _ => tlb.flush(row.address, row.bytes),
            }
        }
        tlb.misses
    };
    sizes.iter().map(count).collect()
}

const LOAD: &str = "server --events 26k --live 6M --seed 71";

/// A trace, a design, and the kinds of changes that they exercise.
const RUNS: [(&str, &str, &[&str]); 7] = [
    (LOAD, "--huge never --superslab 64K --purge dontneed --cache 0 --purge-spans yes", &["dontneed"]),
    (LOAD, "--huge thp --superslab 2M --purge dontneed --cache 0 --purge-spans yes --thp madvise", &["dontneed"]),
    (LOAD, "--huge thp --superslab 512K --purge free --cache 0 --thp madvise", &["free"]),
    (LOAD, "--huge collapse --superslab 2M --purge none --thp madvise", &["collapse"]),
    (LOAD, "--huge system --superslab 2M --purge unmap --cache 0 --thp always", &["mmap", "munmap"]),
    (LOAD, "--huge never --superslab 256K --purge none --header full --fork-at 13000", &["fault", "fork"]),
    ("random-mixed --cycles 12k --ws 6000 --seed 75", "--huge never --header off", &[]),
];

#[test]
fn plain_lru_lists_miss_as_often_as_the_curves_say() {
    for (number, (load, design, changes)) in RUNS.into_iter().enumerate() {
        let bench = Bench::new();
        bench.ok(&format!("gen {load} -o a.hkt"));
        let rows = rows(&bench.ok(&format!("export a.hkt --to accesses {design}")));
        for change in changes {
            assert!(rows.iter().any(|row| row.op == *change), "run {number}: no {change}");
        }
        let sim = bench.json(&format!("sim a.hkt --tlb skylake-sp {design}"));
        for (curve, entry_bytes) in [("as_mapped", None), ("all_4k", Some(PAGE)), ("all_2m", Some(HUGE))] {
            let points = sim["tlb"]["miss_curves"][curve].as_array().expect("a curve");
            // Every fourth size, and the last.
            let points: Vec<_> = points.iter().rev().step_by(4).collect();
            let value = |point: &serde_json::Value, name: &str| point[name].as_u64().expect("a count");
            let sizes: Vec<u64> = points.iter().map(|point| value(point, "entries")).collect();
            let curve_misses: Vec<u64> = points.iter().map(|point| value(point, "misses")).collect();
            assert_eq!(misses(&rows, &sizes, entry_bytes), curve_misses, "run {number}, {curve}");
        }
    }
}

#[test]
fn the_program_accesses_the_pages_of_its_blocks() {
    let bench = Bench::new();
    bench.ok("gen server --events 9k --live 2M --seed 76 -o a.hkt");
    let design = "--superslab 1M";
    let stream = rows(&bench.ok(&format!("export a.hkt --to accesses {design}")));
    let own = stream.iter().filter(|row| row.cause == "application").map(|row| (row.event, row.address));
    let own: Vec<(u64, u64)> = own.collect();
    let placed = bench.ok(&format!("export a.hkt --to addresses {design}"));
    let mut expected = Vec::new();
    // Bytes of each object.
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for line in placed.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells[at].parse::<u64>().expect("a number");
        let address = u64::from_str_radix(&cells[5][2..], 16).expect("an address");
        let (event, object, bytes) = (number(0), number(4), number(6));
        // The program of this load writes the bytes that it did not have before.
        let first = match cells[3] {
            "alloc" => {
                sizes.insert(object, bytes);
                0
            }
            "realloc" => sizes.insert(object, bytes).expect("a live object").min(bytes),
            "read" | "write" => 0,
            _ => bytes,
        };
        if first < bytes {
            let pages = (address + first) / PAGE..=(address + bytes - 1) / PAGE;
            expected.extend(pages.map(|page| (event, page * PAGE)));
        }
    }
    assert!(expected.len() > 900, "{} accesses", expected.len());
    let differs = own.iter().zip(&expected).position(|(own, expected)| own != expected);
    assert_eq!((own.len(), differs), (expected.len(), None), "seen {:?}, expected {:?}", &own[..9], &expected[..9]);
    let sim = bench.json(&format!("sim a.hkt --tlb skylake-sp {design}"));
    let lookups = ["l1_hits", "l2_hits", "misses"].map(|name| number(&sim, &format!("tlb.lookups.application.{name}")));
    assert_eq!(lookups.iter().sum::<u64>() as usize, expected.len());
}
