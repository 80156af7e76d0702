//! `import --faults` on a C program that touches known pages. perf records it, and a Python script counts
//! independently.

use std::process::Command;

use serde_json::Value;

use crate::support::{Bench, number};

/// Runs a program, and prints why it could not be run.
fn run(bench: &Bench, program: &str, line: &str) -> Result<String, String> {
    let output = Command::new(program).args(line.split_whitespace()).current_dir(bench.folder()).output();
    let output = output.map_err(|why| format!("{program}: {why}"))?;
    let printed = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_string();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program}: {printed}"))
    }
}

const FIELDS: &str = "-F +pid,+addr --show-mmap-events --show-task-events";

/// Records the program with these events. Returns the first addresses of its mapping, heap and zeroed data.
fn record(bench: &Bench, events: &str) -> Result<Vec<u64>, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/faults.c");
    run(bench, "cc", &format!("-O1 -o known {source}"))?;
    let printed = run(bench, "perf", &format!("record -q {events} -c1 -d -o k.data ./known"))?;
    let script = run(bench, "perf", &format!("script -i k.data {FIELDS}"))?;
    std::fs::write(bench.path("k.txt"), script).map_err(|why| why.to_string())?;
    Ok(printed.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok()).collect())
}

fn region<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["regions"].as_array().expect("regions");
    rows.iter().find(|row| row["name"].as_str().is_some_and(|found| found.ends_with(name))).unwrap_or(&Value::Null)
}

fn mapping(report: &Value, address: u64) -> &Value {
    let rows = report["mappings"].as_array().expect("mappings");
    let inside = |row: &&Value| (number(row, "start")..number(row, "end")).contains(&address);
    rows.iter().find(inside).unwrap_or(&Value::Null)
}

