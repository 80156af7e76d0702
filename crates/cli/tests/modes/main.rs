//! `hksim validate` of memory recordings notices what it must: lost events, other modes, and programs that behave
//! differently under other modes.
//!
//! Validation needs root: it sets the machine's modes, which are locked meanwhile and restored. Other tests compare
//! figures that depend on the modes, so these have a binary of their own: cargo runs one binary at a time.

mod choices;
mod inherited;
mod khugepaged;
mod replays;
mod rounded;
#[path = "../support/mod.rs"]
mod support;
mod trials;
mod waiting;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hksim_memory_trace::{Event, Op, Origin, Reader, Writer};
use serde_json::Value;

use support::recordings::{can_record, data, with_recording};
use support::{Bench, number};

/// Tests of this binary run one at a time: each depends on the modes that others set.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory with a recording of this script; `None`, with the reason printed, where perl is missing.
fn recorded(script: &str) -> Option<Bench> {
    recorded_with(script, &[])
}

/// The same with environment variables.
fn recorded_with(script: &str, variables: &[(&str, &str)]) -> Option<Bench> {
    if !can_record() {
        return None;
    }
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("skipped: perl is not installed");
        return None;
    }
    let bench = Bench::new();
    fs::write(bench.path("job.pl"), script).expect("a script");
    let mut command = bench.command("record --memory --no-aslr -o a.hkm -- /usr/bin/perl job.pl");
    command.env("PERL_HASH_SEED", "0").envs(variables.iter().copied());
    let output = command.output().expect("hksim starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(bench)
}

/// The only row of a validation.
fn validated(bench: &Bench, file: &str, thp: &str) -> Value {
    let line =
        format!("validate {file} --run-recorded --thp {thp} --mthp 2M=inherit --set-modes --runs 2 --format json");
    let output = bench.command(&line).env("PERL_HASH_SEED", "0").output().expect("hksim starts");
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("{line}: {why}: {}", String::from_utf8_lossy(&output.stderr)));
    result["rows"][0].clone()
}

/// A copy of a recording, with its events changed.
fn edited(bench: &Bench, from: &str, to: &str, change: impl Fn(&mut Vec<Event>)) {
    let mut reader = Reader::open(&bench.path(from)).expect("a recording");
    let mut writer = Writer::create(&bench.path(to), reader.header()).expect("a file");
    let (mut all, mut chunk) = (Vec::new(), Vec::new());
    while reader.next_chunk(&mut chunk).expect("events") {
        all.append(&mut chunk);
    }
    change(&mut all);
    for mut event in all {
        if let Op::Map(map) = &mut event.op {
            map.name = map.name.map(|name| writer.name(reader.name(name)));
        }
        writer.push(event).expect("an event");
    }
    writer.finish(reader.footer().expect("the end")).expect("the end");
}

#[test]
fn counted_losses_are_noted() {
    let _alone = alone();
    let bench = with_recording();
    edited(&bench, "ops.hkm", "lossy.hkm", |events| {
        let lost = Event { op: Op::Lost { events: 12 }, ..events[0].clone() };
        events.insert(1, lost);
    });
    let ran = bench.run("sim lossy.hkm");
    assert!(ran.stderr.contains("the recorder lost 12 events; figures are too small"), "{}", ran.stderr);
}

#[test]
fn a_loss_that_nobody_counted_is_found() {
    let _alone = alone();
    let Some(bench) = recorded("my @a = map { 'x' x 200 } 1 .. 30000; print scalar(@a);") else { return };
    let sound = validated(&bench, "a.hkm", "never");
    assert_eq!((sound["class"].as_str(), sound["verdict"].as_str()), (Some("exact"), Some("ok")), "{sound}");
    edited(&bench, "a.hkm", "lossy.hkm", |events| {
        let grown = events.iter().filter_map(|event| match &event.op {
            Op::Map(map) if map.origin == Origin::Brk => Some(map.pages.clone()),
            _ => None,
        });
        let heap: Vec<_> = grown.collect();
        // Other touches are of files, which are not modelled.
        let is_heap = |page: u64| heap.iter().any(|pages| pages.contains(&page));
        let touch = events.iter().rposition(|event| matches!(event.op, Op::Touch { page, .. } if is_heap(page)));
        events.remove(touch.expect("a touch of the heap"));
    });
    let row = validated(&bench, "lossy.hkm", "never");
    assert_ne!(row["residual"], 0, "{row}");
    assert!(row["class"] != "exact" || row["verdict"] != "ok", "{row}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("another recording has other touches in 1 page"), "{row}");
}

#[test]
fn a_program_that_reads_the_mode_is_noticed() {
    let _alone = alone();
    let script = "open my $f, '<', '/sys/kernel/mm/transparent_hugepage/enabled'; my $mode = <$f>; \
        my $n = $mode =~ /\\[always\\]/ ? 60000 : 10000; my @a = map { 'x' x 200 } 1 .. $n; print scalar(@a);";
    let Some(bench) = recorded(script) else { return };
    let row = validated(&bench, "a.hkm", "never");
    if row["verdict"] != "ok" {
        return eprintln!("skipped: the machine's mode was always at the recording: {row}");
    }
    let row = validated(&bench, "a.hkm", "always");
    assert_eq!(row["verdict"], "failed", "{row}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("the run made other calls than the recording"), "{row}");
}

/// glibc advises its heap only if the mode is madvise when the program starts.
#[test]
fn an_allocator_that_reads_the_mode_is_noticed() {
    let _alone = alone();
    let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !mode.contains("[madvise]") {
        return eprintln!("skipped: the machine's mode is {mode}");
    }
    let script = "my @a = map { 'x' x 200 } 1 .. 30000; print scalar(@a);";
    let Some(bench) = recorded_with(script, &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")]) else { return };
    let row = validated(&bench, "a.hkm", "madvise");
    if row["predicted"][0]["huge_pages_end"] == 0 {
        return eprintln!("skipped: this C library has no glibc.malloc.hugetlb: {row}");
    }
    assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("ok")), "{row}");
    let row = validated(&bench, "a.hkm", "always");
    assert_ne!(row["class"], "exact", "{row}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("the run made other calls than the recording"), "{row}");
}

/// The measured process has no huge pages, whatever the mode is: it switches them off for itself, and did not when it was
/// recorded.
#[test]
fn a_run_in_another_mode_than_the_machine_s_is_noticed() {
    let _alone = alone();
    let prctl = format!("syscall({}, {}, 1, 0, 0, 0) if -e 'planted';", libc::SYS_prctl, libc::PR_SET_THP_DISABLE);
    let script = format!("{prctl} our $kept = 'x' x 20_000_000; print length($kept);");
    let Some(bench) = recorded(&script) else { return };
    let sound = validated(&bench, "a.hkm", "always");
    assert_eq!((sound["class"].as_str(), sound["verdict"].as_str()), (Some("exact"), Some("ok")), "{sound}");
    assert!(number(&sound["measured"][0], "huge_pages_end") >= 8, "{sound}");
    fs::write(bench.path("planted"), "").expect("a file");
    let row = validated(&bench, "a.hkm", "always");
    assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("failed")), "{row}");
    assert_eq!(number(&row["measured"][0], "huge_pages_end"), 0, "{row}");
    let difference = &row["first_difference"];
    assert!(number(difference, "traps_predicted") < number(difference, "traps_measured"), "{row}");
    // Under never there is nothing to notice.
    let row = validated(&bench, "a.hkm", "never");
    assert_eq!(row["residual"], 0, "{row}");
}

