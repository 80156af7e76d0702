//! Sweeps on several machines, and sweeps that are interrupted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hksim_testkit::Random;
use serde_json::Value;

use crate::support::{Bench, without_times};

/// A text without the only field that may differ between runs.
fn without_elapsed(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("\"elapsed_s\":")).collect::<Vec<_>>().join("\n")
}

fn two_traces() -> Bench {
    let bench = Bench::with_trace();
    bench.ok("gen server --live 4M --threads 2 --events 20k -o server.hkt");
    bench
}

const SWEEP: &str = "sweep rm.hkt server.hkt --superslab 256K,1M,4M --huge --purge-delay 10us";

#[test]
fn merged_shards_equal_the_single_run_byte_for_byte() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let bench = two_traces();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/costs.toml"), bench.path("costs.toml"))
        .expect("a profile");
    for extra in [
        "",
        " --profile costs.toml --goal sys-time --weights 1,3",
        " --tlb zen4 --goal tlb-misses --tie 0%",
        " --fork-at 5000",
    ] {
        let line = format!("{SWEEP}{extra}");
        let single = bench.ok(&format!("{line} --format json"));
        let of = 1 + random.below(7);
        let mut files: Vec<String> = Vec::new();
        for number in 1..=of {
            bench.ok(&format!("{line} --shard {number}/{of} --format json -o {number}.json"));
            // In any order.
            files.insert(random.below(number) as usize, format!("{number}.json"));
        }
        let files = files.join(" ");
        let merged = bench.ok(&format!("merge {files} --format json"));
        assert_eq!(without_elapsed(&merged), without_elapsed(&single), "seed {seed}: {of} shards of {line}");
        assert_eq!(bench.ok(&format!("merge {files}")), bench.ok(&line), "seed {seed}: {of} shards of {line}");
    }
}

#[test]
fn shards_that_do_not_belong_together_are_refused_by_name() {
    let bench = two_traces();
    for number in 1..=3 {
        bench.ok(&format!("{SWEEP} --shard {number}/3 --format json -o {number}.json"));
    }
    bench.ok(&format!("{SWEEP} --header full --shard 3/3 --format json -o other.json"));
    bench.ok("sim rm.hkt --format json -o sim.json");
    fs::write(bench.path("text.json"), "text").expect("a file");
    for (files, part) in [
        ("1.json 2.json", "missing: shard 3/3"),
        ("1.json 2.json 2.json 3.json", "2.json and 2.json are both shard 2/3"),
        ("1.json 2.json other.json", "other.json and 1.json are shards of different sweeps"),
        ("1.json 2.json sim.json", "sim.json: not a shard"),
        ("text.json", "text.json: not a shard"),
        ("none.json", "none.json: cannot read the shard"),
    ] {
        let why = bench.refused(&format!("merge {files}"));
        assert!(why.contains(part), "{files}: {why}");
    }
    let mut old: Value =
        serde_json::from_str(&fs::read_to_string(bench.path("1.json")).expect("a shard")).expect("JSON");
    old["hksim_version"] = "0.0.1".into();
    fs::write(bench.path("old.json"), old.to_string()).expect("a file");
    assert!(bench.refused("merge old.json 2.json 3.json").contains("written by hksim 0.0.1"));
    for line in
        ["sweep rm.hkt --shard 1/2", "sweep rm.hkt --shard 3/2 --format json", "sweep rm.hkt --shard 0/2 --format json"]
    {
        bench.refused(line);
    }
}

/// Lines of a journal that are complete.
fn journal_lines(bench: &Bench) -> usize {
    fs::read(bench.path("j.jsonl")).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count())
}

