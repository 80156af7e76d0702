//! What khugepaged leaves of a program's memory, as predicted from a recording and as the kernel does it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";

/// khugepaged's settings, changed until this is dropped or this process ends. `hksim`'s guard process restores them.
struct Settings {
    guard: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Settings {
    /// `None` if they cannot be changed, which is printed.
    fn set(settings: &[(&str, &str)]) -> Option<Settings> {
        let mut guard = Command::new(env!("CARGO_BIN_EXE_hksim"))
            .arg(hksim_conformance::GUARD_ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hksim starts");
        let answers = BufReader::new(guard.stdout.take().expect("piped"));
        let mut held = Settings { input: guard.stdin.take(), guard, answers };
        while held.answer() != "mine" {}
        for (name, value) in settings {
            let path = format!("{KHUGEPAGED}/{name}");
            let before = fs::read_to_string(&path).unwrap_or_default();
            writeln!(held.input.as_mut()?, "{path} {}", before.trim()).expect("the guard reads");
            assert_eq!(held.answer(), "known");
            if let Err(why) = fs::write(&path, value) {
                eprintln!("skipped: {path}: {why}");
                return None;
            }
        }
        Some(held)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.answers.read_line(&mut line).expect("text");
        assert!(bytes > 0, "the guard ended");
        line.trim().to_string()
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.guard.wait();
    }
}

/// Rss and AnonHugePages in kB, as the program prints them.
fn printed(line: &str) -> [u64; 2] {
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    [numbers[0], numbers[1]]
}

#[test]
fn settled_memory_is_as_predicted() {
    let _turn = super::alone();
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !enabled.contains("[madvise]") {
        return eprintln!("skipped: transparent huge pages are not in mode madvise");
    }
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let program = bench.path("settles");
    if bench.compile(data("settles.c"), "settles", &["-O1", "-fno-builtin"]).is_none() {
        return;
    }
    bench.ok(&format!("record --memory -o a.hkm -- {}", program.display()));
    for limit in [511, 479, 300, 0] {
        let line = format!("sim a.hkm --thp madvise --khugepaged settled --max-ptes-none {limit}");
        let predicted = bench.json(&line);
        let figure = |name: &str| number(&predicted, name);
        let settings =
            [("max_ptes_none", &*limit.to_string()), ("pages_to_scan", "4294967295"), ("scan_sleep_millisecs", "10")];
        let Some(held) = Settings::set(&settings) else { return };
        let run = Command::new(&program).arg("wait").output().expect("the program starts");
        drop(held);
        if run.status.code() == Some(2) {
            return eprintln!("skipped: khugepaged did not finish its scans in time");
        }
        assert!(run.status.success(), "{run:?}");
        let text = String::from_utf8(run.stdout).expect("text");
        let [before, after] = [0, 1].map(|line| printed(text.lines().nth(line).expect("two lines")));
        assert_eq!(before[1], 0, "no huge page before a scan");
        let added = figure("khugepaged_settled.rss_bytes") - figure("rss_bytes_end");
        assert_eq!(added, (after[0] - before[0]) << 10, "RSS, at most {limit} absent: {text}");
        assert_eq!(
            figure("khugepaged_settled.huge_pages"),
            after[1] / 2048,
            "huge pages, at most {limit} absent: {text}"
        );
    }
}
