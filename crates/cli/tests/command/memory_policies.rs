//! Process-wide memory settings of the program: every tool keeps them, and model and kernel apply them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Bench, number};

/// A trace that sets PR_SET_THP_DISABLE to `value` before its event 2 000, and to 0 before its event 30 000.
fn trace(value: u32) -> Bench {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 60k --ws 4000 --min 100 --max 3k -o plain.hkt");
    bench.ok("export plain.hkt --to csv -o plain.csv");
    let plain = fs::read_to_string(bench.path("plain.csv")).expect("a table");
    let row = |line: &str, value: u32| {
        let time_ns = line.split(',').nth(1).unwrap_or_default();
        format!(",{time_ns},0,memory-policy,,,,thp-disable,,,,,{value},,\n")
    };
    let lines = plain.lines().map(|line| match line.split(',').next() {
        Some("2000") => row(line, value) + line + "\n",
        Some("30000") => row(line, 0) + line + "\n",
        _ => format!("{line}\n"),
    });
    fs::write(bench.path("with.csv"), lines.collect::<String>()).expect("a table");
    bench.ok("import with.csv -o with.hkt");
    bench
}

/// A phased load of four threads that calls `mlockall` with these flags (0: `munlockall`) before these events.
fn locking_trace(locks: &[(&str, u32)]) -> Bench {
    let bench = Bench::new();
    bench.ok("gen server --events 60k --live 12M -o plain.hkt");
    bench.ok("export plain.hkt --to csv -o plain.csv");
    let plain = fs::read_to_string(bench.path("plain.csv")).expect("a table");
    let lines = plain.lines().map(|line| {
        let mut fields = line.split(',');
        let (event, time_ns) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let lock = locks.iter().find(|(at, _)| *at == event);
        let row = lock.map(|(_, flags)| format!(",{time_ns},0,memory-policy,,,,mlockall,,,,,{flags},,\n"));
        row.unwrap_or_default() + line + "\n"
    });
    fs::write(bench.path("with.csv"), lines.collect::<String>()).expect("a table");
    bench.ok("import with.csv -o with.hkt");
    bench
}

/// `MCL_CURRENT`, `MCL_FUTURE`, `MCL_ONFAULT`.
const CURRENT: u32 = 1;
const FUTURE: u32 = 2;
const ON_FAULT: u32 = 4;

/// Purges without delay and without caches, so that purges often meet locked memory.
const PURGING: &str = "--superslab 1M --arena 1G --purge-delay 0 --purge-spans yes --cache 0 --huge-cache 0";

/// All rows of the validation are exact or skipped.
fn is_exact(bench: &Bench, flags: &str) {
    for row in bench.json(&format!("validate with.hkt {PURGING} {flags}"))["rows"].as_array().expect("rows") {
        match row["verdict"].as_str() {
            Some("skipped") => eprintln!("skipped: {}", row["reason"]),
            verdict => assert_eq!(verdict, Some("ok"), "{flags}: {}: {}", row["policy"], row["reason"]),
        }
    }
}

#[test]
fn model_and_kernel_lock_the_same_memory() {
    let _held = hksim_testkit::modes::hold();
    let all = [("9000", CURRENT | FUTURE), ("40000", 0)];
    let in_turn =
        [("5000", FUTURE), ("15000", CURRENT), ("30000", CURRENT | ON_FAULT), ("45000", FUTURE | ON_FAULT | CURRENT)];
    for locks in [&all[..], &in_turn] {
        let bench = locking_trace(locks);
        is_exact(&bench, "--huge never,thp --purge dontneed,free,unmap");
        is_exact(&bench, "--huge thp --align trim --purge unmap");
        is_exact(&bench, "--huge never --purge free --fork-at 20000");
        is_exact(&bench, "--huge thp --header light --prefault populate --prefault-scope slab");
        is_exact(&bench, "--huge never --memory-policy ignored");
        bench.ok("replay with.hkt --mode threaded");
        let elsewhere = bench.json("replay with.hkt --on glibc").to_string();
        assert!(elsewhere.contains("mlockall is omitted on another allocator"), "{elsewhere}");
    }
}

/// Runs without the capability to lock unlimited memory, and with a low limit.
#[test]
fn a_row_is_skipped_if_memory_cannot_be_locked() {
    // Locking fails immediately, or with a later SuperSlab. (perf's buffer counts towards the limit, too.)
    for flags in [CURRENT | FUTURE, FUTURE] {
        let bench = locking_trace(&[("9000", flags)]);
        let limited = "prlimit --memlock=1048576:1048576";
        let few_rights = format!("setpriv --bounding-set=-ipc_lock {limited}");
        for (mode, figures) in
            [("ordered", "installs, marks"), ("threaded", "faults, traps, rss_bytes_peak, rss_bytes_end")]
        {
            let under = |words: &str| {
                let mut words = words.split(' ');
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words).arg(env!("CARGO_BIN_EXE_hksim"));
                command.args(["validate", "with.hkt", "--huge", "never", "--mode", mode]);
                command.current_dir(bench.folder()).output().ok()
            };
            // Only root can drop this capability.
            let ran = under(&few_rights).filter(|ran| !ran.stdout.is_empty()).or_else(|| under(limited));
            let Some(ran) = ran else { return eprintln!("skipped: no setpriv or prlimit is installed") };
            let printed = String::from_utf8_lossy(&ran.stdout);
            let skipped = format!("skipped: {figures} not measured: the program's memory cannot be locked here");
            assert!(printed.contains(&skipped), "{mode}, flags {flags}: {ran:?}");
            assert!(printed.contains("verdict: skipped") && ran.status.success(), "{printed}");
        }
    }
}

