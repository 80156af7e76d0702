//! Whether a process can get huge pages comes from outside, too: from a wrapper, or from systemd's `MemoryTHP=`. A recording
//! knows it at each exec, and a validation gives it to the run.

use std::process::Command;

use crate::support::recordings::can_record;
use crate::support::{Bench, Ran, number};
use crate::{alone, validated};

/// The program: it sets `PR_SET_THP_DISABLE` and executes another one, or writes to 16 huge pages.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../memory-record/tests/it/inherits.c");

/// A recording of the program under wrappers: `outside` hksim, and `inside` the recording.
fn recorded_under(outside: &str, inside: &str) -> Option<Bench> {
    let bench = Bench::new();
    bench.compile(SOURCE, "inherits", &["-O1"])?;
    let hksim = env!("CARGO_BIN_EXE_hksim");
    let line = format!("{outside} {hksim} record --memory --no-aslr -o a.hkm -- {inside} ./inherits");
    let mut words = line.split_whitespace();
    // Relative paths of programs are those of this process's directory.
    let first = words.next().map_or_else(|| hksim.into(), |word| bench.path(word));
    let output = Command::new(first).args(words).current_dir(bench.folder()).output().expect("it starts");
    let ran = Ran::of(&line, output);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
    Some(bench)
}

#[test]
fn what_comes_from_outside_is_predicted_and_measured() {
    let _alone = alone();
    if !can_record() {
        return;
    }
    let off = "./inherits 1 0 exec";
    let expected = [("", off, 0), (off, "", 0), ("", "", 16)];
    for (outside, inside, huge_pages) in expected {
        let Some(bench) = recorded_under(outside, inside) else { return };
        for (mode, has_huge_pages) in [("never", false), ("madvise", true), ("always", true)] {
            let row = validated(&bench, "a.hkm", mode);
            let case = format!("outside {outside:?}, inside {inside:?}, {mode}: {row}");
            assert_eq!(row["verdict"], "ok", "{case}");
            let wanted = if has_huge_pages { huge_pages } else { 0 };
            assert_eq!(number(&row["predicted"][0], "huge_pages_end"), wanted, "{case}");
        }
    }
}

/// A program that switched huge pages on before exec had them during the recording, too: touches inside them are missing.
#[test]
fn huge_pages_switched_on_before_exec_are_told() {
    let _alone = alone();
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !can_record() || mode.contains("[never]") {
        return eprintln!("skipped: cannot record, or the machine's mode is never: {mode}");
    }
    let Some(bench) = recorded_under("./inherits 1 0 exec", "./inherits 0 0 exec") else { return };
    let ran = bench.run("sim a.hkm --thp madvise");
    let said = ran.stdout + &ran.stderr;
    assert!(said.contains("the program switched huge pages on for itself (prctl)"), "{said}");
}
