//! Build scripts run again only if what they read has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::root;

/// What the last run of each build script of the workspace printed, by package.
fn outputs() -> BTreeMap<String, String> {
    let test = std::env::current_exe().expect("the test's file");
    let folder = test.parent().and_then(Path::parent).expect("the folder of the profile").join("build");
    let mut last: BTreeMap<String, (SystemTime, PathBuf)> = BTreeMap::new();
    for entry in fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())).flatten() {
        let output = entry.path().join("output");
        let name = entry.file_name().into_string().expect("a plain name");
        let (Some((package, _)), Ok(data)) = (name.rsplit_once('-'), fs::metadata(&output)) else { continue };
        let run = (data.modified().expect("a time"), output);
        if package == "hksim" || package.starts_with("hksim-") {
            let newest = last.entry(package.to_string()).or_insert_with(|| run.clone());
            *newest = run.max(newest.clone());
        }
    }
    last.into_iter().map(|(package, (_, output))| (package, fs::read_to_string(output).expect("text"))).collect()
}

/// cargo takes a watched file that does not exist for changed: it runs the script, and builds all that depends on it, with
/// each command.
#[test]
fn build_scripts_watch_what_exists() {
    let outputs = outputs();
    assert!(outputs.contains_key("hksim-time-model"), "its build script has run, since this test depends on it");
    let mut missing = Vec::new();
    for (package, text) in &outputs {
        let folder = root().join("crates").join(package.strip_prefix("hksim-").unwrap_or("cli"));
        let watched = text.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        missing.extend(watched.map(|path| folder.join(path)).filter(|path| !path.exists()));
    }
    assert!(missing.is_empty(), "watched, and not there: {missing:?}");
}
