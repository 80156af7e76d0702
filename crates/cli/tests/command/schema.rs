//! The schema of results: every field of every result is documented, and results of other schemas are refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Bench, recordings};

const PAGES: [&str; 4] =
    ["result-fields.md", "result-fields-tools.md", "result-fields-explore.md", "result-fields-memory.md"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn reference(page: &str) -> String {
    fs::read_to_string(repository().join("docs/reference").join(page)).expect("a page")
}

/// The documented paths, by heading.
fn documented() -> BTreeMap<String, Vec<String>> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in PAGES.map(reference).join("\n").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.replace('`', "");
        } else if let Some((path, _)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")) {
            fields.entry(section.clone()).or_default().push(path.to_string());
        }
    }
    fields
}

/// Whether a documented pattern matches a path. `*` matches one name, or any number of names at the end. The path of an
/// object matches if the paths of its fields do.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), path.split('.').collect());
    let is_open = pattern.last() == Some(&"*");
    let same = pattern.iter().zip(&path).all(|(wanted, name)| *wanted == "*" || wanted == name);
    same && (path.len() <= pattern.len() || is_open)
}

/// The paths of all fields, without list indices.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                paths(field, &path, found);
                found.push(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, path, found)),
        _ => (),
    }
}

/// Checks that the fields of a result are documented. Each part is a prefix of paths and the sections that document the
/// rest of such a path.
fn check(line: &str, result: &Value, parts: &[(&str, &[&str])]) {
    let documented = documented();
    let mut found = Vec::new();
    paths(result, "", &mut found);
    found.sort();
    found.dedup();
    found.retain(|path| {
        let known = parts.iter().any(|(prefix, sections)| {
            let fields = sections.iter().flat_map(|section| documented.get(*section).expect(section));
            path.strip_prefix(prefix).is_some_and(|rest| fields.into_iter().any(|field| matches(field, rest)))
        });
        !known && !parts.iter().any(|(prefix, _)| prefix.starts_with(&format!("{path}.")))
    });
    assert!(found.is_empty(), "{line}: not in docs/reference/{}: {found:?}", PAGES.join(" or "));
    assert_eq!(result["schema"], 2, "{line}");
    assert!(result["hksim_version"].is_string(), "{line}");
}

const ALL: &str = "Every result";
const PREDICTION: &[&str] = &[ALL, "Inputs", "Kernel", "Installs, calls and fallbacks", "Predictions"];
const MEASUREMENT: &[&str] = &[ALL, "Inputs", "Installs, calls and fallbacks", "Measurements"];

#[test]
fn every_field_of_predictions_and_measurements_is_documented() {
    let bench = Bench::with_trace();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/costs.toml"), bench.path("costs.toml"))
        .expect("a profile");
    for line in [
        "sim rm.hkt --tlb zen4 --touch all --purge free --prefault populate",
        "sim rm.hkt --fork-at 5000 --profile costs.toml --header light",
        "sim rm.hkt --align kernel --kernel host",
    ] {
        check(line, &bench.json(line), &[("", PREDICTION)]);
    }
    bench.ok("gen tiny-hot --cycles 100 -o th.hkt");
    for line in ["sweep rm.hkt --huge never,thp --profile costs.toml", "sweep rm.hkt th.hkt --huge --tlb zen4"] {
        let answers: &[&str] = &[ALL, "Predictions", "Answers"];
        check(line, &bench.json(line), &[("", answers), ("rows.", PREDICTION)]);
    }
    let line = "sweep rm.hkt th.hkt --huge --shard 1/2";
    check(line, &bench.json(line), &[("", &[ALL, "Shards"]), ("rows.", PREDICTION)]);
    fs::write(
        bench.path("b.toml"),
        "result = \"b.json\"\ntraces = [\"rm.hkt\"]\ntlb = \"zen4\"\n[design.a]\nvmas = 9\n",
    )
    .expect("a budget");
    let line = format!("inspect {}", std::process::id());
    check(&line, &bench.json(&line), &[("", &[ALL, "inspect"])]);
    for line in ["check b.toml", "check b.toml --update", "check b.toml"] {
        check(line, &bench.json(line), &[("", &[ALL, "check"])]);
    }
    let line = "advise rm.hkt th.hkt --huge never,thp --tlb zen4 --profile costs.toml --format json";
    let limits = ["--limit", "rss +900%", "--limit", "vmas 1000"];
    let output = bench.command(line).args(limits).output().expect("hksim starts");
    let advice = serde_json::from_slice(&output.stdout).expect("JSON");
    check(line, &advice, &[("", &[ALL, "advise"])]);
    bench.ok("gen random-mixed --cycles 9k --ws 90 --warmup 1k -o marked.hkt");
    fs::write(bench.path("p.toml"), crate::times::profile()).expect("a profile");
    let line = "explain marked.hkt --huge never --against hakmem --per main --profile p.toml";
    check(line, &bench.json(line), &[("", PREDICTION), ("", &["explain"])]);
    bench.ok("sim rm.hkt --format json -o sim.json");
    bench.ok("bundle sim.json -o study");
    check("repeat study", &bench.json("repeat study"), &[("", &[ALL, "repeat"])]);
    fs::write(bench.path("counts.csv"), "rm.hkt,100\nth.hkt,9\nmarked.hkt,70\n").expect("counts");
    let line = "explain rm.hkt --on glibc --against glibc:tcache_count=0";
    check(line, &bench.json(line), &[("", &[ALL, "explain --on"])]);
    let line = "explain --fit counts.csv";
    check(line, &bench.json(line), &[("", &[ALL, "explain --fit"])]);
    for on in ["native", "glibc"] {
        let line = format!("replay rm.hkt --on {on}");
        check(&line, &bench.json(&line), &[("", MEASUREMENT)]);
    }
    let rows = ["rows.predicted.", "rows.measured.", "rows."];
    let validation: &[&str] = &[ALL, "Inputs", "Predictions", "Measurements", "Validation"];
    for line in [
        "validate rm.hkt --huge never",
        "validate rm.hkt --mode threaded --runs 2",
        "validate rm.hkt --align trim --profile costs.toml",
    ] {
        let parts = [(rows[0], PREDICTION), (rows[1], MEASUREMENT), (rows[2], validation), ("", validation)];
        // A failed row has the same fields: the exit status does not matter.
        let text = bench.run(&format!("{line} --format json")).stdout;
        check(line, &serde_json::from_str(&text).expect("JSON"), &parts);
    }
    let line = "validate rm.hkt --time --profile p.toml --header none,full --header-bytes 16 --runs 2";
    check(line, &bench.json(line), &[("", &[ALL, "Times of a validation"])]);
    let line = "compare rm.hkt --allocators native,glibc --runs 1";
    check(line, &bench.json(line), &[("", &[ALL, "Inputs", "Comparison"]), ("rows.", &["Inputs"])]);
}

