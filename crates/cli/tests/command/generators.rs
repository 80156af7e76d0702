//! Generators through `gen` and `info`, compared with an independent definition of the workload.

use crate::support::{Bench, number};

/// The counts of `random_mixed`, from its definition.
fn random_mixed(cycles: u64, ws: u32, seed: u32, min: u64, max: u64) -> [u64; 3] {
    let mut slots: Vec<Option<u64>> = vec![None; ws as usize];
    let (mut x, mut live, mut peak, mut allocations, mut frees) = (seed, 0, 0, 0, 0);
    for _ in 0..cycles {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        let slot = &mut slots[(x % ws) as usize];
        match slot.take() {
            Some(size) => {
                frees += 1;
                live -= size;
            }
            None => {
                let size = min + u64::from(x) % (max - min + 1);
                *slot = Some(size);
                allocations += 1;
                live += size;
                peak = peak.max(live);
            }
        }
    }
    [allocations, frees, peak]
}

#[test]
fn random_mixed_has_the_counts_of_its_definition() {
    let bench = Bench::new();
    assert_eq!(random_mixed(1_000_000, 256, 42, 16, 1039), [500_061, 499_939, 91_602], "the definition itself");
    let cases = [
        (1_000_000, 256, 42, 16, 1039),
        (50_000, 400, 7, 16, 1024),
        (50_000, 1, 99, 1, 1),
        (30_000, 5_000, 1, 0, 70_000),
    ];
    for (cycles, ws, seed, min, max) in cases {
        bench.ok(&format!(
            "gen random-mixed --cycles {cycles} --ws {ws} --seed {seed} --min {min} --max {max} -o rm.hkt"
        ));
        let info = bench.json("info rm.hkt");
        let counts = ["mallocs", "frees", "live_bytes_peak"].map(|name| number(&info, name));
        assert_eq!(counts, random_mixed(cycles, ws, seed, min, max), "{cycles} {ws} {seed} {min} {max}");
        assert_eq!(number(&info, "events"), cycles);
    }
}

#[test]
fn a_warm_up_ends_with_a_mark() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 10k --warmup 1k -o rm.hkt");
    let info = bench.json("info rm.hkt");
    assert_eq!((number(&info, "events"), number(&info, "marks")), (11_001, 1));
}

#[test]
fn tiny_hot_and_server_follow_their_parameters() {
    let bench = Bench::new();
    bench.ok("gen tiny-hot --cycles 5k --size 1K -o hot.hkt");
    let hot = bench.json("info hot.hkt");
    assert_eq!(["mallocs", "frees", "live_bytes_peak"].map(|name| number(&hot, name)), [5_000, 5_000, 1_024]);
    let written = bench.json("gen server --live 4M --threads 3 --events 40k --seed 5 -o server.hkt");
    let server = bench.json("info server.hkt");
    assert_eq!((number(&server, "threads"), number(&written, "threads")), (3, 3));
    let peak = number(&server, "live_bytes_peak");
    assert!((3 << 20..5 << 20).contains(&peak), "{peak} bytes live at the peak");
    assert_eq!(number(&server, "live_objects_end"), 0);
}

#[test]
fn bars_and_pictures_follow_time_and_mark_artificial_times() {
    let bench = Bench::new();
    // Almost all events happen in the first microseconds, but 1 MB stays live for half of the time.
    let mut csv = String::from("event,time_ns,thread,op,object,size,align_log2,call,birth\n");
    let mut number = 0;
    let mut push = |time_ns: u64, cells: &str| {
        csv += &format!("{number},{time_ns},0,{cells}\n");
        number += 1;
    };
    push(0, "alloc,0,1000000,0,malloc,none");
    for at in 0..400 {
        push(1_000 + at, "alloc,1,1000,0,malloc,none");
        push(1_000 + at, "free,1,,,,");
    }
    push(500_000, "free,0,,,,");
    push(1_000_000, "free-null,,,,,");
    std::fs::write(bench.path("t.csv"), csv).expect("a table");
    bench.ok("import t.csv --from csv -o t.hkt");
    let text = bench.ok("info t.hkt --plot t.svg");
    let bars = text.lines().find_map(|line| line.strip_prefix("live bytes, over time")).expect("bars").trim();
    assert_eq!(
        bars,
        format!("{}{}", "█".repeat(32), "▁".repeat(32)),
        "1 MB is live for half of the time, then nothing"
    );
    assert!(text.contains("events per second"), "{text}");

    let made_up = {
        bench.ok("gen random-mixed --cycles 20k -o rm.hkt");
        bench.ok("info rm.hkt")
    };
    assert!(made_up.contains("times are assumed, 100 ns per call") && !made_up.contains("per second"), "{made_up}");
    assert!(bench.ok("sim rm.hkt").contains("a purge delay of 100ms is 1 000 000 calls"));
    assert!(!bench.ok("sim t.hkt").contains("assumed, 100 ns per call"));
    assert!(!bench.ok("sim rm.hkt --purge none").contains("assumed, 100 ns per call"));
    assert_eq!(bench.json("info rm.hkt")["clock"], "per-event");
}