/// A recording with huge pages lacks touches. Another one, made in another mode, has them: the program does not differ.
#[test]
fn huge_pages_that_the_program_switched_on_are_the_cause() {
    let _alone = alone();
    let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if mode.contains("[never]") {
        return eprintln!("skipped: the machine's mode is {mode}");
    }
    let (prctl, mmap, madvise, read) = (libc::SYS_prctl, libc::SYS_mmap, libc::SYS_madvise, libc::SYS_read);
    let script = format!(
        "syscall({prctl}, {}, 0, 0, 0, 0); my $n = 8 << 20; my $a = syscall({mmap}, 0, $n, 3, 0x22, -1, 0); \
         syscall({madvise}, $a, $n, 14); open my $f, '<', '/dev/zero'; syscall({read}, fileno($f), $a, $n); print 1;",
        libc::PR_SET_THP_DISABLE
    );
    let Some(bench) = recorded(&script) else { return };
    let row = validated(&bench, "a.hkm", "never");
    assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("failed")), "{row}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("switched huge pages on for itself") && !reason.contains("does not repeat"), "{row}");
}

/// Private memory of /dev/zero is anonymous, and so is that of MAP_DROPPABLE: predicted and measured.
#[test]
fn all_kinds_of_anonymous_memory_are_measured() {
    let _alone = alone();
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let program = bench.path("kinds");
    if bench.compile(data("anonymous-kinds.c"), "kinds", &["-O1"]).is_none() {
        return;
    }
    for kind in ["zero-device", "droppable"] {
        if Command::new(&program).arg(kind).output().expect("the program starts").status.code() == Some(2) {
            eprintln!("skipped: this kernel has no {kind} memory");
            continue;
        }
        bench.ok(&format!("record --memory --no-aslr -o a.hkm -- {} {kind}", program.display()));
        let row = validated(&bench, "a.hkm", "madvise");
        assert_eq!((row["class"].as_str(), row["verdict"].as_str()), (Some("exact"), Some("ok")), "{kind}: {row}");
        assert_eq!(number(&row["measured"][0], "huge_pages_end"), 2, "{kind}: {row}");
        assert!(number(&row["measured"][0], "rss_bytes_end") > 5 << 20, "{kind}: {row}");
    }
}

/// A machine in another mode than asked for is not measured.
#[test]
fn other_modes_are_not_measured_without_leave() {
    let _alone = alone();
    let Some(bench) = recorded("print 1;") else { return };
    // No other test, which may set modes at the same time, sets this one.
    let result = bench.json("validate a.hkm --run-recorded --thp madvise --mthp 1M=always --runs 2");
    assert_eq!((&result["verdict"], &result["rows"][0]["verdict"]), (&"skipped".into(), &"skipped".into()), "{result}");
    let reason = result["rows"][0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("this machine has other modes; add --set-modes"), "{result}");
}

#[test]
fn modes_that_change_during_the_run_are_noticed() {
    let _alone = alone();
    // A program that sets the mode itself, as another process could.
    let script = "open my $f, '>', '/sys/kernel/mm/transparent_hugepage/enabled'; print $f 'madvise'; close $f; \
        my @a = map { 'x' x 200 } 1 .. 30000; print scalar(@a);";
    let mode = || fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let before = mode();
    if !before.contains("[madvise]") {
        return eprintln!("skipped: the machine's mode is {before}");
    }
    let Some(bench) = recorded(script) else { return };
    let row = validated(&bench, "a.hkm", "always");
    assert_eq!(row["verdict"], "skipped", "{row}");
    assert!(row["reason"].as_str().is_some_and(|why| why.contains("modes changed during the runs")), "{row}");
    assert_eq!(mode(), before);
}
