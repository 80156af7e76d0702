//! `hksim report` and the figures of `hksim plot`; in a browser, if one is installed.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Bench, commands_of, json_of, number, without_times};

/// Results of every kind that a report takes.
fn results() -> Bench {
    let bench = Bench::with_trace();
    for (command, file) in [
        ("sweep rm.hkt --superslab 256K,1M --huge never,thp", "sweep.json"),
        ("explain rm.hkt --huge never --purge-delay 0 --purge-spans yes --against default", "explain.json"),
        ("sim rm.hkt --huge never --tlb zen4", "sim.json"),
        ("advise rm.hkt --huge never,thp", "advise.json"),
    ] {
        bench.ok(&format!("{command} --format json -o {file}"));
    }
    // Its exit status depends on the machine.
    bench.run("validate rm.hkt --huge never --format json -o validate.json");
    bench.ok("report sweep.json explain.json sim.json advise.json validate.json -o report.html");
    bench
}

fn report(bench: &Bench) -> String {
    fs::read_to_string(bench.path("report.html")).expect("a report")
}

fn json(bench: &Bench, name: &str) -> Value {
    json_of(&bench.path(name))
}

#[test]
fn a_report_has_every_result_and_needs_no_other_file() {
    let bench = results();
    let html = report(&bench);
    for kind in ["sweep", "explain", "sim", "advise", "validate"] {
        assert!(html.contains(&format!("<h2>{kind}: {kind}.json</h2>")), "{kind}");
    }
    for reference in ["<link", "src=", "url(", "@import", "fetch("] {
        assert!(!html.contains(reference), "{reference}");
    }
    let sentence = json(&bench, "explain.json")["causes"][0]["sentence"].as_str().expect("a sentence").to_string();
    assert!(html.contains(&sentence), "{sentence}");
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    for figure in ["huge", "page-map", "occupancy", "reasons", "classes", "tlb", "designs"] {
        assert!(html.contains(&format!("--figure {figure} -o {figure}.svg")), "{figure}");
    }
}

