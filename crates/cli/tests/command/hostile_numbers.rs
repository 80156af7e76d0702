//! Every number of every file that hksim reads, replaced by one that no run gives: the command ends with a result or one
//! message. Debug builds check every sum, so a figure that is used unchecked ends them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hksim_testkit::{Random, test_scale};
use serde_json::Value;

use crate::support::recordings::data;
use crate::support::{Bench, json_of};

/// The numbers, as JSON and TOML write them.
const NUMBERS: [&str; 10] =
    ["0", "1", "4095", "-1", "9223372036854775808", "18446744073709551615", "1e308", "nan", "\"\"", "0.5"];

/// Files of results, each with the commands that read it.
const RESULTS: [(&str, &[&str]); 9] = [
    (
        "sim.json",
        &["report F -o r.html", "plot F -o p.svg", "plot F --figure reasons -o p.svg", "sim t.hkt --policy F"],
    ),
    ("tlb.json", &["report F -o r.html", "plot F --figure miss-curves -o p.svg"]),
    ("sweep.json", &["report F -o r.html", "plot F -o p.svg", "sim t.hkt --policy F#0", "bundle F -o b"]),
    (
        "explain.json",
        &["report F -o r.html", "plot F --figure page-map -o p.svg", "plot F --figure occupancy -o p.svg"],
    ),
    ("advise.json", &["report F -o r.html", "sim t.hkt --policy F#winner"]),
    ("memory.json", &["report F -o r.html", "plot F -o p.svg"]),
    (
        "1.json",
        &["merge F 2.json", "merge F 2.json --format csv", "merge F 2.json --plot p.svg", "sim t.hkt --policy F#0"],
    ),
    ("stored.json", &["check budget.toml"]),
    ("bundle.json", &["repeat ."]),
];

/// Text files, each with the command that reads it.
const TEXTS: [(&str, &str); 6] = [
    ("policy.toml", "sim t.hkt --policy F"),
    ("budget.toml", "check F"),
    ("script.txt", "rules --predict-only --script F"),
    ("counts.csv", "explain --fit F"),
    ("profile.toml", "sweep t.hkt --huge --profile F"),
    ("journal", "sweep t.hkt --huge --resume F"),
];

/// Numbers of a text that are changed in one run of the test; of longer texts, a random choice.
const NUMBERS_OF_TEXT_MAX: usize = 60;

const BUDGET: &str = "result = \"stored.json\"\ntraces = [\"t.hkt\"]\n[design.a]\nvmas = 2\nrss_peak = 5000000\n\
    installs_per_1000_allocations = 100.0\n";

const SCRIPT: &str = "adv HUGEPAGE 0 512\nw 0 1 1\nadv DONTNEED 0 16\nunmap 600 10\nmap 700 20 w -\nremap 700 10 900 0\n\
    resize 800 10 20\nmremap 1000 10 1100 20\nmlock 0 5 -\nfork 0 512 1\nr 0 512 3\nname 0 10 7\n";

/// A folder with every kind of file.
fn files() -> Bench {
    let bench = Bench::new();
    for (name, cycles) in [("t", 600), ("c1", 200), ("c2", 300), ("c3", 400)] {
        bench.ok(&format!("gen random-mixed --cycles {cycles} --ws 40 -o {name}.hkt"));
    }
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/page-operations.hkm");
    for line in [
        "sim t.hkt --format json -o sim.json",
        "sim t.hkt --tlb skylake-sp --format json -o tlb.json",
        "sweep t.hkt --huge --format json -o sweep.json",
        "explain t.hkt --format json -o explain.json",
        "advise t.hkt --huge --format json -o advise.json",
        "sweep t.hkt --huge --shard 1/2 --format json -o 1.json",
        "sweep t.hkt --huge --shard 2/2 --format json -o 2.json",
        &format!("sim {recording} --format json -o memory.json"),
        "bundle sim.json -o study",
        "sweep t.hkt --huge --resume journal",
    ] {
        bench.ok(line);
    }
    fs::copy(data("profile.toml"), bench.path("profile.toml")).expect("a profile");
    fs::write(bench.path("budget.toml"), BUDGET).expect("a budget");
    bench.ok("check budget.toml --update");
    fs::write(bench.path("script.txt"), SCRIPT).expect("a script");
    fs::write(bench.path("counts.csv"), "t.hkt,600\nc1.hkt,200\nc2.hkt,300\nc3.hkt,400\n").expect("counts");
    let policy = json_of(&bench.path("sim.json"))["policy"].clone();
    let lines = policy.as_object().expect("fields").iter().map(|(name, value)| format!("{name} = {value}\n"));
    fs::write(bench.path("policy.toml"), lines.collect::<String>()).expect("a policy");
    // The files of the bundle are beside the others, so that each is changed in the same way.
    fs::copy(bench.path("study/bundle.json"), bench.path("bundle.json")).expect("a manifest");
    fs::create_dir(bench.path("results")).expect("a folder");
    fs::copy(bench.path("study/results/sim.json"), bench.path("results/sim.json")).expect("a result");
    fs::create_dir(bench.path("inputs")).expect("a folder");
    fs::copy(bench.path("study/inputs/t.hkt"), bench.path("inputs/t.hkt")).expect("an input");
    bench
}

