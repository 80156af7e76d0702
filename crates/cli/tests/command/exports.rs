//! `export`: round trips, addresses of objects under a design, and refusals.

use std::collections::BTreeMap;
use std::fs;

use crate::support::Bench;

#[test]
fn csv_and_android_round_trip() {
    let bench = Bench::with_trace();
    bench.ok("export rm.hkt --to csv -o rm.csv");
    bench.ok("import rm.csv -o csv.hkt");
    let bytes = |name: &str| fs::read(bench.path(name)).expect("a file");
    assert!(bytes("rm.hkt") == bytes("csv.hkt"), "CSV represents the whole trace");
    bench.ok("export rm.hkt --to android -o rm.txt");
    let events = |file: &str| bench.json(&format!("info {file}"))["summary"]["events"].clone();
    bench.ok("import rm.txt -o android.hkt");
    assert_eq!(events("rm.hkt"), events("android.hkt"));
}

#[test]
fn losses_of_a_format_are_reported() {
    let bench = Bench::new();
    bench.ok("gen server --events 5000 --live 1M -o s.hkt");
    let ran = bench.run("export s.hkt --to rep -o s.rep");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
    assert!(ran.stderr.contains("not represented in rep: thread of a call"), "{}", ran.stderr);
}

/// One row of an exported address table.
struct Row {
    op: String,
    object: u64,
    address: u64,
    bytes: u64,
}

fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("event,time_ns,thread,op,object,address,size"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells[at].parse().expect("a number");
        let address = cells[5].strip_prefix("0x").expect("an address");
        let address = u64::from_str_radix(address, 16).expect("an address");
        Row { op: cells[3].to_string(), object: number(4), address, bytes: number(6) }
    };
    lines.map(row).collect()
}

#[test]
fn addresses_of_live_blocks_do_not_overlap() {
    let bench = Bench::with_trace();
    let mut layouts = Vec::new();
    for flags in ["", "--superslab 64K", "--header off"] {
        let text = bench.ok(&format!("export rm.hkt --to addresses {flags}"));
        // Live blocks by their first byte: end and object.
        let mut live: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut seen = 0;
        for row in rows(&text) {
            seen += 1;
            let block = (row.address + row.bytes, row.object);
            match row.op.as_str() {
                "alloc" => {
                    let before = live.range(..=row.address).next_back();
                    assert!(before.is_none_or(|(_, (end, _))| *end <= row.address), "{:#x}", row.address);
                    let after = live.range(row.address..).next();
                    assert!(after.is_none_or(|(start, _)| *start >= block.0), "{:#x}", row.address);
                    live.insert(row.address, block);
                }
                "free" => assert_eq!(live.remove(&row.address), Some(block)),
                "write" => {
                    let within = live.range(..=row.address).next_back().expect("a block");
                    assert!(within.1.0 >= block.0 && within.1.1 == row.object, "{:#x}", row.address);
                }
                other => panic!("random-mixed has no {other}"),
            }
        }
        assert_eq!(seen, 20_000);
        layouts.push(text);
    }
    assert_ne!(layouts[0], layouts[1], "addresses depend on the design");
}

#[test]
fn a_result_never_replaces_a_trace() {
    let bench = Bench::with_trace();
    let trace = fs::read(bench.path("rm.hkt")).expect("the trace");
    for line in ["export rm.hkt --to csv", "export rm.hkt --to addresses", "info rm.hkt", "sim rm.hkt --format json"] {
        let message = bench.refused(&format!("{line} -o rm.hkt"));
        assert!(message.contains("rm.hkt: is a trace, which a result must not replace"), "{line}: {message}");
        assert!(fs::read(bench.path("rm.hkt")).expect("the trace") == trace, "{line}");
    }
}

#[test]
fn flags_without_effect_are_refused() {
    let bench = Bench::with_trace();
    for (line, word) in [
        ("export rm.hkt --to csv --superslab 1M", "--superslab"),
        ("export rm.hkt --to addresses --thp always", "--thp"),
        ("export rm.hkt --to addresses --touch all", "--touch"),
        ("export rm.hkt --to addresses --superslab 1M,2M", "one design"),
        ("export rm.hkt --to pdf", "android"),
        ("export rm.hkt --to csv -o nowhere/x", "nowhere/x"),
        ("export rm.hkt --to csv -o /dev/full", "No space left"),
        ("export rm.hkt --to addresses -o /dev/full", "No space left"),
        ("export nothing.hkt --to csv", "nothing.hkt"),
    ] {
        let message = bench.refused(line);
        assert!(message.contains(word), "{line}: {message}");
    }
}

/// Numbers of objects and threads that a program of ours would not choose.
#[test]
fn renamed_objects_and_threads_give_the_same_trace() {
    let bench = Bench::new();
    bench.ok("gen server --events 9k --live 2M --threads 5 --seed 77 -o a.hkt");
    let text = bench.ok("export a.hkt --to csv");
    let (head, rows) = text.split_once('\n').expect("a head");
    let names: Vec<&str> = head.split(',').collect();
    let at = |name: &str| names.iter().position(|found| *found == name).expect("a column");
    let (object, thread, op) = (at("object"), at("thread"), at("op"));
    // Only the last column has commas.
    let rename = |row: &str| {
        let mut cells: Vec<String> = row.splitn(names.len(), ',').map(str::to_string).collect();
        if !matches!(cells[op].as_str(), "header" | "footer") {
            cells[thread] = (1_000 - 7 * cells[thread].parse::<u64>().expect("a thread")).to_string();
        }
        if let Ok(number) = cells[object].parse::<u64>() {
            cells[object] = (number.wrapping_mul(2_654_435_761) % (1 << 32)).to_string();
        }
        cells.join(",")
    };
    let renamed: Vec<String> = rows.lines().map(rename).collect();
    fs::write(bench.path("b.csv"), format!("{head}\n{}\n", renamed.join("\n"))).expect("a file");
    bench.ok("import b.csv -o b.hkt");
    let bytes = |name: &str| fs::read(bench.path(name)).expect("a file");
    assert!(bytes("a.hkt") == bytes("b.hkt"), "the same events have the same file");
}
