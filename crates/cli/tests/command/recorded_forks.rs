//! `--fork-at recorded`, compared with a program that counts its copies on write.

use std::path::Path;
use std::process::Stdio;

use crate::support::{Bench, number};

/// Compiles the program into the bench's directory.
fn compile(bench: &Bench) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/tests/c/fork_writes.c");
    bench.compile(source, "fork_writes", &["-O1", "-fno-builtin", "-Wall"]).expect("a C compiler");
}

/// Records the program. Returns its copies, its faults that only restored write permission, and the faults charged to
/// it.
fn record(bench: &Bench, seed: u64) -> [u64; 3] {
    let mut command = bench.command(&format!("record --quiet --accesses pages -o f{seed}.hkt -- ./fork_writes {seed}"));
    let run = command.stdin(Stdio::null()).output().expect("hksim starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let printed = String::from_utf8(run.stdout).expect("text");
    let numbers: Vec<u64> = printed.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}

#[test]
fn copies_for_recorded_children_are_predicted() {
    let _held = hksim_testkit::modes::hold();
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root sees each write to a page");
    }
    let bench = Bench::new();
    compile(&bench);
    let (mut all_copies, mut all_reuses, mut at_once) = (0, 0, 0);
    for seed in 1..=6 {
        let [copies, reuses, faults] = record(&bench, seed);
        assert_eq!(copies + reuses, faults, "seed {seed}: the program's counts must add up to the kernel's");
        let line = format!("f{seed}.hkt --superslab 2M --huge never --purge none --fork-at recorded");
        let report = bench.json(&format!("sim {line}"));
        let forks = report["forks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let sum = |name: &str| forks.iter().map(|fork| number(fork, name)).sum::<u64>();
        assert_eq!((sum("cow_copies"), sum("cow_reuses")), (copies, reuses), "seed {seed}: {forks:?}");
        if copies > 0 {
            assert_eq!(number(&report, "installs.by_reason.cow_after_fork"), copies, "seed {seed}");
        }
        let overlap = |pair: &[serde_json::Value]| pair[0]["until_event"].as_u64() > pair[1]["from_event"].as_u64();
        at_once += forks.windows(2).filter(|pair| overlap(pair)).count();
        (all_copies, all_reuses) = (all_copies + copies, all_reuses + reuses);
        // The replay forks as often, and ends each child where the recorded child ended.
        let row = bench.json(&format!("validate {line}"))["rows"][0].clone();
        if row["verdict"] == "skipped" {
            eprintln!("skipped: {}", row["reason"]);
        } else {
            assert_eq!(
                (&row["verdict"], &row["class"]),
                (&"ok".into(), &"exact".into()),
                "seed {seed}: {}",
                row["reason"]
            );
        }
    }
    assert!(all_copies > 100 && all_reuses > 10 && at_once > 0, "{all_copies} {all_reuses} {at_once}");
}

#[test]
fn a_trace_without_child_exits_is_refused_but_not_one_without_forks() {
    let bench = Bench::with_trace();
    let plain = bench.json("sim rm.hkt --huge never");
    let none = bench.json("sim rm.hkt --huge never --fork-at recorded");
    assert_eq!(plain["installs"], none["installs"]);
    std::fs::write(bench.path("old.csv"), "op,object,size,number\nalloc,0,100,\nfork,,,7\nfork,,,8\nfree,0,,\n")
        .expect("a table");
    bench.ok("import --from csv old.csv -o old.hkt");
    let printed = bench.refused("sim old.hkt --fork-at recorded");
    assert!(printed.contains("not when the children ended") && printed.contains("--fork-at 2 --fork-for"), "{printed}");
    let ends = "op,object,size,number\nalloc,0,100,\nfork,,,7\nfork,,,8\nfree,0,,\nfork-end,,,7\nfork-outlives,,,8\n";
    std::fs::write(bench.path("new.csv"), ends).expect("a table");
    bench.ok("import --from csv new.csv -o new.hkt");
    let forks = bench.json("sim new.hkt --huge never --fork-at recorded")["forks"].clone();
    assert_eq!((number(&forks[0], "from_event"), number(&forks[0], "until_event")), (2, 5));
    assert_eq!(number(&forks[1], "from_event"), 3);
    assert!(forks[1]["until_event"].is_null(), "{forks}");
    let info = bench.json("info new.hkt");
    assert_eq!(["forks", "forks_ended", "forks_outliving"].map(|name| number(&info, name)), [2, 1, 1]);
    assert!(bench.ok("info new.hkt").contains("2 (1 ended, 1 outlived the trace)"));
}
