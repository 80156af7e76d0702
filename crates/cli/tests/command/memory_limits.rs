//! Memory limits: what is said where a recording does not have every write, rows that are killed, and commands that do not
//! know a limit. The oracles are the kernel, with the same program under a real limit, and arithmetic on what it writes.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hksim_linux_probe::memory_group::MemoryGroup;
use hksim_text::units::count;
use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

const MIB: u64 = 1 << 20;
/// What the program has besides the memory that it is told to write, at most.
const OTHERS: u64 = MIB / 2;

/// A directory with the program and a recording of it; the arguments are those of the program.
fn recorded(arguments: &str) -> Option<Bench> {
    let bench = Bench::new();
    if !can_record() {
        return None;
    }
    bench.compile(data("freed-again.c"), "app", &["-O1"])?;
    bench.ok(&format!("record --memory -o a.hkm -- ./app {arguments}"));
    Some(bench)
}

/// Waits until the program has stopped itself.
fn wait_for_stop(child: &Child) {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the program has not stopped");
}

/// Whether the program survives a real limit, which holds from before it has written anything.
fn survives(bench: &Bench, arguments: &str, limit_bytes: u64) -> Result<bool, String> {
    let group = MemoryGroup::create()?;
    group.set_limit(Some(limit_bytes)).map_err(|why| why.to_string())?;
    let arguments = arguments.split_whitespace().chain(["stop"]);
    let mut program = Command::new(bench.path("app"));
    let mut child = program.args(arguments).stdout(Stdio::null()).spawn().expect("the program");
    wait_for_stop(&child);
    let added = group.add(child.id());
    // SAFETY: continues the child, which is not waited for yet.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGCONT) };
    let status = child.wait().expect("an exit status");
    added.map_err(|why| why.to_string())?;
    match status.signal() {
        None => Ok(true),
        Some(libc::SIGKILL) => Ok(false),
        Some(signal) => panic!("signal {signal}"),
    }
}

/// A shell starts the program, which needs 16 MiB: the limit of the shell does not count it, and says so.
#[test]
fn executed_programs_are_told_as_missing_in_a_limit() {
    let Some(bench) = recorded("free 16 0 8") else { return };
    let shell = ["record", "--memory", "-q", "-o", "sh.hkm", "--", "sh", "-c", "./app free 16 0 8; true"];
    assert!(bench.command("").args(shell).status().expect("hksim").success());
    let limited = |file: &str| bench.json(&format!("sim {file} --thp never --memory-limit 8M"));
    let shell = limited("sh.hkm");
    assert_eq!(
        (&shell["memory_limit"]["outcome"], number(&shell, "recording.programs_apart")),
        (&"survives".into(), 1)
    );
    let text = bench.ok("sim sh.hkm --thp never --memory-limit 8M");
    assert!(text.contains("not in this limit: 1 program of the same recording"), "{text}");
    assert!(!bench.ok("sim sh.hkm --thp never").contains("not in this limit"));
    assert_eq!(limited("a.hkm")["recording"]["programs_apart"], Value::Null);
}