#[test]
fn every_field_of_other_results_is_documented() {
    let bench = Bench::with_trace();
    let tools: &[&str] = &[ALL, "gen and trace"];
    for (line, sections) in [
        ("gen tiny-hot --cycles 100 -o th.hkt", tools),
        ("info rm.hkt --sites", &[ALL, "info", "Quality of a trace"]),
        ("info rm.hkt th.hkt --sites", &[ALL, "info of two traces"]),
        ("trace cut rm.hkt --events 0..100 -o cut.hkt", tools),
        ("trace merge rm.hkt th.hkt -o merged.hkt", tools),
        ("trace scale rm.hkt --size 2 -o scaled.hkt", tools),
        ("trace scale rm.hkt --copies 2 -o scaled.hkt", tools),
        ("trace anonymise rm.hkt -o anonymous.hkt", tools),
        ("trace verify rm.hkt", tools),
        ("trace shrink rm.hkt --keep faults>=1 --tries 2 -o shrunk.hkt", tools),
        ("calibrate --seconds 1 --rounds 1 -o new.toml", &[ALL, "calibrate"]),
        ("rules --random 1", &[ALL, "rules"]),
    ] {
        check(line, &bench.json(line), &[("", sections)]);
    }
    let line = "advise rm.hkt th.hkt --on native,glibc:arena_max=1 --limit rss+900% --runs 1 --seed 1";
    check(line, &bench.json(line), &[("", &[ALL, "advise --on", "advise", "Inputs"])]);
    let line = "trial --allocators native --recording rm.hkt --runs 1 --format json -- cat rm.hkt";
    check(line, &serde_json::from_str(&bench.ok(line)).expect("JSON"), &[("", &[ALL, "trial"])]);
    bench.ok("export cut.hkt --to csv -o cut.csv");
    let line = "import cut.csv -o again.hkt";
    check(line, &bench.json(line), &[("", &[ALL, "import and import --faults", "Quality of a trace"])]);
    fs::write(bench.path("faults.txt"), "t 1/1 1.5: page-faults: 7f0000001000 [unknown] (//anon) 5500 main+0x1 (/t)\n")
        .expect("a script");
    let line = "import --faults faults.txt";
    check(line, &bench.json(line), &[("", &[ALL, "import and import --faults"])]);
    fs::write(bench.path("ops.txt"), "adv HUGEPAGE 0 512\nw 0 1 1\n").expect("a script");
    let line = "rules --script ops.txt --predict-only";
    check(line, &bench.json(line), &[("", &[ALL, "rules"])]);
}

