//! `hksim inspect` on this test's own process, and what shows its results.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};

use serde_json::Value;

use crate::support::{Bench, json_of, number};

/// A process that sleeps.
struct Sleeping(Child);

impl Sleeping {
    fn seconds(seconds: &str) -> Self {
        Self(Command::new("sleep").arg(seconds).spawn().expect("sleep starts"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_process_is_shown_as_text_and_json() {
    let (bench, pid) = (Bench::new(), std::process::id());
    let json = bench.json(&format!("inspect {pid} --wait 10ms"));
    assert_eq!(number(&json, "pid"), u64::from(pid));
    let regions = json["regions"].as_array().expect("regions");
    let sum: u64 = regions.iter().map(|region| number(region, "rss_bytes")).sum();
    assert_eq!(sum, number(&json, "rss_bytes"));
    assert!(sum > 0 && json["before"]["waited_s"].as_f64() >= Some(0.01), "{json}");
    assert_eq!(json["before"]["pid"], json["pid"]);
    let text = bench.ok(&format!("inspect {pid}"));
    for part in [&format!("process       {pid} ("), "why not huge", "What would help:", "khugepaged"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let csv = bench.ok(&format!("inspect {pid} --format csv"));
    assert!(csv.lines().count() > regions.len() / 2 && csv.contains("rss_bytes"), "{csv}");
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let said = Bench::new().refused("inspect 4194305");
    assert!(said.contains("there is no process 4194305"), "{said}");
}

#[test]
fn a_first_look_is_shown_although_the_process_then_ends() {
    let (bench, mut sleeping) = (Bench::new(), Sleeping::seconds("2"));
    let pid = sleeping.pid();
    // It is waited for meanwhile, so that it is no zombie.
    let waited = std::thread::spawn(move || sleeping.0.wait());
    let text = bench.ok(&format!("inspect {pid} --wait 3s"));
    waited.join().expect("a thread").expect("its status");
    let shown =
        [format!("process       {pid} (sleep)"), format!("there is no process {pid}"), "What would help:".into()];
    assert!(shown.iter().all(|part| text.contains(part)), "{text}");
    assert!(text.contains("skipped       the second look, after 3."), "{text}");
}

#[test]
fn a_sentence_says_that_nothing_changed() {
    let (bench, sleeping) = (Bench::new(), Sleeping::seconds("60"));
    // khugepaged may end a scan, and the control group meet its limit, at any time.
    let is_said = (0..5).any(|_| {
        let text = bench.ok(&format!("inspect {} --wait 50ms", sleeping.pid()));
        text.trim_end().ends_with("none of the figures has changed.")
    });
    assert!(is_said);
}

/// The area of the map's cells in a picture: filled rectangles beside the addresses.
fn cells_drawn(svg: &str) -> u64 {
    const LEFT: u64 = 118;
    let attribute = |element: &str, name: &str| -> Option<u64> {
        element.split_once(&format!(" {name}=\""))?.1.split('"').next()?.parse().ok()
    };
    let rectangles = svg.split("<rect ").skip(1).map(|rest| rest.split("/>").next().unwrap_or_default());
    let cells = rectangles.filter(|rectangle| attribute(&format!(" {rectangle}"), "x") >= Some(LEFT));
    cells.filter_map(|cell| attribute(cell, "width")).sum::<u64>() / 9
}

/// The cells that a map should have, counted here: empty runs are cut, reservations left out.
fn cells_of(map: &Value) -> u64 {
    let runs = map.as_array().expect("a map").iter();
    let shown = runs.filter(|run| run["obstacle"]["place"] != "not_writable" || number(run, "small_bytes") > 0);
    let addresses = shown.flat_map(|run| {
        let cells = match number(run, "small_bytes") {
            0 if run["way"] != "is_huge" => number(run, "ranges").min(64),
            _ => number(run, "ranges"),
        };
        (0..cells).map(|cell| number(run, "address") + cell * (2 << 20))
    });
    // A range can be in two mappings.
    addresses.collect::<BTreeSet<u64>>().len() as u64
}

#[test]
fn an_inspection_is_drawn_reported_and_bundled() {
    let (bench, pid) = (Bench::new(), std::process::id());
    bench.ok(&format!("inspect {pid} --wait 10ms --format json -o twice.json"));
    bench.ok(&format!("inspect {pid} --format json -o once.json"));
    bench.ok("plot once.json -o once.svg");
    bench.ok("plot twice.json --figure ranges -o twice.svg");
    let read = |name: &str| fs::read_to_string(bench.path(name)).expect("a file");
    let (once, twice) = (json_of(&bench.path("once.json")), json_of(&bench.path("twice.json")));
    assert_eq!(cells_drawn(&read("once.svg")), cells_of(&once["map"]));
    assert_eq!(cells_drawn(&read("twice.svg")), cells_of(&twice["map"]) + cells_of(&twice["before"]["map"]));
    assert!(read("twice.svg").contains("first look") && !read("once.svg").contains("first look"));

    bench.ok("report twice.json -o report.html");
    let html = read("report.html");
    let regions = twice["regions"].as_array().expect("regions").iter();
    let largest =
        regions.map(|region| region["name"].as_str().expect("a name")).find(|name| !name.starts_with("file "));
    for part in
        ["<h2>inspect: twice.json</h2>", "What would help:", "--figure ranges -o ranges.svg", largest.expect("one")]
    {
        assert!(html.contains(part), "{part}");
    }
    for remedy in twice["remedies"].as_array().expect("remedies") {
        let sentence = remedy["sentence"].as_str().expect("a sentence");
        assert!(html.contains(sentence), "{sentence}");
    }
    assert!(html.contains("which cannot be repeated") && !html.contains("Repeat the result"));

    bench.ok("bundle twice.json -o study");
    for file in ["results/twice.json", "figures/twice-ranges.svg", "report.html"] {
        assert!(bench.path("study").join(file).is_file(), "{file}");
    }
    let runs = |look: &Value| look["map"].as_array().expect("a map").len();
    let rows = read("study/figures/twice-ranges.csv").lines().count() - 1;
    assert_eq!(rows, runs(&twice) + runs(&twice["before"]));
    let repeated = bench.json("repeat study");
    assert_eq!((number(&repeated, "skipped"), number(&repeated, "different")), (1, 0), "{repeated}");
    let reason = &repeated["results"][0]["parts"][0]["outcome"]["skipped"]["reason"];
    assert_eq!(reason, "inspected: the process cannot be repeated");
}