#[test]
fn a_killed_sweep_resumes_with_the_rows_that_it_had() {
    let bench = two_traces();
    bench.ok("gen server --live 16M --threads 2 --events 400k -o long.hkt");
    let line = "sweep rm.hkt long.hkt --superslab 256K,512K,1M,2M,4M --slab 16K,32K,64K --huge";
    let single = bench.ok(&format!("{line} --format json"));
    let mut killed: Command = bench.command(&format!("{line} --jobs 1 --resume j.jsonl"));
    let mut child = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hksim starts");
    let started = Instant::now();
    while journal_lines(&bench) < 10 {
        assert!(started.elapsed() < Duration::from_secs(60), "the journal grows");
        assert_eq!(child.try_wait().expect("a child"), None, "the sweep ended before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    // SIGKILL, to this child only.
    child.kill().expect("the child is killed");
    child.wait().expect("the child ends");
    let before = journal_lines(&bench);
    assert!((10..91).contains(&before), "{before} lines of 91");
    // The last line is torn.
    let mut text = fs::read(bench.path("j.jsonl")).expect("the journal");
    text.truncate(text.len() - 5);
    fs::write(bench.path("j.jsonl"), &text).expect("the journal");
    let kept: Vec<u8> = text[..=text.iter().rposition(|&byte| byte == b'\n').expect("a line")].to_vec();

    let resumed = bench.ok(&format!("{line} --resume j.jsonl --format json"));
    assert_eq!(without_elapsed(&resumed), without_elapsed(&single));
    let after = fs::read(bench.path("j.jsonl")).expect("the journal");
    assert!(after.starts_with(&kept), "finished rows are kept");
    assert_eq!(journal_lines(&bench), 91, "a head and 90 rows");

    // Nothing is simulated a third time: all rows, even their times, come from the journal.
    let again = bench.ok(&format!("{line} --resume j.jsonl --format json"));
    assert_eq!(again, resumed);
    assert_eq!(fs::read(bench.path("j.jsonl")).expect("the journal"), after);
}

#[test]
fn the_journal_of_another_sweep_is_refused() {
    let bench = two_traces();
    bench.ok("sweep rm.hkt --huge --resume j.jsonl");
    for line in ["sweep rm.hkt --huge never --resume j.jsonl", "sweep server.hkt --huge --resume j.jsonl"] {
        assert!(bench.refused(line).contains("j.jsonl: the journal of another sweep"), "{line}");
    }
    // The same name, and another content.
    bench.ok("gen random-mixed --cycles 20k --ws 400 --min 100 --max 3k --seed 7 -o rm.hkt");
    assert!(bench.refused("sweep rm.hkt --huge --resume j.jsonl").contains("the journal of another sweep"));
    fs::write(bench.path("notes.txt"), "my notes").expect("a file");
    assert!(bench.refused("sweep server.hkt --resume notes.txt").contains("not a journal"));
    assert_eq!(fs::read_to_string(bench.path("notes.txt")).expect("the file"), "my notes");
}

#[test]
fn a_shard_resumes_too() {
    let bench = two_traces();
    let line = format!("{SWEEP} --shard 2/3 --format json");
    let first = bench.ok(&format!("{line} --resume j.jsonl"));
    let rows = |text: &str| without_times(serde_json::from_str(text).expect("JSON"));
    assert_eq!(rows(&first), rows(&bench.ok(&line)));
    assert_eq!(bench.ok(&format!("{line} --resume j.jsonl")), first);
}

#[test]
fn shards_on_dask_survive_lost_workers() {
    let python = std::env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let found = Command::new(&python).args(["-c", "import distributed"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} lacks the package distributed (pip install -r notebooks/requirements.txt)");
        return;
    }
    let bench = Bench::new();
    bench.ok("gen server --live 16M --threads 2 --events 400k -o server.hkt");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../notebooks/check_dask.py");
    let arguments = [script.as_ref(), env!("CARGO_BIN_EXE_hksim").as_ref(), bench.folder(), Path::new("server.hkt")];
    let ran = Command::new(&python).args(arguments).current_dir(bench.folder()).output().expect("Python starts");
    let output = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(ran.status.success() && output.contains("killed"), "{output}");
}

#[test]
fn a_row_of_a_shard_has_the_number_of_the_whole_sweep() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --superslab 256K,1M,4M --huge never,thp";
    let whole = without_times(bench.json(line));
    let mut found = 0;
    for number in 1..=2 {
        bench.ok(&format!("{line} --shard {number}/2 --format json -o {number}.json"));
        for row in 0..6 {
            let again = bench.run(&format!("sim rm.hkt --policy {number}.json#{row} --format json"));
            if again.code == Some(0) {
                found += 1;
                let again: Value = serde_json::from_str(&again.stdout).expect("JSON");
                assert_eq!(without_times(again), whole["rows"][row], "row {row} of shard {number}");
            } else {
                let part = format!("this shard does not have row {row} of the sweep");
                assert!(again.stderr.contains(&part), "{}", again.stderr);
            }
        }
    }
    assert_eq!(found, 6, "each row is in one shard");
}
