//! Bundles: what they hold, that they repeat elsewhere, and that damage is found.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Bench, commands_of, json_of, number, without_times};

/// A bench with results of several commands, bundled in `study`.
fn with_bundle() -> Bench {
    let bench = Bench::with_trace();
    bench.ok("sweep rm.hkt --huge never,thp --superslab 1M,2M --format json -o sweep.json");
    bench.ok("sim rm.hkt --fork-at 5000 --tlb zen4 --format json -o fork.json");
    // Touches of a recording are assumed, so that its prediction has those under every other assumption.
    bench.ok("record -q -o ls.hkt ls");
    bench.ok("sim ls.hkt --format json -o bracket.json");
    bench.ok("explain rm.hkt --preset hakmem --format json -o explain.json");
    bench.ok("bundle sweep.json fork.json bracket.json explain.json -o study");
    bench
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("a file of the bundle");
    assert!(text.contains(from), "{from} is not in {}", path.display());
    fs::write(path, text.replacen(from, to, 1)).expect("the file can be changed");
}

/// The commands in a page's indented lines.
fn commands_of_readme(bench: &Bench, folder: &str) -> Vec<String> {
    let text = fs::read_to_string(bench.path(folder).join("README.md")).expect("a page");
    text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_string).collect()
}

#[test]
fn a_bundle_repeats_without_the_original_files() {
    let bench = with_bundle();
    let before = fs::read(bench.path("sweep.json")).expect("a result");
    assert_eq!(fs::read(bench.path("study/results/sweep.json")).expect("its copy"), before);
    for name in ["rm.hkt", "ls.hkt", "sweep.json", "explain.json"] {
        fs::remove_file(bench.path(name)).expect("the original can be removed");
    }
    fs::rename(bench.path("study"), bench.path("moved")).expect("a bundle can be moved");
    let outcomes = bench.json("repeat moved");
    let counts = ["equal", "different", "skipped"].map(|name| number(&outcomes, name));
    assert_eq!(counts, [4, 0, 0], "{outcomes}");
    assert_eq!(outcomes["results"][0]["parts"][0]["place"], "the result");
    assert_eq!(outcomes["changed_files"], Value::Array(Vec::new()));
    // One row alone, as its README says.
    let row = bench.json("sim moved/inputs/rm.hkt --policy moved/results/sweep.json#2");
    let rows = json_of(&bench.path("moved/results/sweep.json"));
    assert_eq!(row["installs"], rows["rows"][2]["installs"]);
    let single = bench.json("sim moved/inputs/rm.hkt --policy moved/results/explain.json#0");
    assert_eq!(single["policy"], json_of(&bench.path("moved/results/explain.json"))["policy"]);
    for file in ["README.md", "report.html", "figures/explain-page-map.svg", "figures/fork-tlb.svg"] {
        assert!(bench.path("moved").join(file).is_file(), "{file}");
    }
}

#[test]
fn every_command_in_a_bundle_works_in_its_folder() {
    let bench = with_bundle();
    for name in ["rm.hkt", "ls.hkt", "sweep.json", "explain.json"] {
        fs::remove_file(bench.path(name)).expect("the original can be removed");
    }
    fs::rename(bench.path("study"), bench.path("moved")).expect("a bundle can be moved");
    let readme = commands_of_readme(&bench, "moved");
    assert_eq!(readme.len(), 6, "repeat, four results and one row: {readme:?}");
    let html = fs::read_to_string(bench.path("moved/report.html")).expect("a report");
    let results = commands_of(&html, "Repeat the result");
    assert_eq!(results.len(), 4);
    let figures = commands_of(&html, "Repeat");
    assert!(figures.len() > 8, "{figures:?}");
    for line in readme.iter().chain(&results).chain(&figures) {
        let ran = bench.shell("moved", line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    }
    for name in ["sweep", "fork", "bracket", "explain"] {
        let again = without_times(json_of(&bench.path(&format!("moved/{name}.json"))));
        let text = again.to_string().replace("inputs/", "");
        let bundled = without_times(json_of(&bench.path(&format!("moved/results/{name}.json"))));
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), bundled, "{name}");
    }
    assert_eq!(bench.run("repeat moved").code, Some(0), "the commands leave the bundle as it is");
}

/// Sets a value at a place, which must hold another one.
fn falsify(path: &Path, place: &str, value: Value) {
    let mut result = json_of(path);
    let found = result.pointer_mut(place).unwrap_or_else(|| panic!("{place} is not in {}", path.display()));
    assert_ne!(*found, value, "{place}");
    *found = value;
    fs::write(path, result.to_string()).expect("the file can be changed");
}