#[test]
fn writes_after_madv_free_make_the_outcome_and_the_least_limit_a_range() {
    // 20 MiB are between what is needed if nothing is written again and if all is.
    // Pages that a child shares are reclaimed, too.
    for (arguments, fits) in [("free 16 0 8", true), ("free 16 16 8", false), ("free-fork 16 0 8", true)] {
        let Some(bench) = recorded(arguments) else { return };
        let result = bench.json("sim a.hkm --thp never --memory-limit 20M");
        assert_eq!(result["memory_limit"]["outcome"], "unknown", "{result}");
        assert_eq!(number(&result, "unseen_writes.marked_bytes"), 16 * MIB);
        let most = number(&result, "memory_limit.least_limit_bytes");
        let least = number(&result, "unseen_writes.least_limit_bytes_min");
        assert!((24 * MIB..24 * MIB + OTHERS).contains(&most), "{most}");
        assert!((16 * MIB..16 * MIB + OTHERS).contains(&least), "{least}");
        assert!(result["unseen_writes"]["at_most"].is_null(), "the figures are not in question");
        let text = bench.ok("sim a.hkm --thp never --memory-limit 20M");
        for part in ["memory limit 20.0 MiB: unknown: it depends", "in any case; at best, from", "no fault"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for (limit_bytes, outcome, is_met) in
            [(20 * MIB, "unknown", fits), (15 * MIB, "killed", false), (most + OTHERS, "survives", true)]
        {
            let predicted = bench.json(&format!("sim a.hkm --thp never --memory-limit {limit_bytes}"));
            assert_eq!(predicted["memory_limit"]["outcome"], outcome, "{limit_bytes}");
            match survives(&bench, arguments, limit_bytes) {
                Ok(survives) => assert_eq!(survives, is_met, "{arguments} at {limit_bytes}"),
                Err(why) => return eprintln!("skipped: {why}"),
            }
        }
    }
}

#[test]
fn memory_that_is_not_given_up_has_one_outcome_and_one_least_limit() {
    let Some(bench) = recorded("dontneed 16 16 8") else { return };
    let result = bench.json("sim a.hkm --thp never --memory-limit 20M --madv-free dontneed");
    assert_eq!((&result["memory_limit"]["outcome"], &result["unseen_writes"]), (&"killed".into(), &Value::Null));
    let line = "sweep a.hkm --thp never --format csv --madv-free recorded,dontneed";
    let csv = bench.ok(line);
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    for row in lines {
        let cells: Vec<&str> = row.split(',').collect();
        let cell = |name: &str| names.iter().position(|each| *each == name).map(|at| cells[at]);
        assert_eq!((cell("traps"), cell("rss_bytes_end")), (cell("traps_max"), cell("rss_bytes_end_max")));
    }
}

#[test]
fn what_dontneed_costs_in_place_of_free_is_a_range_that_holds_what_it_really_costs() {
    let Some(bench) = recorded("free 16 8 4") else { return };
    let result = bench.json("sim a.hkm --thp never --madv-free dontneed");
    let (least, most) = (number(&result, "traps"), number(&result, "unseen_writes.at_most.traps"));
    // Every page that was given up can be written again once.
    assert_eq!(most - least, 16 * MIB / 4096);
    let rss = (number(&result, "rss_bytes_end"), number(&result, "unseen_writes.at_most.rss_bytes_end"));
    assert_eq!(rss.1 - rss.0, 16 * MIB);
    // The program with MADV_DONTNEED: its own recording knows all writes, and the kernel counts them.
    bench.ok("record --memory -o b.hkm -- ./app dontneed 16 8 4");
    let real = bench.json("sim b.hkm --thp never");
    let traps = number(&real, "traps");
    assert!(traps - least >= 8 * MIB / 4096 - 4 && traps < most, "{least} to {most}, in reality {traps}");
    let ran = Command::new(bench.path("app")).args("dontneed 16 8 4".split(' ')).output().expect("the program");
    let printed = String::from_utf8(ran.stdout).expect("text");
    let printed: Vec<u64> = printed.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert!((7 * 1024..7 * 1024 + 16).contains(&printed[0]), "{} faults", printed[0]);
    assert!((rss.0..rss.1).contains(&printed[1]), "{rss:?}, in reality {}", printed[1]);
    let text = bench.ok("sim a.hkm --thp never --madv-free dontneed");
    assert!(text.contains(" to ") && text.contains("ranges: MADV_FREE marked 16.0 MiB"), "{text}");
    let table = bench.ok("sweep a.hkm --thp never --madv-free recorded,dontneed");
    assert!(table.contains("of ranges, the upper end counts for the front"), "{table}");
    // The report has the ranges of the table.
    bench.ok("sweep a.hkm --thp never --madv-free recorded,dontneed --format json -o r.json");
    bench.ok("report r.json -o r.html");
    let html = std::fs::read_to_string(bench.path("r.html")).expect("a report");
    let installs = ["installs.total", "unseen_writes.at_most.installs"].map(|name| count(number(&result, name)));
    let range = installs.join(" to ");
    assert!(table.contains(&range), "{range}: {table}");
    for part in [&range, "ranges: MADV_FREE marked 16.0 MiB", "the upper end counts"] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

/// A khugepaged that never rests has a bound, too: JSON has no figure that readers must take for damaged.
#[test]
fn reports_take_the_bound_of_a_khugepaged_without_a_rest() {
    let bench = Bench::new();
    let recording = data("page-operations.hkm").display().to_string();
    for pace in ["--scan-sleep-millisecs 0", "--pages-to-scan 18446744073709551615"] {
        let line = format!("sim {recording} --thp always {pace}");
        let most = number(&bench.json(&line), "khugepaged_bound.huge_pages_max");
        assert!((8..=1 << 26).contains(&most), "{pace}: {most}");
        bench.ok(&format!("{line} --format json -o r.json"));
        bench.ok("report r.json -o r.html");
        ["r.json", "r.html"].iter().for_each(|file| std::fs::remove_file(bench.path(file)).expect("a file"));
    }
}

/// The rows of a table, as words.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(2).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn rows_that_are_killed_are_told_and_not_compared() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --huge never,thp --memory-limit 64K,none";
    let result = bench.json(line);
    let outcome = |row: &Value| row["memory_limit"]["outcome"] == "killed";
    let killed: Vec<usize> = (0..4).filter(|&row| outcome(&result["rows"][row])).collect();
    assert_eq!(killed.len(), 2, "64 KiB are not enough");
    let front = result["pareto"].as_array().expect("a front");
    assert!(!front.is_empty() && front.iter().all(|row| !killed.contains(&(row.as_u64().expect("a row") as usize))));
    let text = bench.ok(line);
    for part in ["outcome", "killed at the memory limit in 2 of 4 rows", "Not compared, because the program is killed"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let table = bench.ok(&format!("{line} --columns #,outcome,installs,front"));
    for row in rows(&table) {
        let is_best = row.iter().any(|cell| cell.starts_with('*')) || row.last() == Some(&"P");
        assert!(row[1] != "killed" || !is_best, "{table}");
    }
    let alone = bench.ok("sweep rm.hkt --huge never,thp --memory-limit 64K");
    assert!(alone.contains("With 2 of 2 designs the program is killed at the memory limit"), "{alone}");
    assert!(!bench.ok("sweep rm.hkt --huge never,thp").contains("outcome"));
}

#[test]
fn a_sweep_of_a_recording_has_outcomes_and_least_limits() {
    let bench = Bench::new();
    let recording = data("page-operations.hkm").display().to_string();
    let line = format!("sweep {recording} --thp never,always --memory-limit 64K,1G");
    let result = bench.json(&line);
    let killed: Vec<bool> = (0..4).map(|row| result["rows"][row]["memory_limit"]["outcome"] == "killed").collect();
    let front = result["pareto"].as_array().expect("a front");
    assert!(killed.contains(&true) && !front.is_empty(), "{killed:?}");
    assert!(front.iter().all(|row| !killed[row.as_u64().expect("a row") as usize]), "{killed:?} {front:?}");
    let text = bench.ok(&line);
    assert!(text.contains("least limit") && text.contains("killed at the memory limit in 2 of 4 rows"), "{text}");
    let table = bench.ok(&format!("{line} --columns outcome,least-limit"));
    assert!(rows(&table).iter().any(|row| row[0] == "survives") && table.contains("MiB"), "{table}");
}

#[test]
fn advice_under_a_limit_is_a_design_that_survives_it() {
    let bench = Bench::with_trace();
    let designs = "--huge never,thp --superslab 1M,2M";
    let least = |policy: &str| {
        let result = bench.json(&format!("sim rm.hkt {policy} --memory-limit 1G"));
        number(&result, "memory_limit.least_limit_bytes")
    };
    let mut least: Vec<u64> = ["never", "thp"]
        .iter()
        .flat_map(|huge| ["1M", "2M"].map(|size| least(&format!("--huge {huge} --superslab {size}"))))
        .collect();
    least.sort_unstable();
    // Only the designs that need least survive it.
    let limit = least[0];
    assert!(limit < least[3], "{least:?}");
    let result = bench.json(&format!("advise rm.hkt {designs} --memory-limit {limit}"));
    let winner = result["winner"]["name"].as_str().expect("a winner");
    let simulated = bench.json(&format!("sim rm.hkt {winner} --memory-limit {limit}"));
    assert_eq!(simulated["memory_limit"]["outcome"], "survives", "{winner}");
    let front = result["front"].as_array().expect("a front");
    assert!(front.iter().all(|entry| entry["figures"][0]["killed_at_limit_bytes"].is_null()), "{front:?}");
    let none = bench.run(&format!("advise rm.hkt {designs} --memory-limit 64K"));
    assert_eq!(none.code, Some(1), "{}", none.stderr);
    assert!(none.stdout.contains("the program is killed at the memory limit"), "{}", none.stdout);
}

#[test]
fn commands_that_know_no_limit_refuse_one() {
    let bench = Bench::with_trace();
    let why = bench.refused("explain rm.hkt --memory-limit 4M");
    assert!(why.contains("--memory-limit") && why.contains("hksim sim"), "{why}");
    let why = bench.refused("validate rm.hkt --memory-limit 4M");
    assert!(why.contains("--memory-limit"), "{why}");
}

#[test]
fn reports_have_the_limit_and_the_outcome() {
    let bench = Bench::with_trace();
    let recording = data("page-operations.hkm").display().to_string();
    for (line, parts) in [
        ("sim rm.hkt --memory-limit 64K".to_string(), vec!["memory limit 64.0 KiB: killed"]),
        (format!("sim {recording} --memory-limit 64K"), vec!["memory limit 64.0 KiB: killed", "are survived"]),
        (format!("sweep {recording} --memory-limit 64K,1G"), vec!["killed at the memory limit in 1 of 2 rows"]),
        ("sweep rm.hkt --memory-limit 64K,1G".to_string(), vec!["killed at the memory limit in 1 of 2 rows"]),
    ] {
        bench.ok(&format!("{line} --format json -o r.json"));
        bench.ok("report r.json -o r.html");
        let html = std::fs::read_to_string(bench.path("r.html")).expect("a report");
        parts.iter().for_each(|part| assert!(html.contains(part), "{line}: {part}"));
        std::fs::remove_file(bench.path("r.html")).expect("a report");
        std::fs::remove_file(bench.path("r.json")).expect("a result");
    }
}
