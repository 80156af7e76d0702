//! What khugepaged leaves of a program's memory, as predicted from a recording and as the kernel does it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use hksim_linux_probe::khugepaged::AdvisedMap;
use hksim_linux_probe::sysfs::khugepaged_collapses;
use serde_json::Value;

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
    /// The guard, which knows no setting yet.
    fn guarded() -> Settings {
        let mut guard = Command::new(env!("CARGO_BIN_EXE_hksim"))
            .arg(hksim_conformance::GUARD_ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hksim starts");
        let answers = BufReader::new(guard.stdout.take().expect("piped"));
        let mut held = Settings { input: guard.stdin.take(), guard, answers };
        while held.answer() != "mine" {}
        held
    }

    /// Changes a setting. `None` if it cannot be changed, which is printed.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let path = format!("{KHUGEPAGED}/{name}");
        let before = fs::read_to_string(&path).unwrap_or_default();
        writeln!(self.input.as_mut()?, "{path} {}", before.trim()).expect("the guard reads");
        assert_eq!(self.answer(), "known");
        fs::write(&path, value).map_err(|why| eprintln!("skipped: {path}: {why}")).ok()
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

/// Rss and AnonHugePages in kB, as the program prints them; `None` if it ended.
fn printed(text: &mut impl BufRead) -> Option<[u64; 2]> {
    let mut line = String::new();
    text.read_line(&mut line).expect("text");
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    numbers.try_into().ok()
}

/// What the program has before and after full scans of khugepaged; `None` for what this machine cannot show, which is printed.
/// khugepaged rests until the program has its memory: a scan may take part of it otherwise, so the program starts only after this
/// time.
fn scanned(program: &Path, limit: u64, rest: Duration) -> Option<[[u64; 2]; 2]> {
    // Otherwise the program would be the first on khugepaged's list, and be scanned at once, whatever the settings.
    let _awake = AdvisedMap::new();
    let mut held = Settings::guarded();
    held.set("scan_sleep_millisecs", "600000")?;
    held.set("max_ptes_none", &limit.to_string())?;
    // The change wakes it for one more scan.
    std::thread::sleep(rest);
    let mut run = Command::new(program).arg("wait").stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut text = BufReader::new(run.stdout.take().expect("piped"));
    let before = printed(&mut text).expect("the memory before a scan");
    let woken = held.set("pages_to_scan", "4294967295").and_then(|()| held.set("scan_sleep_millisecs", "10"));
    let after = printed(&mut text);
    let status = run.wait().expect("the program ends");
    woken?;
    if status.code() == Some(2) {
        eprintln!("skipped: khugepaged did not finish its scans in time");
        return None;
    }
    assert!(status.success(), "{status:?}");
    Some([before, after.expect("the memory after scans")])
}

/// `None`, with the reason, if the machine is in another mode.
fn in_mode_madvise() -> Option<()> {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !enabled.contains("[madvise]") {
        eprintln!("skipped: transparent huge pages are not in mode madvise");
        return None;
    }
    Some(())
}

/// The program of these tests, in its bench; `None`, with the reason, if the machine cannot record it in mode `madvise`.
fn settles() -> Option<(Bench, PathBuf)> {
    in_mode_madvise()?;
    if !can_record() {
        return None;
    }
    let bench = Bench::new();
    bench.compile(data("settles.c"), "settles", &["-O1", "-fno-builtin"])?;
    let program = bench.path("settles");
    Some((bench, program))
}

#[test]
fn settled_memory_is_as_predicted() {
    let _turn = super::alone();
    let Some((bench, program)) = settles() else { return };
    bench.ok(&format!("record --memory -o a.hkm -- {}", program.display()));
    for limit in [511, 479, 300, 0] {
        let line = format!("sim a.hkm --thp madvise --khugepaged settled --max-ptes-none {limit}");
        let predicted = bench.json(&line);
        let figure = |name: &str| number(&predicted, name);
        // A scan that an earlier setting began may still run, on a machine with much memory or under load: 0.3 to 24 s.
        let tries = (0..5).map(|number| scanned(&program, limit, Duration::from_millis(300 * 3u64.pow(number))));
        let mut resting = tries.skip_while(|seen| seen.is_some_and(|[before, _]| before[1] > 0));
        let Some([before, after]) = resting.next().expect("no huge page before a scan, in one of five runs") else {
            return;
        };
        let added = figure("khugepaged_settled.rss_bytes") - figure("rss_bytes_end");
        assert_eq!(added, (after[0] - before[0]) << 10, "RSS, at most {limit} absent: {before:?} {after:?}");
        assert_eq!(
            figure("khugepaged_settled.huge_pages"),
            after[1] / 2048,
            "huge pages, at most {limit} absent: {before:?} {after:?}"
        );
    }
}

/// Three seconds of rest after the last operation, at a pace of 2 ranges at once and 2 more every 700 ms: 10 of 16 ranges.
#[test]
fn a_program_that_rests_ends_within_its_bound() {
    let _turn = super::alone();
    let Some((bench, program)) = settles() else { return };
    let mut held = Settings::guarded();
    let paced = [("max_ptes_none", "511"), ("pages_to_scan", "1024"), ("scan_sleep_millisecs", "700")];
    if paced.into_iter().any(|(name, value)| held.set(name, value).is_none()) {
        return;
    }
    bench.ok(&format!("record --memory -o a.hkm -- {} idle", program.display()));
    let predicted = bench.json("sim a.hkm --kernel host --khugepaged bound");
    let figure = |name: &str| number(&predicted, name);
    let end = predicted["timeline"].as_array().and_then(|samples| samples.last()).expect("samples");
    assert!((3_000_000_000..3_500_000_000).contains(&number(end, "time_ns")), "the rest counts: {end}");
    let [before, most] = [figure("rss_bytes_end"), figure("khugepaged_at_end.rss_bytes_max")];
    // The ranges that lack most, those with the fewest pages.
    let filled: u64 = (0..10).map(|range| 511 - 32 * range).sum();
    assert_eq!((most - before) >> 12, filled, "the rest of three seconds holds four wakes after the first");
    assert_eq!(figure("khugepaged_at_end.huge_pages_max"), 10);
    let run = Command::new(&program).arg("idle").output().expect("the program starts");
    let mut text = BufReader::new(run.stdout.as_slice());
    let [first, last] = [(); 2].map(|()| printed(&mut text).expect("Rss and AnonHugePages"));
    eprintln!("{first:?} before the rest, {last:?} after it; at most {} kB more", (most - before) >> 10);
    // khugepaged may have filled some of it before the first figure.
    assert!(last[0] - first[0].min(last[0]) <= (most - before) >> 10, "RSS: {first:?} {last:?}");
    assert!(last[1] / 2048 <= 10, "huge pages: {first:?} {last:?}");
}

/// The kernel's thread scans the program at its exit, and leaves what is predicted: all ranges but the one of old pages.
#[test]
fn a_validation_waits_for_scans() {
    let _turn = super::alone();
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let program = bench.path("settles");
    if bench.compile(data("settles.c"), "settles", &["-O1", "-fno-builtin"]).is_none() {
        return;
    }
    bench.ok(&format!("record --memory -o a.hkm -- {}", program.display()));
    let line = "validate a.hkm --run-recorded --thp madvise --mthp 2M=inherit --runs 2";
    let unset = bench.json(&format!("{line} --khugepaged settled"));
    assert!(unset["rows"][0]["reason"].as_str().is_some_and(|why| why.contains("add --set-modes")), "{unset}");
    let result = bench.json(&format!("{line} --khugepaged settled --set-modes"));
    let row = &result["rows"][0];
    if row["reason"].as_str().is_some_and(|why| why.contains("could not be read")) {
        return eprintln!("skipped: khugepaged did not finish its scans in time");
    }
    assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("ok")), "{row}");
    for run in row["measured"].as_array().expect("runs") {
        assert_eq!(number(run, "huge_pages_end"), 15, "{row}");
    }
    let refused = bench.refused("validate a.hkm --run-recorded --khugepaged bound");
    assert!(refused.contains("a bound cannot be measured"), "{refused}");
}

