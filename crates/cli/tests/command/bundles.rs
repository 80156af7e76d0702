//! Bundles: what they hold, that they repeat elsewhere, and that damage is found.

use std::fs;
use std::path::Path;

use crate::support::{Bench, number};

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
    assert_eq!(counts, [7, 0, 0], "{outcomes}");
    assert_eq!(outcomes["predictions"][2]["place"], "rows[2]");
    // One row alone, as its README says.
    let row = bench.json("sim moved/inputs/rm.hkt --policy moved/results/sweep.json#2");
    let rows: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("moved/results/sweep.json")).expect("a result")).expect("JSON");
    assert_eq!(row["installs"], rows["rows"][2]["installs"]);
    for file in ["README.md", "report.html", "figures/explain-page-map.svg", "figures/fork-tlb.svg"] {
        assert!(bench.path("moved").join(file).is_file(), "{file}");
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
    let column = format!("page_{}", first["first_page"]);
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
    refused("bundle info.json -o new", &["info.json", "no prediction"]);
    bench.ok("gen tiny-hot --cycles 100 -o other.hkt");
    fs::copy(bench.path("other.hkt"), bench.path("study/inputs/rm.hkt")).expect("a copy");
    refused("repeat study", &["inputs/rm.hkt", "checksum"]);
    fs::copy(bench.path("other.hkt"), bench.path("rm.hkt")).expect("a copy");
    refused("bundle sweep.json -o new", &["rm.hkt", "changed"]);
    fs::remove_file(bench.path("rm.hkt")).expect("a file");
    refused("bundle sweep.json -o new", &["rm.hkt", "neither here nor beside"]);
    assert!(!bench.path("new").exists());
    edit(&bench.path("study/bundle.json"), "\"hksim_version\": \"", "\"hksim_version\": \"9.");
    refused("repeat study", &["written by hksim 9."]);
    let left: Vec<_> =
        fs::read_dir(bench.folder()).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".part")), "{left:?}");
}
