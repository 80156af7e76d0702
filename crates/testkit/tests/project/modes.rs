//! Test programs that change the machine's modes run alone: figures of other tests depend on the modes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::root;

/// What a test that sets modes has in its source: the setting or its lock, not `hold`, which lets others read the modes.
const SETTING: [&str; 4] = ["SetModes::new", "libc::LOCK_EX", "--set-modes", "fn set(&mut self, file"];

/// Below `tests/`: the programs, as folder of the crate and name, with a source that sets modes.
fn programs(tests: &Path, package: &str, found: &mut BTreeSet<String>) {
    for program in fs::read_dir(tests).into_iter().flatten().flatten() {
        for source in fs::read_dir(program.path()).into_iter().flatten().flatten() {
            let text = fs::read_to_string(source.path()).unwrap_or_default();
            // Refused words are not a setting, and neither is the lock of another file.
            let is_setting = |line: &&str| {
                !line.contains("refused(")
                    && !line.contains("\"--on\"")
                    && SETTING.iter().any(|word| line.contains(word))
            };
            if text.lines().any(|line| is_setting(&line)) {
                found.insert(format!("{package}:{}", program.file_name().to_string_lossy()));
            }
        }
    }
}

#[test]
fn programs_that_set_modes_run_alone() {
    let mut setting = BTreeSet::new();
    for folder in fs::read_dir(root().join("crates")).expect("crates").flatten() {
        let package = match folder.file_name().to_string_lossy() {
            name if name == "cli" => "hksim".to_string(),
            // Its rules are written here.
            name if name == "testkit" => continue,
            name => format!("hksim-{name}"),
        };
        programs(&folder.path().join("tests"), &package, &mut setting);
    }
    let script = fs::read_to_string(root().join(".ci/tests.sh")).expect("the script");
    let line = script.lines().find_map(|line| line.strip_prefix("alone='^[0-9]*-(")?.strip_suffix(")$'"));
    let alone: BTreeSet<String> = line.expect("the programs").split('|').map(str::to_string).collect();
    assert_eq!(setting, alone);
}