/// Gives khugepaged memory to collapse, again and again, until the returned value is dropped.
fn feed_khugepaged() -> Arc<()> {
    const BYTES: usize = 4 << 20;
    let wanted = Arc::new(());
    let seen = Arc::clone(&wanted);
    let feed = || {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address chosen by the kernel, which nothing else uses, written in its middle, and unmapped
        // as a whole.
        unsafe {
            let map = libc::mmap(null_mut(), BYTES, protection, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            // Written before it is advised, so that it has small pages.
            map.cast::<u8>().add(BYTES / 2).write_volatile(1);
            assert_eq!(libc::madvise(map, BYTES, libc::MADV_HUGEPAGE), 0);
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(libc::munmap(map, BYTES), 0);
        }
    };
    std::thread::spawn(move || {
        while Arc::strong_count(&seen) > 1 {
            feed();
        }
    });
    wanted
}

/// khugepaged scans without rest, and finds memory of this process, until both are dropped. `None`, with the reason, if it cannot
/// be made to, or if it would collapse memory that no program asked it to.
fn eager() -> Option<(Settings, Arc<()>)> {
    in_mode_madvise()?;
    let mut held = Settings::guarded();
    for (name, value) in [("max_ptes_none", "511"), ("pages_to_scan", "4294967295"), ("scan_sleep_millisecs", "10")] {
        held.set(name, value)?;
    }
    Some((held, feed_khugepaged()))
}

/// The row of a validation under a limit; `None`, with the reason, without control groups or if khugepaged did nothing.
fn under_limit(bench: &Bench, command: &str) -> Option<Value> {
    let before = khugepaged_collapses();
    let ran = bench.run(&format!("validate a.hkm --memory-limit 64M --runs 2 --format json {command}"));
    let mut result: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|why| panic!("{why}: {}", ran.stderr));
    let row = result["rows"][0].take();
    if row["reason"].as_str().is_some_and(|why| why.contains("memory control group")) {
        eprintln!("skipped: {}", row["reason"]);
        return None;
    }
    if khugepaged_collapses() == before {
        eprintln!("skipped: khugepaged did not finish its scans in time");
        return None;
    }
    Some(row)
}