#[test]
fn known_touches_are_found_at_their_addresses() {
    let bench = Bench::new();
    let places = match record(&bench, "-e page-faults") {
        Ok(places) => places,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let [map, heap, zeroed] = places[..] else { panic!("{places:x?}") };
    let report = bench.json("import --faults k.txt");
    // 40 pages written, 10 of them again after a purge, 7 read and then written.
    let process = number(&report, "process");
    let mut counted = Vec::new();
    // printf uses more of the heap than the program itself.
    let whole_heap = mapping(&report, heap);
    let ranges = [
        (map, map + (64 << 12)),
        (heap, heap + (30 << 12)),
        (zeroed, zeroed + (20 << 12)),
        (number(whole_heap, "start"), number(whole_heap, "end")),
    ];
    let ranges: String = ranges.iter().map(|(start, end)| format!("{start:x}-{end:x} ")).collect();
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/faults.py");
    match run(&bench, "python3", &format!("{oracle} k.txt {process} {ranges}")) {
        Ok(printed) => counted.extend(printed.split_whitespace().filter_map(|word| word.parse::<u64>().ok())),
        Err(why) => return eprintln!("skipped: {why}"),
    }
    let reasons = &report["reasons"];
    assert_eq!((number(&report, "faults"), number(reasons, "first_touch")), (counted[0], counted[1]));
    assert_eq!(counted[0], number(reasons, "first_touch") + number(reasons, "repeated"));
    assert_eq!(counted[2..8], [64, 47, 30, 30, 20, 20], "the faults that the program provokes");
    let own = mapping(&report, map);
    assert!(number(own, "faults") >= 64 && number(own, "faults") - number(own, "first_touch") == 17, "{own}");
    assert_eq!(number(region(&report, "heap"), "faults"), counted[8]);
    assert_eq!(mapping(&report, zeroed)["name"].as_str().map(|name| name.ends_with("/known")), Some(true));
    assert!(number(region(&report, "stack"), "faults") >= 1);
    let all = report["regions"].as_array().expect("regions").iter().map(|row| number(row, "faults"));
    assert_eq!(all.sum::<u64>(), counted[0], "every fault is in a region");
    let moments = report["timeline"].as_array().expect("a timeline").iter();
    let over_time = moments.flat_map(|moment| moment["faults"].as_object().expect("regions").values());
    let over_time = over_time.filter_map(Value::as_u64);
    assert_eq!(over_time.sum::<u64>(), counted[0]);
    // The compressed script gives the same result, and a picture.
    run(&bench, "gzip", "-k k.txt").expect("gzip runs");
    bench.ok("import --faults k.txt.gz --plot k.svg -o k.json --format json");
    let packed: Value =
        serde_json::from_str(&std::fs::read_to_string(bench.path("k.json")).expect("a report")).expect("JSON");
    assert_eq!(packed["regions"], report["regions"]);
    assert!(std::fs::read_to_string(bench.path("k.svg")).expect("a picture").contains("anonymous"));
}

#[test]
fn other_events_explain_repeated_faults() {
    let bench = Bench::new();
    match record(&bench, "-e page-faults -e syscalls:sys_enter_madvise") {
        Ok(_) => assert_eq!(number(&bench.json("import --faults k.txt"), "reasons.after_drop"), 10),
        Err(why) => eprintln!("skipped: {why}"),
    }
    match record(&bench, "-e exceptions:page_fault_user") {
        Ok(places) => {
            let report = bench.json("import --faults k.txt");
            let (own, reasons) = (mapping(&report, places[0]), &report["reasons"]);
            assert_eq!(number(own, "faults") - number(own, "first_touch"), 17, "{own}");
            // Ten pages refault after the purge. Zero pages in the mapping and private file pages are written.
            assert_eq!(number(reasons, "page_not_present"), 10);
            assert!(number(reasons, "page_present") >= 7);
        }
        Err(why) => eprintln!("skipped: {why}"),
    }
}

#[test]
fn unusable_input_is_refused_with_one_line() {
    let bench = Bench::new();
    let place = "7f0000001000 [unknown] (//anon) 5500 main+0x1 (/t)";
    for (text, needle) in [
        ("", "no page faults"),
        ("a 0 32\nf 0\n", "no page faults"),
        ("t 1 1.5: 1 page-faults: ffffffff817554ea elf_load+0x28a ([kernel.kallsyms])\n", "+addr"),
        ("t 1 1.5: 1 page-faults:\n", "k.txt:1: a page fault without an address"),
        ("t 1 1.5: page-faults: xyz\n", "+addr"),
        (
            "t 1 1.5: PERF_RECORD_MMAP2 1/1: [0x5000(0x2000) @ 0 00:00 0 0]: r-xp /t\nt 1 1.6: page-faults: 5000 a (/t)\nt 1 1.7: page-faults: 6000 a (/t)\n",
            "code",
        ),
        ("\u{1f}\u{8b}\u{8}", "k.txt"),
    ] {
        std::fs::write(bench.path("k.txt"), text).expect("a file");
        let printed = bench.refused("import --faults k.txt");
        assert!(printed.contains(needle), "{text}: {printed}");
    }
    std::fs::write(bench.path("k.txt"), format!("t 1/1 1.5: page-faults: {place}\n")).expect("a file");
    assert!(bench.refused("import --faults k.txt --pid 7").contains("processes are 1"));
    std::fs::write(bench.path("maps"), "7f0000000000-7f0000004000 rw-p 0 00:00 0\n").expect("a file");
    let report = bench.json("import --faults k.txt --maps maps");
    assert_eq!(region(&report, "anonymous")["faults"], 1);
    assert_eq!(region(&bench.json("import --faults k.txt"), "unknown")["faults"], 1);
    std::fs::write(bench.path("maps"), "nothing\n").expect("a file");
    assert!(bench.refused("import --faults k.txt --maps maps").contains("maps:1"));
    for line in ["import", "import k.txt", "import --faults k.txt --from script", "import x -o y --maps maps"] {
        bench.refused(line);
    }
}
