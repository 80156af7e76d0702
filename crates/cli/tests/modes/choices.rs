//! `hksim advise --on --thp`: where a mode cannot be set, its pages are predicted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::alone;
use crate::support::{Bench, number};
use crate::trials::{can_set, mode};

/// Blocks of 20 to 40 MiB, of which every byte is written.
const BLOCKS: &str = "op,object,size
alloc,1,33554432
alloc,2,20971520
free,1,
alloc,3,41943040
free,2,
alloc,4,29360128
free,3,
free,4,
";

/// The row of a mode, and the row without one.
fn rows(result: &Value, mode: &str) -> (Value, Value) {
    let setting = format!("thp={mode}");
    let all = result["rows"].as_array().expect("rows");
    let of_mode = all.iter().find(|row| row["setting"] == setting).unwrap_or_else(|| panic!("{setting}: {result}"));
    (of_mode.clone(), all[0].clone())
}

/// What an ordinary user is told is what root measures in that mode.
#[test]
fn pages_under_a_mode_that_cannot_be_set_are_predicted() {
    const MIB: u64 = 1 << 20;
    let _turn = alone();
    let Some(here) = mode().filter(|_| can_set()) else { return };
    if here.contains("[always]") {
        return eprintln!("skipped: the machine's mode is always: no other mode gives more huge pages");
    }
    let bench = Bench::new();
    fs::set_permissions(bench.folder(), fs::Permissions::from_mode(0o777)).expect("permissions");
    fs::write(bench.path("big.csv"), BLOCKS).expect("a trace");
    bench.ok("import big.csv --from csv -o big.hkt");
    fs::set_permissions(bench.path("big.hkt"), fs::Permissions::from_mode(0o644)).expect("permissions");
    // Each block is a mapping.
    let line = "advise big.hkt --on glibc:mmap_threshold=131072 --present glibc:mmap_threshold=131072 --thp always \
                --goal rss --runs 2";
    let (measured, before) = rows(&bench.json(line), "always");
    assert_eq!((&measured["outcome"], &before["outcome"]), (&"measured".into(), &"measured".into()));
    fs::copy(env!("CARGO_BIN_EXE_hksim"), bench.path("hksim")).expect("a copy that other users can read");
    let mut user = Command::new("setpriv");
    user.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]).arg(bench.path("hksim"));
    let ran = user
        .args(line.split_whitespace())
        .args(["--format", "json"])
        .current_dir(bench.folder())
        .env("XDG_CACHE_HOME", bench.folder())
        .output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(why) => return eprintln!("skipped: hksim cannot be run as another user: {why}"),
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
    let (predicted, _) = rows(&result, "always");
    if let (Some("skipped"), Some(why)) = (predicted["outcome"].as_str(), predicted["reason"].as_str()) {
        return eprintln!("skipped: {why}");
    }
    assert_eq!(predicted["outcome"], "predicted", "{predicted}");
    assert!(predicted["ratio_to_present"].is_null() && predicted["reason"].as_str().is_some());
    assert_eq!(result["choice"], 0, "a row without times is not chosen");
    let [was, is, told] = [&before, &measured, &predicted].map(|row| number(&row["traces"][0], "faults"));
    // Where a mapping begins within a huge page is random, unless the kernel aligns it.
    assert!(was > 4 * is, "{was} faults before, {is} in huge pages");
    assert!(told.abs_diff(is) < was / 8, "{told} faults predicted, {is} measured, {was} before");
    let [is, told] = [&measured, &predicted].map(|row| number(&row["traces"][0], "rss_bytes_peak"));
    assert!(told.abs_diff(is) <= 4 * MIB, "{told} bytes predicted, {is} measured");
}