#[test]
fn locked_memory_is_populated_and_stays() {
    let bench = locking_trace(&[("9000", CURRENT | FUTURE)]);
    let report = |flags: &str| bench.json(&format!("sim with.hkt {PURGING} --huge never {flags}"));
    let (locked, free) = (report(""), report("--memory-policy ignored"));
    assert_eq!(number(&locked["memory_policy"], "mlockall_calls"), 1);
    let populated = |report: &Value| number(&report["installs"]["by_reason"], "populated");
    assert!(populated(&locked) > 1000 && populated(&free) == 0, "{}", locked["installs"]);
    let purged = |report: &Value| number(&report["page_operations"], "madv_dontneed_pages");
    assert!(purged(&locked) < purged(&free), "{} {}", locked["page_operations"], free["page_operations"]);
    assert!(number(&locked, "rss_bytes_end") > number(&free, "rss_bytes_end"), "nothing is returned to the kernel");
    // Every page of every SuperSlab, and a few page tables.
    let superslabs_bytes = number(&locked, "superslabs_peak") << 20;
    assert!(number(&locked, "rss_bytes_peak") >= superslabs_bytes, "{}", locked["rss_bytes_peak"]);
    let printed = bench.ok("sim with.hkt");
    assert!(printed.contains("locks all its memory (mlockall, 1 call)"), "{printed}");
}

/// The figures of a simulation that a policy can change.
fn figures(bench: &Bench, line: &str) -> [u64; 3] {
    let report = bench.json(line);
    let kept_small = number(&report["memory_policy"], "installs_thp_denied");
    [number(&report["installs"], "total"), number(&report["installs"]["by_kind"], "thp"), kept_small]
}

#[test]
fn model_and_kernel_obey_thp_disable() {
    let _held = hksim_testkit::modes::hold();
    for (value, is_none) in [(1, true), (3, false)] {
        let bench = trace(value);
        let [recorded, ignored] = ["recorded", "ignored"]
            .map(|rule| figures(&bench, &format!("sim with.hkt --huge thp --superslab 1M --memory-policy {rule}")));
        let plain = figures(&bench, "sim plain.hkt --huge thp --superslab 1M");
        assert_eq!(ignored, plain, "as if the calls were not in the trace");
        assert_eq!(recorded[2] > 0, is_none, "with value 3, advised memory still gets huge pages: {recorded:?}");
        assert_eq!(recorded[0] > 2 * ignored[0], is_none, "{recorded:?} {ignored:?}");
        let line =
            "validate with.hkt --superslab 1M --huge thp,collapse,never --memory-policy recorded,ignored --arena 1G";
        for row in bench.json(line)["rows"].as_array().expect("rows") {
            match row["verdict"].as_str() {
                Some("skipped") => eprintln!("skipped: {}", row["reason"]),
                verdict => assert_eq!(verdict, Some("ok"), "{value}: {}: {}", row["policy"]["huge"], row["reason"]),
            }
        }
        // The same with other allocators and real threads.
        bench.ok("replay with.hkt --on glibc");
        bench.ok("replay with.hkt --mode threaded");
    }
}

#[test]
fn tables_report_the_effect_of_a_memory_policy() {
    let bench = trace(1);
    let printed = "switched huge pages off for itself (PR_SET_THP_DISABLE)";
    assert!(bench.ok("sim with.hkt --huge thp").contains(printed));
    assert!(bench.ok("sweep with.hkt --huge never,thp").contains(printed));
    assert!(!bench.ok("sim with.hkt --huge never").contains(printed), "the setting changes nothing");
    let ignored = bench.ok("sim with.hkt --huge thp --memory-policy ignored");
    assert!(ignored.contains("(2 calls) are ignored") && !ignored.contains(printed), "{ignored}");
    let refused = bench.refused("sim with.hkt --memory-policy never");
    assert!(refused.contains("recorded, ignored"), "{refused}");
}

/// The policies that `info` lists: event, call, value, inherited.
fn listed(bench: &Bench, trace: &str) -> Vec<(u64, Value, Value, Value)> {
    let info = bench.json(&format!("info {trace}"));
    let rows = info["memory_policies"].as_array().expect("a list").iter();
    let one = |row: &Value| {
        let policy = &row["policy"];
        (number(row, "event"), policy["call"].clone(), policy["value"].clone(), row["inherited"].clone())
    };
    rows.map(one).collect()
}

#[test]
fn every_tool_keeps_memory_policies() {
    let bench = trace(1);
    let of = |event, value: &str, inherited: bool| {
        (event, Value::from("thp-disable"), Value::from(value), Value::from(inherited))
    };
    let both = vec![of(2000, "all", false), of(30001, "off", false)];
    assert_eq!(listed(&bench, "with.hkt"), both);
    assert!(bench.ok("info with.hkt").contains("PR_SET_THP_DISABLE: no huge pages (event 2 000)"));
    for line in [
        "trace anonymise with.hkt -o t.hkt",
        "trace anonymise with.hkt --sizes classes -o t.hkt",
        "trace scale with.hkt --size 2 -o t.hkt",
        "trace scale with.hkt --time 0.5 -o t.hkt",
        "import with.csv -o t.hkt",
    ] {
        bench.ok(line);
        assert_eq!(listed(&bench, "t.hkt"), both, "{line}");
        fs::remove_file(bench.path("t.hkt")).expect("a trace");
    }
    bench.ok("trace cut with.hkt --events 10000..40000 -o cut.hkt");
    let cut = listed(&bench, "cut.hkt");
    assert_eq!((cut.len(), &cut[0]), (2, &of(0, "all", true)));
    bench.ok("trace merge with.hkt plain.hkt -o merged.hkt");
    assert_eq!(listed(&bench, "merged.hkt").len(), 2);
}