#[test]
fn every_field_of_record_and_run_reports_is_documented() {
    let bench = Bench::new();
    for (line, sections) in [
        ("record -o ls.hkt --format json -- ls /", [ALL, "record", "Quality of a trace"].as_slice()),
        ("run --stats json -- ls /", &[ALL, "run --stats json"]),
    ] {
        let text = bench.run(line).stderr;
        let json = text.find('{').map(|at| &text[at..]).expect("JSON");
        check(line, &serde_json::from_str(json).expect("JSON"), &[("", sections), ("traces.", sections)]);
    }
}

#[test]
fn every_field_of_memory_recordings_is_documented() {
    let bench = recordings::with_recording();
    let prediction: &[&str] = &[ALL, "Kernel", "Predictions of memory recordings"];
    let child = bench.path("ops.hkm.processes/child.hkm");
    for line in [
        "sim ops.hkm --thp always",
        &format!("sim {} --thp never --advise >=1M", child.display()),
        "sweep ops.hkm --thp never,madvise --advise none,all --thp-prctl recorded,disabled",
    ] {
        check(line, &bench.json(line), &[("", prediction), ("rows.", prediction)]);
    }
    for (line, sections) in [
        ("info ops.hkm", [ALL, "info of a memory recording"].as_slice()),
        ("info ops.hkm.processes/child.hkm", &[ALL, "info of a memory recording"]),
        ("trace cut ops.hkm --events ..100 -o part.hkm", &[ALL, "gen and trace"]),
        ("trace anonymise ops.hkm -o public.hkm", &[ALL, "gen and trace"]),
        ("trace verify ops.hkm", &[ALL, "gen and trace"]),
    ] {
        check(line, &bench.json(line), &[("", sections)]);
    }
}

#[test]
fn every_field_of_recording_memory_is_documented() {
    if !recordings::can_record() {
        return;
    }
    let bench = Bench::new();
    let line = "record --memory --no-aslr -o true.hkm --format json -- bash -c $(true)";
    // Before the report, the program may have warned, for example of a locale that is not installed.
    let text = bench.run(line).stderr;
    let report = text.find('{').map_or("", |at| &text[at..]);
    check(line, &serde_json::from_str(report).expect("JSON"), &[("", &[ALL, "record --memory"])]);
    let mut sleeper = std::process::Command::new("sleep").arg("100").spawn().expect("a program");
    let line = format!("record --memory -p {} --duration 1ms -o own.hkm --format json", sleeper.id());
    let text = bench.run(&line).stderr;
    sleeper.kill().and_then(|()| sleeper.wait()).expect("a program");
    let report = text.find('{').map_or("", |at| &text[at..]);
    check(&line, &serde_json::from_str(report).expect("JSON"), &[("", &[ALL, "record --memory"])]);
    let prediction: &[&str] = &[ALL, "Kernel", "Predictions of memory recordings"];
    check("sim own.hkm", &bench.json("sim own.hkm"), &[("", prediction)]);
    check("info own.hkm", &bench.json("info own.hkm"), &[("", &[ALL, "info of a memory recording"])]);
    for line in ["validate true.hkm --run-recorded", "validate true.hkm --run-recorded --memory-limit 64M"] {
        // The verdict does not matter: a failed row has the same fields.
        let text = bench.run(&format!("{line} --format json")).stdout;
        check(line, &serde_json::from_str(&text).expect("JSON"), &[("", &[ALL, "Validation of memory recordings"])]);
    }
}

/// A field that is renamed or removed must also be removed from the pages.
#[test]
fn every_documented_field_is_named_in_the_source() {
    fn read(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                read(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                *text += &fs::read_to_string(&path).expect("a source file");
            }
        }
    }
    let mut source = String::new();
    for entry in fs::read_dir(repository().join("crates")).expect("the crates").flatten() {
        read(&entry.path().join("src"), &mut source);
    }
    let words: std::collections::HashSet<&str> =
        source.split(|character: char| !character.is_ascii_alphanumeric() && character != '_').collect();
    for path in documented().values().flatten() {
        let gone = path.split('.').find(|name| *name != "*" && !words.contains(name));
        assert_eq!(gone, None, "{path}");
    }
}

#[test]
fn results_of_other_schemas_are_refused() {
    let bench = Bench::with_trace();
    let result = bench.json("sim rm.hkt");
    for (schema, remedy) in [(1, "make the result again"), (3, "use a newer one")] {
        let mut other = result.clone();
        other["schema"] = schema.into();
        fs::write(bench.path("other.json"), other.to_string()).expect("a result");
        for line in ["plot other.json -o x.svg", "sim rm.hkt --policy other.json", "report other.json -o r.html"] {
            let why = bench.refused(line);
            assert!(why.contains(&format!("other.json: schema {schema} ")) && why.contains(remedy), "{line}: {why}");
        }
    }
}
