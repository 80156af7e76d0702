//! SuperSlabs with separate mappings: verdicts that do not depend on addresses, and the cost of alignment.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::support::{Bench, has_single_pages, number};

/// Runs of a design, each in its own address space. benches/validate-align.sh makes 20 runs.
const RUNS: usize = 2;
const PAGES_OF_2M: u64 = 512;

/// The rows of a validation that could be measured. Each of them must be exact.
fn exact(line: &str, validation: &Value) -> Vec<Value> {
    let rows = validation["rows"].as_array().unwrap_or_else(|| panic!("{line}: no rows")).clone();
    let (skipped, rows): (Vec<Value>, Vec<Value>) = rows.into_iter().partition(|row| row["verdict"] == "skipped");
    skipped.iter().for_each(|row| eprintln!("skipped: {line}: {}", row["reason"]));
    for row in &rows {
        let at = format!("{line}: {}: {}: {}", row["policy"], row["reason"], row["residual"]);
        assert_eq!(row["verdict"], "ok", "{at}");
        // khugepaged or another process can disturb the replay, which changes the class.
        if row["class"] == "exact" {
            assert_eq!(
                (number(&row["residual"], "pages_only_predicted"), &row["residual"]["vmas_peak"]),
                (0, &0.into()),
                "{at}"
            );
        }
    }
    rows
}

fn server() -> Bench {
    let bench = Bench::new();
    bench.ok("gen server --live 6M --events 30k --threads 2 -o server.hkt");
    bench
}

const GRID: &str = "validate server.hkt --arena 1G --superslab 256K,1M,2M,4M --huge never,thp --align trim,kernel \
                    --purge-delay 300us";

#[test]
fn verdicts_do_not_depend_on_addresses() {
    let bench = server();
    let mut layouts = BTreeSet::new();
    for _ in 0..RUNS {
        for row in exact(GRID, &bench.json(GRID)) {
            assert!(number(&row["layout_residual"], "mmaps") > 0, "no mappings: {}", row["policy"]);
            layouts.insert(row["measured"]["addresses"].to_string());
        }
    }
    eprintln!("{} layouts", layouts.len());
}

#[test]
fn verdicts_are_the_same_without_aslr() {
    let bench = server();
    let plain = bench.command(&format!("{GRID} --format json"));
    let mut fixed = Command::new("setarch");
    fixed.arg("-R").arg(plain.get_program()).args(plain.get_args()).current_dir(bench.folder());
    let ran = match fixed.output() {
        Ok(ran) if ran.status.code() == Some(1) && ran.stdout.is_empty() => {
            return eprintln!("skipped: setarch -R: {}", String::from_utf8_lossy(&ran.stderr).trim());
        }
        Ok(ran) => ran,
        Err(why) => return eprintln!("skipped: setarch: {why}"),
    };
    let validation: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|why| panic!("{GRID}: {why}"));
    exact(GRID, &validation);
}

#[test]
fn a_trimmed_populated_mapping_costs_twice() {
    let bench = server();
    let line = |align: &str| {
        format!(
            "validate server.hkt --arena 1G --superslab 2M --huge never --prefault populate --purge none --align {align}"
        )
    };
    let both = ["kernel", "trim"].map(|align| exact(align, &bench.json(&line(align))).pop());
    let [Some(kernel), Some(trim)] = both else { return };
    if !has_single_pages(&kernel["predicted"]) {
        return;
    }
    let predicted = |row: &Value, path: &str| number(&row["predicted"], path);
    let superslabs = predicted(&kernel, "installs.by_reason.populated") / PAGES_OF_2M;
    assert!(superslabs >= 3, "{superslabs} SuperSlabs populated");
    // The kernel aligns mappings of 2 MiB itself, so nothing is trimmed.
    assert_eq!(predicted(&kernel, "installs.by_reason.alignment_excess"), 0);
    assert_eq!(predicted(&trim, "installs.by_reason.populated"), superslabs * PAGES_OF_2M);
    assert_eq!(predicted(&trim, "installs.by_reason.alignment_excess"), superslabs * PAGES_OF_2M);
    let measured = |row: &Value| number(&row["measured"], "installs.total");
    assert_eq!(measured(&trim), measured(&kernel) + superslabs * PAGES_OF_2M, "measured, too");
    assert_eq!(
        trim["measured"]["rss_bytes_end"], kernel["measured"]["rss_bytes_end"],
        "the trimmed part is not resident at the end"
    );
}

/// The addresses that mmap without a hint returned in the measured child, from strace.
#[test]
fn addresses_match_strace() {
    let bench = server();
    let log = bench.path("strace");
    let plain = bench.command("replay server.hkt --arena 1G --superslab 1M --huge thp --align trim --format json");
    let mut traced = Command::new("strace");
    traced.args(["-ff", "-e", "trace=mmap,munmap", "-o"]).arg(&log);
    traced.arg(plain.get_program()).args(plain.get_args()).current_dir(bench.folder());
    let ran = match traced.output() {
        Ok(ran) if ran.status.success() => ran,
        Ok(ran) => return eprintln!("skipped: strace: {}", String::from_utf8_lossy(&ran.stderr).trim()),
        Err(why) => return eprintln!("skipped: strace: {why}"),
    };
    let replay: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|why| panic!("{why}"));
    let given: Vec<u64> = serde_json::from_value(replay["addresses"].clone()).unwrap_or_default();
    assert!(given.len() > 3, "{} mappings", given.len());
    let logs = std::fs::read_dir(bench.folder()).expect("a folder").flatten().map(|entry| entry.path());
    let seen = logs.filter(|path| path.file_stem().is_some_and(|stem| stem == "strace")).map(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let placed = text.lines().filter(|line| line.starts_with("mmap(NULL") && line.contains("MAP_NORESERVE"));
        let address = |line: &str| u64::from_str_radix(line.rsplit("= 0x").next()?, 16).ok();
        // The replay also maps a separate reservation, which drains the kernel's per-CPU batches.
        (placed.filter_map(address).filter(|address| given.contains(address)).collect::<Vec<u64>>(), text)
    });
    let Some((_, text)) = seen.into_iter().find(|(addresses, _)| *addresses == given) else {
        panic!("no process of the replay got these mappings: {given:x?}");
    };
    // After the mmap of a SuperSlab, up to two ends of the mapping are unmapped.
    let unmaps = |address: u64| text.contains(&format!("munmap({address:#x}, "));
    let trimmed = given.iter().filter(|&&address| unmaps(address)).count();
    let aligned = given.iter().filter(|address| address.is_multiple_of(1 << 20)).count();
    assert!(
        trimmed + aligned >= given.len(),
        "of {} mappings, the start of {trimmed} was unmapped and {aligned} were aligned",
        given.len()
    );
}

#[test]
fn a_prediction_without_a_replay_reports_a_range() {
    let bench = server();
    let flags = "server.hkt --arena 1G --superslab 1M --huge never --prefault populate --purge none --align kernel";
    let layouts = bench.json(&format!("sim {flags} --kernel host"))["layouts"].clone();
    let (least, most) = (number(&layouts, "installs.min"), number(&layouts, "installs.max"));
    assert!(least < most, "the address below which mappings start changes the cost: {layouts}");
    let line = format!("validate {flags}");
    for row in exact(&line, &bench.json(&line)) {
        let measured = number(&row["measured"], "installs.total");
        assert!((least..=most).contains(&measured), "{measured} measured, {layouts}");
    }
}