#[test]
fn every_falsified_figure_is_found() {
    let bench = with_bundle();
    bench.ok("gen random-mixed --cycles 9k --ws 90 --warmup 1k -o marked.hkt");
    bench.ok("explain marked.hkt --huge never --against hakmem --per main --format json -o marked.json");
    bench.ok("bundle marked.json sweep.json bracket.json -o other");
    for (result, place, value) in [
        ("marked", "/installs_total", 1.into()),
        ("marked", "/by/reason/0/installs", 1.into()),
        ("marked", "/causes/0/installs_after", 99_999.into()),
        ("marked", "/causes/0/sentence", "a lie".into()),
        ("marked", "/per_mark/installs_mean", 0.5.into()),
        ("marked", "/against/installs_total", 1.into()),
        ("marked", "/occupancy/0/live_bytes/5", 1.into()),
        ("marked", "/page_map/cell_pages", 99.into()),
        ("marked", "/timeline/2/rss_bytes", 1.into()),
        ("sweep", "/answers/per_trace/0/text", Value::Null),
        ("sweep", "/pareto/0", 9.into()),
        ("sweep", "/rows/1/hksim_version", "0.0.1".into()),
        ("bracket", "/by_touch_rule", Value::Null),
    ] {
        let path = bench.path(&format!("other/results/{result}.json"));
        let before = fs::read(&path).expect("a result");
        falsify(&path, place, value);
        let outcomes = bench.run("repeat other");
        let field = place.trim_start_matches('/').split('/').next().expect("a field");
        // A result of another version is refused, the others are compared.
        let is_named = outcomes.stdout.contains(field) && outcomes.stdout.contains("1 different");
        assert!(outcomes.code == Some(1) && is_named || outcomes.code == Some(2), "{place}: {}", outcomes.stdout);
        fs::write(&path, before).expect("the file can be changed");
    }
    assert_eq!(bench.run("repeat other").code, Some(0));
}

#[test]
fn changed_files_are_named() {
    let bench = with_bundle();
    fs::write(bench.path("study/report.html"), "another").expect("a file");
    fs::remove_file(bench.path("study/figures/fork-tlb.svg")).expect("a figure");
    let ran = bench.run("repeat study");
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    for file in ["report.html", "figures/fork-tlb.svg"] {
        assert!(ran.stdout.contains(&format!("changed since the bundle was written: {file}")), "{}", ran.stdout);
    }
    assert!(ran.stdout.contains("4 equal"), "{}", ran.stdout);
}

#[test]
fn advice_policy_files_and_memory_recordings_are_bundled() {
    let bench = Bench::with_trace();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm");
    fs::copy(recording, bench.path("job.hkm")).expect("a recording");
    fs::write(bench.path("p.toml"), "superslab_bytes = 1048576\n").expect("a policy");
    for (command, file) in [
        ("sim job.hkm --thp always", "one.json"),
        ("sweep job.hkm --thp never,always --mthp 64K=always", "many.json"),
        ("advise rm.hkt --huge never,thp", "advice.json"),
        ("sim rm.hkt --policy p.toml --huge never", "file.json"),
    ] {
        bench.ok(&format!("{command} --format json -o {file}"));
    }
    bench.ok("bundle one.json many.json advice.json file.json -o study");
    for name in ["job.hkm", "p.toml", "rm.hkt"] {
        fs::remove_file(bench.path(name)).expect("the original can be removed");
    }
    let outcomes = bench.json("repeat study");
    assert_eq!(number(&outcomes, "equal"), 4, "{outcomes}");
    falsify(&bench.path("study/results/one.json"), "/traps", 1.into());
    let ran = bench.run("repeat study");
    assert!(ran.code == Some(1) && ran.stdout.contains("traps is "), "{}", ran.stdout);
    let readme = commands_of_readme(&bench, "study");
    assert!(readme.iter().any(|line| line.contains("--superslab 1M")), "{readme:?}");
}

#[test]
fn two_inputs_of_one_name_are_kept_apart() {
    let bench = Bench::with_trace();
    fs::create_dir(bench.path("b")).expect("a folder");
    bench.ok("gen tiny-hot --cycles 100 -o b/rm.hkt");
    bench.ok("sweep rm.hkt b/rm.hkt --huge never,thp --format json -o two.json");
    bench.ok("bundle two.json -o study");
    assert_eq!(number(&bench.json("repeat study"), "equal"), 1);
}

#[test]
fn what_is_measured_is_not_compared_and_said() {
    let bench = Bench::with_trace();
    bench.run("validate rm.hkt --huge never --format json -o measured.json");
    bench.ok("bundle measured.json -o study");
    let ran = bench.run("repeat study");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for field in ["rows.measured", "rows.verdict", "verdict"] {
        assert!(ran.stdout.contains(field), "{}", ran.stdout);
    }
}