#[test]
fn the_commands_of_a_report_repeat_its_results() {
    let bench = results();
    bench.ok("gen random-mixed --cycles 9k --ws 90 --warmup 1k -o marked.hkt");
    fs::write(bench.path("budget.toml"), BUDGET).expect("a budget");
    fs::write(bench.path("p.toml"), "superslab_bytes = 1048576\n").expect("a policy");
    for (command, file) in [
        ("sim rm.hkt --fork-at 100 --fork-for 9k --tlb zen4 --touch all", "f.json"),
        ("explain marked.hkt --header full --against p.toml+huge=never --per main --causes 1", "m.json"),
        ("sweep rm.hkt --preset default,hakmem --goal rss", "a b.json"),
        ("check budget.toml", "check.json"),
    ] {
        let words = command.split(' ').chain(["--format", "json", "-o", file]);
        bench.command("").args(words).output().expect("hksim starts");
    }
    let files = ["f.json", "m.json", "a b.json", "check.json", "advise.json"];
    bench.command("report").args(files).args(["-o", "report.html"]).output().expect("hksim starts");
    fs::remove_file(bench.path("p.toml")).expect("a policy");
    let html = report(&bench);
    let lines = commands_of(&html, "Repeat the result");
    assert_eq!(lines.len(), files.len());
    for (line, file) in lines.iter().zip(files) {
        let before = without_times(json(&bench, file));
        fs::remove_file(bench.path(file)).expect("a result");
        let ran = bench.shell("", line);
        assert!(matches!(ran.code, Some(0 | 1)), "{line}: {}", ran.stderr);
        assert_eq!(without_times(json(&bench, file)), before, "{line}");
    }
    for line in commands_of(&html, "Repeat") {
        let ran = bench.shell("", &line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    }
    let refused = bench.refused("report f.json -o report.txt");
    assert!(refused.contains("ends in .html"), "{refused}");
}

#[test]
fn filled_areas_of_the_page_map_have_no_gaps() {
    let bench = Bench::with_trace();
    bench.ok("explain rm.hkt --huge never --causes 0 --format json -o e.json");
    bench.ok("plot e.json --figure page-map -o map.png");
    bench.ok("plot e.json --figure page-map -o map.svg");
    let script = "import sys; sys.path.insert(0, sys.argv[1]); import png\n\
                  w, h, lines = png.decoded(sys.argv[2]); at = lambda x, y: tuple(lines[y][3*x:3*x+3])\n\
                  column = [at(w - 80, y) for y in range(h)]; blue = (86, 180, 233)\n\
                  print(max(map(len, ''.join('b' if c == blue else ' ' for c in column).split() or [''])))";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle");
    let python = std::env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let Ok(ran) = Command::new(python).args(["-c", script, folder]).arg(bench.path("map.png")).output() else {
        return eprintln!("skipped: python3 is not installed");
    };
    let longest: u32 = String::from_utf8_lossy(&ran.stdout).trim().parse().expect("a length");
    assert!(longest > 40, "the longest run of resident pixels has {longest}");
    let svg = fs::read_to_string(bench.path("map.svg")).expect("a picture");
    assert!(svg.contains("untouched"), "white is in the key");
}

#[test]
fn a_section_says_what_its_designs_are() {
    let bench = Bench::with_trace();
    bench.ok("sweep rm.hkt --huge never --format json -o one.json");
    bench.run("validate rm.hkt --huge never --superslab 1M,2M --format json -o two.json");
    bench.ok("report one.json two.json -o report.html");
    let html = report(&bench);
    let sections: Vec<&str> = html.split("<section>").skip(1).collect();
    assert!(sections[0].contains("The live set needs at least"), "a single design has words, too");
    assert!(sections[1].contains(">superslab</th>") && sections[1].contains(">1M</td>"), "the flags that differ");
    assert!(!sections[1].contains(">huge</th>"), "no other flags");
}

#[test]
fn hugetlb_counts_as_huge_pages() {
    let bench = Bench::with_trace();
    bench.ok("sim rm.hkt --huge hugetlb --format json -o h.json");
    let samples = json(&bench, "h.json")["timeline"].clone();
    let most = samples.as_array().expect("samples").iter().map(|sample| number(sample, "hugetlb_bytes")).max();
    assert_eq!(most, Some(number(&json(&bench, "h.json"), "hugetlb_bytes_peak")));
    bench.ok("plot h.json --figure huge -o h.svg");
    bench.ok("sim rm.hkt --huge never --format json -o n.json");
    let none = bench.refused("plot n.json --figure huge -o n.svg");
    assert!(none.contains("ever has memory in huge pages"), "{none}");
}

#[test]
fn every_figure_is_drawn_and_a_missing_one_is_named() {
    let bench = results();
    for (result, figure) in [
        ("sweep", "designs"),
        ("sweep", "huge"),
        ("explain", "page-map"),
        ("explain", "occupancy"),
        ("explain", "reasons"),
        ("explain", "classes"),
        ("sim", "tlb"),
    ] {
        bench.ok(&format!("plot {result}.json --figure {figure} -o {figure}.svg"));
        let svg = fs::read_to_string(bench.path(&format!("{figure}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("<text"), "{figure}");
        bench.ok(&format!("plot {result}.json --figure {figure} -o {figure}.png"));
        assert_same_picture(&bench, figure);
    }
    bench.ok("info rm.hkt --plot info.svg");
    bench.ok("info rm.hkt --plot info.PNG");
    fs::rename(bench.path("info.PNG"), bench.path("info.png")).expect("the picture");
    assert_same_picture(&bench, "info");
    let missing = bench.refused("plot sweep.json --figure page-map -o none.svg");
    assert!(missing.contains("no data for --figure page-map"), "{missing}");
    let pdf = bench.refused("plot sweep.json -o none.pdf");
    assert!(pdf.contains("ends in .svg or .png"), "{pdf}");
}

/// A budget that one design breaks.
const BUDGET: &str = "result = \"stored.json\"\ntraces = [\"rm.hkt\"]\n[design.roomy]\nrss_peak = \"1G\"\n\
                      [design.tight]\npolicy = \"default+huge=never\"\nrss_peak = \"4K\"\nvmas = 9\n";

#[test]
fn memory_recordings_and_budgets_are_reported() {
    let bench = results();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm");
    for (command, file) in [
        (format!("sim {recording} --thp madvise --mthp 64K=always --advise heap --zero-page off"), "sim.json"),
        (format!("sweep {recording} --thp never,always --advise none,>=1M"), "sweep.json"),
    ] {
        bench.ok(&format!("{command} --format json -o {file}"));
    }
    fs::write(bench.path("budget.toml"), BUDGET).expect("a budget");
    assert_eq!(bench.run("check budget.toml --format json -o check.json").code, Some(1));
    // Whatever this machine can measure, each row has a verdict.
    bench.run(&format!("validate {recording} --run-recorded --thp always --format json -o measured.json"));
    bench.ok("report sim.json sweep.json check.json measured.json -o report.html");
    let html = report(&bench);
    let sections: Vec<&str> = html.split("<section>").skip(1).collect();
    let table =
        bench.ok(&format!("sim {recording} --thp madvise --mthp 64K=always --advise heap --zero-page off --wide"));
    let obstacles = table.split("why not huge").nth(1).expect("a table").lines().skip(2).take(2);
    for cell in obstacles.flat_map(|line| line.split("  ")).map(str::trim).filter(|cell| !cell.is_empty()) {
        assert!(sections[0].contains(&format!(">{cell}</td>")), "{cell}");
    }
    let peak = json(&bench, "sim.json")["rss_bytes_peak"].as_u64().expect("a peak");
    assert!(sections[0].contains(&format!("peak RSS {:.1} MiB", peak as f64 / f64::from(1 << 20))), "{peak}");
    assert!(sections[0].contains("<svg") && sections[1].contains("<svg"), "recordings have timelines");
    let outside = table.lines().find(|line| line.starts_with("not modelled: ")).expect("traps outside the model");
    let other = format!("{recording}: {outside}");
    assert!(sections[0].contains(&format!("<p>{outside}</p>")) && sections[1].contains(&other), "{outside}");
    let today = std::process::Command::new("date").args(["-u", "+%F"]).output().expect("date");
    let today = String::from_utf8_lossy(&today.stdout).trim().to_string();
    for section in &sections[..2] {
        let about = section.split("<p class=\"about\">").nth(1).expect("what it is about").split("</p>").next();
        let parts = ["python3", "recorded on Linux 6.18", &format!("result of {}", &today[..7])];
        assert!(parts.iter().all(|part| about.is_some_and(|about| about.contains(part))), "{about:?}");
    }
    let rows = json(&bench, "sweep.json");
    let installs = |row: &Value| number(row, "installs.total");
    let fewest = rows["rows"].as_array().expect("rows").iter().map(installs).min().expect("a row");
    let told = sections[1].split_once("Fewest installs: ").expect("words").1.split(" installs").next();
    assert!(told.is_some_and(|words| words.replace(' ', "").ends_with(&format!(":{fewest}"))), "{told:?} {fewest}");
    assert!(sections[2].contains("The budget is broken") && sections[2].contains("broken: tight on rm.hkt"));
    assert_eq!(sections[2].matches("<tr class=\"failed\">").count(), 1, "one limit is broken");
    let verdict = json(&bench, "measured.json")["verdict"].as_str().expect("a verdict").to_string();
    assert!(sections[3].contains(&format!("Verdict: {verdict}")) && sections[3].contains("thp always"), "{verdict}");
    let lines = commands_of(&html, "Repeat the result");
    assert_eq!(lines.len(), 4, "of each result");
    for (line, file) in lines.iter().zip(["sim.json", "sweep.json"]) {
        let before = without_times(json(&bench, file));
        assert_eq!(bench.shell("", line).code, Some(0), "{line}");
        assert_eq!(without_times(json(&bench, file)), before, "{line}");
    }
    assert!(
        sections[1].contains(">always default") || !sections[1].contains("128K=never"),
        "sizes as flags write them"
    );
}

#[test]
fn a_report_has_what_khugepaged_leaves_lazyfree_and_who_asked_for_huge_pages() {
    let bench = Bench::new();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm");
    bench.ok(&format!("sim {recording} --thp always --khugepaged settled --format json -o sim.json"));
    bench.ok(&format!("sweep {recording} --thp never,always --khugepaged settled --format json -o sweep.json"));
    let mut sim = json(&bench, "sim.json");
    let settled = sim["khugepaged_settled"].clone();
    // The recording has neither.
    sim["lazy_free_bytes_end_max"] = 8_388_608.into();
    let adviser = serde_json::json!({"caller": "grow_pool", "stack": ["grow_pool"], "calls": 7, "bytes_advised": 4_194_304,
        "huge_pages_installed": 2});
    sim["advisers"] = serde_json::json!([adviser]);
    fs::write(bench.path("sim.json"), sim.to_string()).expect("a file");
    bench.ok("report sim.json sweep.json -o report.html");
    let html = report(&bench);
    let sections: Vec<&str> = html.split("<section>").skip(1).collect();
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let rss = mebibytes(number(&settled, "rss_bytes"));
    let words =
        format!("once khugepaged has scanned everything: RSS {rss}, {} huge pages", number(&settled, "huge_pages"));
    assert!(sections[0].contains(&words), "{words}");
    assert!(sections[0].contains("at most 8.0 MiB are LazyFree"));
    assert!(sections[0].contains(">grow_pool</td>") && sections[0].contains("who asked for huge pages"));
    assert!(sections[1].contains("settled RSS"));
    for row in json(&bench, "sweep.json")["rows"].as_array().expect("rows") {
        let rss = mebibytes(number(row, "khugepaged_settled.rss_bytes"));
        assert!(sections[1].contains(&format!("data-column=\"settled RSS\">{rss}</td>")), "{rss}");
    }
}

#[test]
fn what_a_report_does_not_show_is_refused_with_what_it_shows() {
    let bench = Bench::with_trace();
    bench.ok("info rm.hkt --format json -o info.json");
    fs::write(bench.path("other.json"), "{\"a\": 1}").expect("a file");
    for file in ["info.json", "other.json"] {
        let message = bench.refused(&format!("report {file} -o none.html"));
        assert!(
            message.contains("sim, sweep, explain, validate, advise, check, compare, trial or inspect"),
            "{message}"
        );
        assert!(message.contains(file) && message.contains("memory recordings"), "{message}");
    }
    fs::write(bench.path("damaged.json"), "{\"is_within\": true, \"rows\": [{\"trace\": 1}]}").expect("a file");
    let message = bench.refused("report damaged.json -o none.html");
    assert!(message.contains("damaged.json: `rows` are damaged"), "{message}");
    assert!(!bench.path("none.html").exists());
}

/// The values of an attribute of an element.
fn attribute<'a>(element: &'a str, name: &str) -> &'a str {
    let start = format!(" {name}=\"");
    let value = element.split_once(&start).and_then(|(_, rest)| rest.split_once('"'));
    value.unwrap_or_else(|| panic!("no {name} in {element}")).0
}

/// The designs of a section's scatter: figures, number of the design, and shape with colour of its point.
fn points(section: &str) -> Vec<(String, String, String)> {
    let elements: Vec<&str> = section.split('<').collect();
    let hits = elements.iter().filter(|element| element.starts_with("circle class=\"hit\""));
    let of_hit = |hit: &&&str| {
        let (x, y) = (attribute(hit, "cx"), attribute(hit, "cy"));
        let is_at = |element: &&&str| {
            element.starts_with("circle cx=") && attribute(element, "cx") == x && attribute(element, "cy") == y
        };
        let point = elements.iter().find(is_at).unwrap_or_else(|| panic!("no point at {x}, {y}"));
        let colour =
            [attribute(point, "fill"), attribute(point, "stroke")].into_iter().find(|colour| *colour != "none");
        let figures = attribute(hit, "data-text").split_once(": ").expect("a name and figures").1;
        (
            figures.to_string(),
            attribute(hit, "data-design").to_string(),
            format!("circle {}", colour.expect("a colour")),
        )
    };
    let mut points: Vec<_> = hits.map(|hit| of_hit(&hit)).collect();
    // The scatter is drawn twice, for wide and for narrow screens.
    points.sort();
    points.dedup();
    points
}

#[test]
fn a_design_has_one_colour_in_all_results_of_a_report() {
    let bench = results();
    // The same designs in another order, after one that the first sweep does not have.
    bench.ok("sweep rm.hkt --superslab 2M,1M,256K --huge thp,never --format json -o other.json");
    bench.ok("explain rm.hkt --superslab 1M --huge never --causes 0 --format json -o one.json");
    bench.ok("report sweep.json other.json one.json -o report.html");
    let html = report(&bench);
    let sections: Vec<&str> = html.split("<section>").skip(1).collect();
    let (first, second) = (points(sections[0]), points(sections[1]));
    assert!(first.len() >= 3 && second.len() > first.len(), "{first:?} {second:?}");
    for (number, design) in first.iter().enumerate() {
        assert!(second.contains(design), "{design:?} is not in {second:?}");
        assert!(first[..number].iter().all(|other| other.2 != design.2), "two designs look alike: {first:?}");
    }
    let one = json(&bench, "one.json");
    let installs = number(&one, "installs.total").to_string();
    let alike = first.iter().find(|(figures, ..)| figures.replace(' ', "").starts_with(&format!("{installs}installs")));
    let (_, design, look) = alike.expect("the sweep has the explained design");
    assert_eq!(attribute(sections[2].split_once("polyline class=\"hit\"").expect("a line").1, "data-design"), design);
    let bars = sections[2].split_once("Installs by reason</h3>").expect("bars").1;
    let colour = look.split_once(' ').expect("a colour").1;
    assert!(bars.split_once("</figure>").expect("a figure").0.contains(colour), "the bars are not {colour}");
}

/// Compares NAME.png with NAME.svg, by a program that decodes both on its own.
fn assert_same_picture(bench: &Bench, name: &str) {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/png.py");
    let python = std::env::var("HKSIM_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let files = ["png", "svg"].map(|ending| bench.path(&format!("{name}.{ending}")));
    let Ok(ran) = Command::new(python).arg(oracle).args(files).output() else {
        return eprintln!("skipped: python3 is not installed");
    };
    let [found, why] = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ran.status.success(), "{name}: {found}{why}");
}

#[test]
fn the_drawn_maximum_of_a_timeline_is_the_peak() {
    let bench = results();
    for row in json(&bench, "sweep.json")["rows"].as_array().expect("rows") {
        let samples = row["timeline"].as_array().expect("samples");
        let most = samples.iter().map(|sample| number(sample, "rss_bytes_peak")).max();
        assert_eq!(most, Some(number(row, "rss_bytes_peak")));
        assert_eq!(number(&samples[0], "event"), 0);
        assert!(samples.windows(2).all(|pair| number(&pair[0], "time_ns") <= number(&pair[1], "time_ns")));
    }
}

/// What is highlighted with a design.
const POINTED: &str = "button,circle,circle,polyline,polyline,polyline,polyline";

/// What a reader cannot read: text of figures that is too small, cut off or covers other text.
const LAYOUT: &str = r#"<script>
const faults = [];
const figures = [...document.querySelectorAll("figure svg")].filter((svg) => svg.getClientRects().length > 0);
figures.forEach((svg, number) => {
  const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
  const texts = [...svg.querySelectorAll("text")].map((one) => ({
    name: `figure ${number}: ${one.textContent.trim()}`,
    px: parseFloat(one.getAttribute("font-size")) * scale,
    box: one.getBoundingClientRect(),
  }));
  texts.forEach(({ name, px, box }, index) => {
    if (px < 11) faults.push(`${name}: ${px} pixels`);
    if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom) {
      faults.push(`${name}: cut off`);
    }
    texts.slice(0, index).forEach((other) => {
      const width = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const height = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
      if (width > 1 && height > 4) faults.push(`${name}: covers ${other.name}`);
    });
  });
});
const cells = [...document.querySelectorAll("td, p, h2, li")].filter((one) => one.getClientRects().length > 0);
cells.filter((one) => one.getBoundingClientRect().right > innerWidth + 1).forEach((one) => faults.push(`outside: ${one.textContent}`));
const page = { width: innerWidth, scroll: document.documentElement.scrollWidth, shown: figures.length, all: document.querySelectorAll("figure").length };
document.body.innerHTML = "";
document.body.dataset.seen = JSON.stringify({ faults, page });
</script>"#;

/// What a reader does, as a script in the page: points at a design, clicks it, leaves it. Writes what happened into the
/// page.
const READER: &str = r#"<script>
const sections = [...document.querySelectorAll("section")].filter((one) => one.querySelector("circle.hit"));
const done = sections.map((section) => {
  const point = section.querySelector("circle.hit");
  const lit = () => [...section.querySelectorAll(".on")].map((one) => one.tagName.toLowerCase()).sort().join();
  point.dispatchEvent(new Event("pointerenter"));
  const pointed = lit(), said = section.querySelector(".said").textContent;
  point.dispatchEvent(new Event("pointerleave"));
  const left = lit();
  point.dispatchEvent(new Event("click"));
  point.dispatchEvent(new Event("pointerleave"));
  const pinned = lit();
  point.dispatchEvent(new Event("click"));
  return { pointed, said, text: point.dataset.text, left, pinned, after: lit() };
});
const page = { width: innerWidth, scroll: document.documentElement.scrollWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches };
const figure = getComputedStyle(document.querySelector("figure svg")).filter;
document.body.innerHTML = "";
document.body.dataset.seen = JSON.stringify({ done, page, figure });
</script>"#;

/// Chromium without a screen, network or previous profile.
fn chromium(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = Command::new("chromium");
    let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"];
    command.args(quiet).args(["--disable-background-networking", "--disable-component-update"]);
    command.arg(format!("--user-data-dir={}", bench.path("profile").display()));
    command.args(arguments).current_dir(bench.folder());
    command
}

fn has_chromium() -> bool {
    Command::new("chromium").arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// What the reader saw.
fn seen(bench: &Bench, arguments: &[&str]) -> Value {
    let page = format!("file://{}", bench.path("read.html").display());
    let ran = chromium(bench, arguments).args(["--dump-dom", &page]).output().expect("chromium starts");
    let text = String::from_utf8_lossy(&ran.stdout).replace("&quot;", "\"").replace("&amp;", "&");
    let seen = text.split_once("data-seen=\"").and_then(|(_, rest)| rest.rsplit_once("\">")).map(|(seen, _)| seen);
    let seen = seen.unwrap_or_else(|| panic!("nothing was seen: {text} {}", String::from_utf8_lossy(&ran.stderr)));
    let end = seen.rfind('}').expect("an object");
    serde_json::from_str(&seen[..=end]).unwrap_or_else(|why| panic!("{why}: {seen}"))
}

/// A window that is narrower than the browser's own windows can be: the page is in a frame of this width.
fn framed(bench: &Bench, width: u32, page: &str) {
    let page = (page.to_string() + LAYOUT).replace('&', "&amp;").replace('"', "&quot;");
    let outer = format!(
        "<body style=\"margin:0\"><iframe style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{page}\"></iframe><script>\
         onload = () => {{ document.body.dataset.seen = document.querySelector('iframe').contentDocument.body.dataset.seen;\
         document.body.innerHTML = ''; }};</script>"
    );
    fs::write(bench.path("read.html"), outer).expect("a page");
}

#[test]
fn all_text_of_figures_can_be_read_on_phones_and_desks() {
    if !has_chromium() {
        return eprintln!("skipped: chromium is not installed (apt install chromium)");
    }
    let bench = results();
    // Long names of settings.
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm");
    bench.ok(&format!(
        "sweep {recording} --thp never,always --mthp 64K=always,16K=madvise/128K=always,32K=madvise --format json -o memory.json"
    ));
    bench.ok("report sweep.json explain.json sim.json advise.json validate.json memory.json -o report.html");
    for width in [390, 500, 760, 800, 1200] {
        framed(&bench, width, &report(&bench));
        let seen = seen(&bench, &["--window-size=1300,900", "--hide-scrollbars"]);
        assert_eq!(seen["faults"], Value::Array(Vec::new()), "at {width} pixels");
        assert_eq!(number(&seen, "page.width"), u64::from(width));
        assert_eq!(number(&seen, "page.scroll"), u64::from(width), "the page scrolls sideways");
        assert_eq!(seen["page"]["shown"], seen["page"]["all"], "each figure is shown once");
        assert!(number(&seen, "page.all") > 8, "{seen}");
    }
}

#[test]
fn all_columns_fit_on_paper() {
    if !has_chromium() {
        return eprintln!("skipped: chromium is not installed (apt install chromium)");
    }
    let bench = results();
    fs::write(bench.path("budget.toml"), BUDGET).expect("a budget");
    bench.run("check budget.toml --format json -o check.json");
    bench.ok("report check.json validate.json sweep.json -o report.html");
    // The style of paper, as wide as A4 between margins of 1 cm.
    let paper = report(&bench).replace("@media screen", "@media speech").replace("@media print", "@media screen");
    framed(&bench, 718, &paper);
    let seen = seen(&bench, &["--window-size=1300,900", "--hide-scrollbars"]);
    let is_outside = |fault: &&Value| fault.as_str().is_some_and(|fault| fault.starts_with("outside"));
    let outside: Vec<&Value> = seen["faults"].as_array().expect("faults").iter().filter(is_outside).collect();
    assert!(outside.is_empty(), "{outside:?}");
    assert_eq!(number(&seen, "page.scroll"), 718, "{seen}");
}

#[test]
fn a_browser_shows_the_report() {
    if !has_chromium() {
        return eprintln!("skipped: chromium is not installed (apt install chromium)");
    }
    let bench = results();
    fs::write(bench.path("read.html"), report(&bench) + READER).expect("a page");
    let phone = seen(&bench, &["--window-size=500,900", "--blink-settings=preferredColorScheme=1"]);
    let done = phone["done"].as_array().expect("sections");
    assert_eq!(done.len(), 1, "only the sweep has several designs");
    for section in done {
        // Its name, and for wide and for narrow screens the point, and the lines of two figures.
        assert_eq!(section["pointed"], POINTED);
        assert_eq!(section["said"], section["text"]);
        assert_eq!((&section["left"], &section["after"]), (&Value::from(""), &Value::from("")));
        assert_eq!(section["pinned"], section["pointed"]);
    }
    assert!(number(&phone, "page.scroll") <= number(&phone, "page.width"), "the page scrolls sideways: {phone}");
    let dark = seen(&bench, &["--blink-settings=preferredColorScheme=0"]);
    assert_eq!((&phone["page"]["dark"], &dark["page"]["dark"]), (&Value::from(false), &Value::from(true)));
    assert_ne!(phone["figure"], dark["figure"], "pictures follow the dark setting");
    let page = format!("file://{}", bench.path("report.html").display());
    let printed = chromium(&bench, &["--print-to-pdf=report.pdf", &page]).output().expect("chromium starts");
    assert!(printed.status.success());
    let pdf = fs::read(bench.path("report.pdf")).expect("a PDF");
    assert!(pdf.starts_with(b"%PDF") && pdf.len() > 10_000, "{} bytes", pdf.len());
}
