//! The recordings in traces/ are those of their manifest, and can be read whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Most bytes of all recordings together: they are part of every clone.
const BYTES_MAX: u64 = 1_000_000;

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
    sha256: String,
    licence: String,
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
        for said in [&entry.program, &entry.command, &entry.versions, &entry.licence] {
            assert!(!said.trim().is_empty(), "{}: every field says something", entry.file);
        }
        assert!(entry.date.date.is_some(), "{}: {} is a date", entry.file, entry.date);
    }
}

#[test]
fn the_hashes_are_those_of_the_manifest() {
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
fn info_reads_every_recording_whole() {
    for entry in manifest() {
        let hksim = env!("CARGO_BIN_EXE_hksim");
        let path = folder().join(&entry.file);
        let output = Command::new(hksim).args(["info", "--format", "json"]).arg(&path).output().expect("hksim");
        assert!(output.status.success(), "{}: {}", entry.file, String::from_utf8_lossy(&output.stderr));
        let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let figure = |name: &str| info[name].as_u64().unwrap_or_else(|| panic!("{}: {name} in {info}", entry.file));
        assert_eq!(info["complete"], true, "{}: the footer is there", entry.file);
        assert_eq!(figure("unknown_frees"), 0, "{}", entry.file);
        assert_eq!(info["origin"]["kind"], "recorded", "{}", entry.file);
        // What was born and has not died is still there; a realloc of nothing is a birth too.
        let born = figure("mallocs") + figure("callocs") + figure("aligned");
        let left = figure("live_objects_end") + figure("frees");
        assert!(born <= left && left <= born + figure("reallocs"), "{}: {born} born, {left} left or freed", entry.file);
    }
}