#[test]
fn the_data_of_a_figure_is_that_of_the_result() {
    let bench = with_bundle();
    let explained: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("explain.json")).expect("a result")).expect("JSON");
    let script = "import csv, json, sys; print(json.dumps(list(csv.DictReader(open(sys.argv[1])))))";
    let rows = |name: &str| -> Vec<serde_json::Value> {
        let python = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(bench.path(&format!("study/figures/{name}.csv")))
            .output()
            .expect("python3");
        serde_json::from_slice(&python.stdout).expect("rows")
    };
    let total: u64 = rows("explain-installs-by")
        .iter()
        .filter(|row| row["by"] == "reason")
        .map(|row| row["installs"].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a count"))
        .sum();
    assert_eq!(total, number(&explained, "installs_total"));
    let map = rows("explain-page-map");
    let times = explained["page_map"]["times_ns"].as_array().expect("times");
    assert_eq!(map.len(), times.len());
    let first = &explained["page_map"]["rows"][1];
    let width = map[0].as_object().expect("a row").keys().map(String::len).max().expect("columns") - "page_".len();
    let column = format!("page_{:0>width$}", first["first_page"].to_string());
    let states: String = map.iter().map(|row| row[&column].as_str().expect("a state")).collect();
    assert_eq!(states, first["states"].as_str().expect("states"));
    assert_eq!(rows("sweep-designs").len(), 4);
    let samples = explained["timeline"].as_array().expect("samples").len();
    assert_eq!(rows("explain-timeline").len(), samples);
}

#[test]
fn a_changed_figure_is_named() {
    let bench = with_bundle();
    let result = bench.path("study/results/sweep.json");
    let rows: serde_json::Value = serde_json::from_slice(&fs::read(&result).expect("a result")).expect("JSON");
    let digest = rows["rows"][1]["placement_digest"].as_str().expect("a digest").to_string();
    edit(&result, &digest, "0123456789abcdef");
    let ran = bench.run("repeat study");
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("placement_digest is") && ran.stdout.contains("1 different"), "{}", ran.stdout);
}

#[test]
fn damaged_and_foreign_bundles_are_refused() {
    let bench = with_bundle();
    let refused = |line: &str, words: &[&str]| {
        let message = bench.refused(line);
        assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
    };
    refused("bundle sweep.json -o study", &["exists already"]);
    refused("bundle nowhere.json -o new", &["nowhere.json"]);
    refused("repeat inputs", &["not a bundle"]);
    bench.ok("info rm.hkt --format json -o info.json");
    refused("bundle info.json -o new", &["info.json", "not a result"]);
    fs::write(bench.path("b.toml"), "result = \"b.json\"\ntraces = [\"rm.hkt\"]\n[design.a]\nvmas = 9\n")
        .expect("a budget");
    bench.ok("check b.toml --format json -o check.json");
    refused("bundle check.json -o new", &["check.json", "budget"]);
    bench.ok("gen tiny-hot --cycles 100 -o other.hkt");
    fs::copy(bench.path("other.hkt"), bench.path("study/inputs/rm.hkt")).expect("a copy");
    refused("repeat study", &["inputs/rm.hkt", "checksum"]);
    fs::copy(bench.path("other.hkt"), bench.path("rm.hkt")).expect("a copy");
    refused("bundle sweep.json -o new", &["rm.hkt", "changed"]);
    fs::remove_file(bench.path("rm.hkt")).expect("a file");
    refused("bundle sweep.json -o new", &["rm.hkt", "neither here nor beside"]);
    assert!(!bench.path("new").exists());
    damaged_manifests_are_refused(&bench);
    let left: Vec<_> =
        fs::read_dir(bench.folder()).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".part")), "{left:?}");
}

fn damaged_manifests_are_refused(bench: &Bench) {
    let path = bench.path("study/bundle.json");
    let before = fs::read(&path).expect("a manifest");
    for (place, value, word) in [
        ("/hksim_version", Value::from("9.0.0"), "written by hksim 9.0.0"),
        ("/schema", 3.into(), "schema 3"),
        ("/results", Value::Array(Vec::new()), "lists no results"),
        ("/results/0/file", "../sweep.json".into(), "not in the bundle's folder"),
        ("/results/0/file", "/etc/passwd".into(), "not in the bundle's folder"),
        ("/inputs/0/file", "inputs/../../rm.hkt".into(), "not in the bundle's folder"),
    ] {
        falsify(&path, place, value);
        let message = bench.refused("repeat study");
        assert!(message.contains(word), "{place}: {message}");
        fs::write(&path, &before).expect("a manifest");
    }
    // A command that a result cannot have been made by is not run.
    let result = bench.path("study/results/sweep.json");
    for words in [vec!["run", "--", "touch", "x"], vec!["sweep", "rm.hkt", "--resume", "x"], vec!["sim", "rm.hkt"]] {
        falsify(&result, "/command", words.into());
        assert!(bench.refused("repeat study").contains("command"));
    }
    falsify(&result, "/schema", 99.into());
    assert!(bench.refused("repeat study").contains("schema 99"));
    assert!(bench.refused("report study/results/sweep.json -o new.html").contains("schema 99"));
}
