//! The recordings in traces/ match their manifest and are readable.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Maximum bytes of all recordings: they are part of every clone.
const BYTES_MAX: u64 = 20_000_000;

#[derive(Deserialize)]
struct Manifest {
    trace: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    program: String,
    command: String,
    versions: String,
    date: toml::value::Datetime,
    bytes: u64,
    sha256: String,
    licence: String,
    holds: Holds,
    checked: Checked,
}

/// Figures of `hksim info`.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    events: u64,
    threads: u32,
    live_bytes_peak: u64,
    live_objects_peak: u64,
    cross_thread_frees: u64,
    unknown_frees: u64,
}

/// The figures that make.sh measured when it created the recording (docs/lab/corpus.md).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    processes: u32,
    same_run_calls: u64,
    counter: String,
    installs: u64,
    installs_small: u64,
    bare_s: f64,
    recorded_s: f64,
    bare_cpu_s: f64,
    recorded_cpu_s: f64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces")
}

fn manifest() -> Vec<Entry> {
    let text = fs::read_to_string(folder().join("MANIFEST.toml")).expect("the manifest");
    toml::from_str::<Manifest>(&text).expect("a manifest").trace
}

#[test]
fn the_manifest_names_every_recording() {
    let named: BTreeSet<String> = manifest().into_iter().map(|entry| entry.file).collect();
    let files = fs::read_dir(folder()).expect("traces/").map(|entry| entry.expect("an entry"));
    let recordings = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "hkt"));
    let mut bytes = 0;
    let there: BTreeSet<String> = recordings
        .map(|file| {
            bytes += file.metadata().expect("a file").len();
            file.file_name().into_string().expect("a plain name")
        })
        .collect();
    assert_eq!(named, there);
    assert!(bytes <= BYTES_MAX, "{bytes} bytes of recordings, at most {BYTES_MAX}");
    for entry in manifest() {
        for message in [&entry.program, &entry.command, &entry.versions, &entry.licence] {
            assert!(!message.trim().is_empty(), "{}: every field says something", entry.file);
        }
        assert!(entry.date.date.is_some(), "{}: {} is a date", entry.file, entry.date);
        assert_eq!(fs::metadata(folder().join(&entry.file)).expect("a file").len(), entry.bytes, "{}", entry.file);
    }
}

#[test]
fn every_recording_was_checked_when_it_was_created() {
    for Entry { file, holds, checked, .. } in manifest() {
        assert!(checked.processes > 0 && checked.same_run_calls > 0, "{file}: compared with the counter");
        let within = ["equal to ", "within the range of ", "just outside the range of "];
        assert!(within.iter().any(|how| checked.counter.starts_with(how)), "{file}: {}", checked.counter);
        assert!(0 < checked.installs && checked.installs <= checked.installs_small, "{file}: huge pages save installs");
        assert!(checked.installs_small < holds.events, "{file}: {} installs", checked.installs_small);
        for took in [checked.bare_s, checked.recorded_s, checked.bare_cpu_s, checked.recorded_cpu_s] {
            assert!(took > 0.0 && took.is_finite(), "{file}: took {took} s");
        }
    }
}

#[test]
fn the_hashes_match_the_manifest() {
    for entry in manifest() {
        let output = match Command::new("sha256sum").arg(folder().join(&entry.file)).output() {
            Ok(output) => output,
            Err(why) => {
                eprintln!("skipped: cannot run sha256sum: {why}");
                return;
            }
        };
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed.split(' ').next(), Some(entry.sha256.as_str()), "{}: the hash", entry.file);
    }
}

#[test]
fn info_agrees_with_the_manifest_for_every_recording() {
    for entry in manifest() {
        let hksim = env!("CARGO_BIN_EXE_hksim");
        let path = folder().join(&entry.file);
        let output = Command::new(hksim).args(["info", "--format", "json"]).arg(&path).output().expect("hksim");
        assert!(output.status.success(), "{}: {}", entry.file, String::from_utf8_lossy(&output.stderr));
        let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let figure = |name: &str| info[name].as_u64().unwrap_or_else(|| panic!("{}: {name} in {info}", entry.file));
        assert_eq!(info["complete"], true, "{}: the footer is there", entry.file);
        assert_eq!(info["quality"]["events_lost"], 0, "{}", entry.file);
        assert_eq!(info["origin"]["kind"], "recorded", "{}", entry.file);
        let found = Holds {
            events: figure("events"),
            threads: u32::try_from(figure("threads")).expect("few threads"),
            live_bytes_peak: figure("live_bytes_peak"),
            live_objects_peak: figure("live_objects_peak"),
            cross_thread_frees: figure("cross_thread_frees"),
            unknown_frees: figure("unknown_frees"),
        };
        assert_eq!(found, entry.holds, "{}", entry.file);
        // Objects allocated and not freed are live. A realloc may allocate or free.
        let born = figure("mallocs") + figure("callocs") + figure("aligned_allocs");
        let left = figure("live_objects_end") + figure("frees") - found.unknown_frees;
        let either = figure("reallocs") + figure("requests_failed") + found.unknown_frees;
        assert!(born.abs_diff(left) <= either, "{}: {born} allocated, {left} still live or freed", entry.file);
    }
}