/// The kernel counts collapses of all programs together. Memory of this program cannot be collapsed, so its figures are judged.
#[test]
fn collapses_of_other_programs_disturb_no_run_under_a_limit() {
    let _turn = super::alone();
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    if bench.compile(data("limited.c"), "app", &["-O1"]).is_none() {
        return;
    }
    bench.ok("record --memory --no-aslr -o a.hkm -- ./app 2000 0 0 0 0");
    let Some(_eager) = eager() else { return };
    for (command, verdict) in [("--run-recorded", "ok"), ("-- ./app 2400 0 0 0 0", "failed")] {
        let Some(row) = under_limit(&bench, command) else { return };
        assert_eq!(row["verdict"], verdict, "{row}");
    }
}

/// A child gives khugepaged memory, and its parent has none for it. It waits until a huge page is there, as often as it is told to
/// look: khugepaged comes last on a busy machine.
#[test]
fn collapses_of_a_child_disturb_a_run_under_a_limit() {
    let _turn = super::alone();
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("child.c"), CHILD_WAITS).expect("a program");
    if bench.compile("child.c", "app", &["-O1"]).is_none() {
        return;
    }
    bench.ok("record --memory --no-aslr -o a.hkm -- ./app 0");
    let Some(_eager) = eager() else { return };
    let Some(row) = under_limit(&bench, "-- ./app 300") else { return };
    let reason = row["reason"].as_str().unwrap_or_default();
    if reason.contains("exited with 2") {
        return eprintln!("skipped: khugepaged did not finish its scans in time");
    }
    assert_eq!((row["verdict"].as_str(), reason.starts_with("khugepaged collapsed")), (Some("skipped"), true), "{row}");
}

const CHILD_WAITS: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[4096];

static int has_huge_page(void) {
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    text[read(file, text, sizeof text - 1)] = 0;
    close(file);
    return atol(strstr(text, "AnonHugePages:") + 14) > 0;
}

int main(int argc, char **argv) {
    int status, looks = atoi(argv[1]);
    if (fork()) return wait(&status) < 0 || status ? 2 : 0;
    char *at = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < 2048; page += 64) at[page * 4096] = 1;
    madvise(at, 8 << 20, MADV_HUGEPAGE);
    int found = has_huge_page();
    for (int look = 0; look < looks && !found; look++, found = has_huge_page()) usleep(100000);
    _exit(looks && !found);
}
"#;