/// A command that reads a changed file.
struct Case {
    file: &'static str,
    contents: String,
    command: &'static str,
    /// What was changed.
    place: String,
}

/// The places of the numbers of a JSON value, as JSON pointers. Of the items of a list, only the first.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at.to_string()),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| places(field, &format!("{at}/{name}"), found)),
        Value::Array(items) => items.iter().take(1).for_each(|item| places(item, &format!("{at}/0"), found)),
        _ => (),
    }
}

/// The text with a marker for the number is written first: JSON has no NaN.
fn with_number(value: &Value, place: &str, number: &str) -> String {
    const MARKER: &str = "\"the number\"";
    let mut value = value.clone();
    *value.pointer_mut(place).expect("the place") = serde_json::from_str(MARKER).expect("a text");
    value.to_string().replace(MARKER, number)
}

/// The ranges of the numbers of a text.
fn numbers_of(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, character) in text.char_indices().filter(|(_, character)| character.is_ascii_digit() || *character == '.')
    {
        match found.last_mut().filter(|last| last.end == at) {
            Some(last) => last.end = at + character.len_utf8(),
            None => found.push(at..at + character.len_utf8()),
        }
    }
    found.retain(|range| !text[..range.start].ends_with(|before: char| before.is_alphabetic() || before == '_'));
    found
}

/// The lines of a journal with the checksums of what they are now: a forged journal has right ones.
fn with_checksums(journal: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some((_, json)) if !line.starts_with('{') => format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())),
        _ => format!("{line}\n"),
    };
    journal.lines().map(line).collect()
}

fn cases(bench: &Bench, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    let rounds = test_scale();
    for (file, commands) in RESULTS {
        let value = json_of(&bench.path(file));
        let mut all = Vec::new();
        places(&value, "", &mut all);
        assert!(!all.is_empty(), "{file}");
        for place in all.iter().flat_map(|place| std::iter::repeat_n(place, rounds as usize)) {
            let (number, command) = (random.pick(&NUMBERS), random.pick(commands));
            let contents = with_number(&value, place, number);
            cases.push(Case { file, contents, command, place: format!("{place} = {number}") });
        }
    }
    for (file, command) in TEXTS {
        let text = fs::read_to_string(bench.path(file)).expect("a text");
        let mut ranges = numbers_of(&text);
        while ranges.len() > NUMBERS_OF_TEXT_MAX * rounds as usize {
            ranges.swap_remove(random.below(ranges.len() as u64) as usize);
        }
        for range in ranges.into_iter().flat_map(|range| std::iter::repeat_n(range, 2 * rounds as usize)) {
            let number = random.pick(&NUMBERS);
            let contents = format!("{}{number}{}", &text[..range.start], &text[range.end..]);
            let contents = if file == "journal" { with_checksums(&contents) } else { contents };
            let place = format!("{}{number}", &text[range.start.saturating_sub(30)..range.start]);
            cases.push(Case { file, contents, command, place });
        }
    }
    // A random half, another one in each run; all with HKSIM_TEST_SCALE=2.
    cases.retain(|_| random.below(2) < rounds);
    // Every value of the field whose logarithm was taken unchecked.
    let value = json_of(&bench.path("sim.json"));
    for number in NUMBERS {
        let contents = with_number(&value, "/policy/huge_page_bytes", number);
        cases.push(Case { file: "sim.json", contents, command: "sim t.hkt --policy F", place: number.into() });
    }
    cases
}

/// Runs the command in a folder of its own; what is wrong with how it ended.
fn wrong(bench: &Bench, folder: &Path, case: &Case) -> Option<String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder");
    for entry in fs::read_dir(bench.folder()).expect("the folder").flatten() {
        if entry.path() != folder && entry.file_name() != case.file && entry.file_name() != "work" {
            let target = folder.join(entry.file_name());
            // A bundle has no links.
            if entry.path().is_dir() {
                fs::create_dir(&target).expect("a folder");
                for entry in
                    fs::read_dir(entry.path()).expect("the folder").flatten().filter(|entry| entry.path().is_file())
                {
                    fs::copy(entry.path(), target.join(entry.file_name())).expect("a copy");
                }
            } else {
                fs::copy(entry.path(), target).expect("a copy");
            }
        }
    }
    fs::write(folder.join(case.file), &case.contents).expect("the changed file");
    let line = case.command.replace('F', case.file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_hksim"));
    command.args(line.split(' ')).current_dir(folder).stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
    let ran = command.output().expect("hksim starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    let is_right = match ran.status.code() {
        Some(0 | 1) => !said.contains("panicked"),
        Some(2) => said.starts_with("hksim: ") && said.lines().count() == 1,
        _ => false,
    };
    (!is_right).then(|| format!("{line}, {}: {:?}: {said}", case.place, ran.status))
}

#[test]
fn hostile_numbers_end_no_command() {
    let bench = files();
    let seed = std::env::var("HKSIM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed} (HKSIM_SEED)");
    let cases = cases(&bench, &mut Random::new(seed));
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (bench, cases, next, found) = (&bench, &cases, &next, &found);
            scope.spawn(move || {
                let folder = bench.path("work").join(worker.to_string());
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    found.lock().expect("no thread panics").extend(wrong(bench, &folder, case));
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics");
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), cases.len(), found.join("\n"));
    println!("{} cases", cases.len());
}
