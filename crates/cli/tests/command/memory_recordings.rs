//! `hksim record --memory`, and the tools for its files. A program whose page operations are known is the oracle.
//!
//! Recording needs root and a C compiler; tools are also tested on a recording that is checked in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::recordings::{can_record, data, with_recording};
use crate::support::{Bench, number};

/// Compiles the program whose page operations are known; `None`, with the reason printed, without a compiler.
fn compiled(bench: &Bench) -> Option<()> {
    let flags = ["-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fcf-protection=none"];
    bench.compile(data("page-operations.c"), "ops", &flags)
}

fn only_child(bench: &Bench, folder: &str) -> PathBuf {
    let mut files = fs::read_dir(bench.path(folder)).expect("a directory").flatten().map(|entry| entry.path());
    let child = files.next().expect("a child");
    assert_eq!(files.next(), None);
    child
}

/// Names in the directory, sorted.
fn names(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.folder()).expect("the directory").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The region with this many bytes and this use.
fn region<'a>(result: &'a Value, kind: &str, bytes: u64) -> &'a Value {
    let regions = result["regions"].as_array().expect("regions");
    let found = regions.iter().find(|region| region["use"] == kind && region["bytes"] == bytes);
    found.unwrap_or_else(|| panic!("no {kind} of {bytes} bytes: {regions:?}"))
}

/// Checks a recording of page-operations.c against what that program does.
fn check_counts(bench: &Bench, parent: &str, child: &Path) {
    let info = bench.json(&format!("info {parent}"));
    let calls = [("mmap", 3), ("munmap", 2), ("brk", 1), ("madvise", 1), ("mremap", 1)];
    for (call, calls) in calls {
        assert_eq!(info["calls"][call], calls, "{call}: {info}");
    }
    assert_eq!((&info["forks"], &info["lost_events"], &info["threads"]), (&1.into(), &0.into(), &1.into()));
    assert_eq!((&info["complete"], &info["footer"]["end"]), (&true.into(), &"exit".into()));
    // 100 + 8 + 1024 pages by mmap, 16 by brk.
    assert_eq!(info["mapped_bytes"]["anonymous"], (100 + 8 + 1024 + 16) * 4096);
    // Others are in files and on the stack.
    let writes = 60 + 5 + 4 + 1 + 16 + 8 + 24 + 1024 + 3;
    assert!(number(&info, "touches.write") >= writes && number(&info, "touches.read") >= 10, "{info}");

    let never = bench.json(&format!("sim {parent} --thp never"));
    assert_eq!(never["recording"]["traps_recorded"], writes + 10);
    for (path, expected) in [
        ("traps", writes + 10),
        ("installs.by_kind.base_4k", 60 + 4 + 1 + 16 + 8 + 24 + 1024),
        ("installs.by_kind.zero", 10),
        ("installs.by_kind.cow", 5),
        // The child is gone when its parent writes.
        ("reuses", 3),
        ("rss_bytes_end", (40 + 5 + 1 + 8 + 32 + 1024) * 4096),
        ("huge_pages_peak", 0),
    ] {
        assert_eq!(number(&never, path), expected, "{path}: {never}");
    }
    for (kind, pages, touches) in
        [("mmap", 100, 60 + 10 + 5 + 4 + 1 + 3), ("mmap", 8, 8 + 24), ("mmap", 1024, 1024), ("heap", 16, 16)]
    {
        assert_eq!(number(region(&never, kind, pages * 4096), "touches"), touches, "{kind} of {pages} pages");
    }
    let always = bench.json(&format!("sim {parent} --thp always"));
    assert_eq!((number(&always, "installs.by_kind.thp"), number(&always, "huge_pages_end")), (2, 2));
    assert_eq!(number(&always, "traps"), writes + 10 - 1024 + 2);
    let short = &region(&always, "mmap", 100 * 4096)["obstacles"][0];
    assert_eq!((&short["place"], &short["installs"]), (&"mapping_too_short".into(), &(60 + 10 + 5 + 4 + 1).into()));

    let child = child.display();
    let info = bench.json(&format!("info {child}"));
    assert_eq!(info["header"]["beginning"]["kind"], "fork", "{info}");
    let never = bench.json(&format!("sim {child} --thp never"));
    assert_eq!((number(&never, "traps"), number(&never, "installs.by_kind.cow")), (7, 7), "{never}");
}

#[test]
fn counts_are_those_of_the_program() {
    let bench = with_recording();
    check_counts(&bench, "ops.hkm", &bench.path("ops.hkm.processes/child.hkm"));
}

#[test]
fn a_new_recording_has_the_same_counts() {
    let bench = Bench::new();
    if !can_record() || compiled(&bench).is_none() {
        return;
    }
    for flags in ["--no-aslr", ""] {
        let ran =
            bench.run(&format!("record --memory {flags} -o new.hkm --format json -- {}", bench.path("ops").display()));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let report: Value = serde_json::from_str(&ran.stderr).expect("JSON");
        assert_eq!((&report["exit_code"], &report["lost_events"]), (&0.into(), &0.into()), "{report}");
        assert_eq!(report["files"].as_array().expect("files").len(), 2);
        check_counts(&bench, "new.hkm", &only_child(&bench, "new.hkm.processes"));
    }
    // The second recording keeps the first, and mixes nothing.
    assert_eq!(names(&bench), ["new.hkm", "new.hkm.old", "new.hkm.processes", "new.hkm.processes.old", "ops"]);
}

#[test]
fn tools_keep_what_they_promise() {
    let bench = with_recording();
    let whole = bench.json("sim ops.hkm --thp always");
    let cut = bench.json("trace cut ops.hkm --events ..500 -o part.hkm");
    assert_eq!((&cut["events"], &cut["complete"]), (&500.into(), &false.into()));
    assert_eq!(bench.json("info part.hkm")["events"], 500);
    let time = bench.json("trace cut ops.hkm --to 1ms -o part.hkm");
    assert!(number(&time, "duration_ns") <= 1_000_000 && number(&time, "events") > 0, "{time}");
    bench.ok("trace verify part.hkm");

    bench.ok("trace anonymise ops.hkm -o public.hkm");
    let public = bench.json("sim public.hkm --thp always");
    assert_eq!(public["regions"], whole["regions"], "the same prediction");
    let bytes = fs::read(bench.path("public.hkm")).expect("the recording");
    for name in ["page-operations", "hksim/", "/home"] {
        assert!(!bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{name} is gone");
    }
    assert!(bench.ok("info public.hkm").contains("anonymise"));

    let bytes = fs::read(bench.path("ops.hkm")).expect("the recording");
    fs::write(bench.path("short.hkm"), &bytes[..bytes.len() - 10]).expect("a file");
    let ran = bench.run("trace verify short.hkm --repair whole.hkm");
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("NOT sound: truncated"), "{}", ran.stdout);
    bench.ok("trace verify whole.hkm");
    let repaired = bench.json("sim whole.hkm --thp always");
    assert_eq!(repaired["regions"], whole["regions"], "only the footer was lost");
    let ran = bench.run("info short.hkm");
    assert!(ran.code == Some(0) && ran.stderr.contains("short.hkm: the end is missing"), "{}", ran.stderr);
}

#[test]
fn wrong_files_and_flags_are_refused_with_one_line() {
    let bench = with_recording();
    let bytes = fs::read(bench.path("ops.hkm")).expect("the recording");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(bench.path("damaged.hkm"), &damaged).expect("a file");
    fs::write(bench.path("header.hkm"), &bytes[..100]).expect("a file");
    bench.ok("gen tiny-hot --cycles 100 -o th.hkt");
    let kind = "this is a memory recording (.hkm)";
    for (line, expected) in [
        ("info damaged.hkm", "damaged at byte"),
        ("sim damaged.hkm", "damaged at byte"),
        ("sweep damaged.hkm --thp never,always", "damaged at byte"),
        ("trace cut damaged.hkm -o x.hkm", "trace verify --repair"),
        ("trace anonymise damaged.hkm -o x.hkm", "damaged at byte"),
        ("info header.hkm", "header is damaged"),
        ("sim header.hkm", "header is damaged"),
        ("validate header.hkm", "header is damaged"),
        ("validate ops.hkm --run-recorded --by site", "sim --by site"),
        ("validate ops.hkm", "put the command at the end: -- COMMAND"),
        ("trace cut ops.hkm --from 1ms -o x.hkm", "can only be cut at its end"),
        ("trace cut ops.hkm --events 5..9 -o x.hkm", "can only be cut at its end"),
        ("trace cut ops.hkm --mark here -o x.hkm", "can only be cut at its end"),
        ("trace cut ops.hkm --to 1ns -o x.hkm", "has no events"),
        ("trace cut ops.hkm --to 1ms -o ops.hkm", "both input and output"),
        ("trace cut ops.hkm --to 1ms -o missing/x.hkm", "no directory"),
        ("trace cut ops.hkm -o /dev/full", "/dev/full: cannot write: No space left"),
        ("trace anonymise ops.hkm --sizes classes -o x.hkm", "--sizes is for traces"),
        ("sim ops.hkm -o ops.hkm", "must not replace"),
        ("info ops.hkm -o ops.hkm", "must not replace"),
        ("info ops.hkm --sites", "no call stacks were recorded"),
        ("info ops.hkm --plot=x.svg", "--plot is for traces"),
        ("sim ops.hkm --superslab 1M", "hksim's allocator"),
        ("sim th.hkt --advise all", "--advise is for memory recordings"),
        ("sweep ops.hkm th.hkt", "separately"),
        ("trace merge ops.hkm th.hkt -o x.hkt", kind),
        ("trace scale ops.hkm --time 2 -o x.hkt", kind),
        ("trace symbolise ops.hkm -o x.hkt", kind),
        ("trace shrink ops.hkm --keep faults>1 -o x.hkt", kind),
        ("replay ops.hkm --on glibc", kind),
        ("compare ops.hkm --allocators glibc", kind),
        ("export ops.hkm --to csv -o x.csv", kind),
        ("import ops.hkm -o x.hkt", kind),
        ("plot ops.hkm -o x.svg", kind),
        ("run -- ./ops.hkm", kind),
    ] {
        let text = bench.refused(line);
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert_eq!(fs::read(bench.path("ops.hkm")).expect("the recording"), bytes, "no output replaced the input");
    assert_eq!(names(&bench), ["damaged.hkm", "header.hkm", "ops.hkm", "ops.hkm.processes", "th.hkt"]);
}

#[test]
fn a_recording_that_cannot_begin_leaves_nothing() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    for (line, expected) in [
        ("record --memory -o a.hkm -- ./no-such-program", "cannot start ./no-such-program: No such file"),
        ("record --memory -o a.hkm -- /dev/null", "cannot start /dev/null: Permission denied"),
        ("record --memory -o missing/a.hkm -- touch ran", "there is no directory missing"),
        ("record --memory -o /dev/full -- touch ran", "/dev/full: is a device or a pipe"),
        ("record --memory -o . -- touch ran", ".: is a directory"),
    ] {
        let text = bench.refused(line);
        assert!(text.contains(expected), "{line}: {text}");
        assert_eq!(names(&bench), Vec::<String>::new(), "{line}");
    }
}

#[test]
fn another_user_records_less() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    fs::set_permissions(bench.folder(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let mut command = bench.command("record --memory -o a.hkm -- touch ran");
    // The user nobody.
    let output = match command.uid(65_534).gid(65_534).output() {
        Ok(output) => output,
        Err(why) => return eprintln!("skipped: hksim cannot be run as nobody: {why}"),
    };
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    if text.starts_with("hksim: cannot observe page faults: ") || text.starts_with("hksim: cannot stop the program ") {
        assert_eq!((output.status.code(), names(&bench)), (Some(2), Vec::new()), "{text}");
        return eprintln!("skipped: {text}");
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("recorded without tracepoints, which need root: "), "{text}");
    assert!(bench.path("ran").exists());
    let shown = bench.json("info a.hkm");
    assert_eq!(shown["header"]["visibility"]["calls"], "stops");
    assert!(number(&shown, "touches.unknown") > 0);
}

#[test]
fn a_full_disk_is_reported() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    // A limit on the size of files, in blocks of 512 or 1024 bytes, acts as a full disk.
    let hksim = env!("CARGO_BIN_EXE_hksim");
    let script =
        format!("ulimit -f 1; exec {hksim} record --memory -o a.hkm -- bash -c 'for i in {{1..400}}; do $(:); done'");
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(bench.folder()).output().expect("bash starts");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("cannot write: File too large"), "{text}");
    assert_eq!(names(&bench), [""; 0], "nothing is left behind");
}

/// Whether a process may have huge pages.
fn may_have_huge_pages(pid: u32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).map(|value| value.trim() == "1")
}

#[test]
fn processes_that_outlive_the_recorder_get_huge_pages_back() {
    if !can_record() {
        return;
    }
    match may_have_huge_pages(std::process::id()) {
        Some(true) => {}
        shown => return eprintln!("skipped: huge pages of this process by THP_enabled: {shown:?}"),
    }
    for ending in ["-KILL", "--duration"] {
        let bench = Bench::new();
        fs::write(bench.path("job.sh"), "sleep 30 & echo $! $$ > pids.new; mv pids.new pids; wait").expect("a script");
        let limit = if ending == "--duration" { "--duration 1s" } else { "" };
        let mut recorder =
            bench.command(&format!("record --memory {limit} -o a.hkm -- sh job.sh")).spawn().expect("hksim starts");
        wait_for(&bench.path("pids"));
        let text = fs::read_to_string(bench.path("pids")).expect("process ids");
        let pids: Vec<u32> = text.split_whitespace().map(|word| word.parse().expect("a process id")).collect();
        let before: Vec<_> = pids.iter().map(|&pid| may_have_huge_pages(pid)).collect();
        assert_eq!(before, [Some(false); 2], "while they are recorded");
        if ending == "-KILL" {
            recorder.kill().expect("the recorder runs");
        }
        recorder.wait().expect("the recorder ends");
        let begin = Instant::now();
        while pids.iter().any(|&pid| may_have_huge_pages(pid) != Some(true)) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{ending}: {pids:?} are still without huge pages");
            sleep(Duration::from_millis(5));
        }
        for pid in pids {
            // SAFETY: takes only numbers; the process is this test's own.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
}

#[test]
fn of_two_recordings_to_one_file_one_is_refused() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let start =
        || bench.command("record --memory -o a.hkm -- sleep 0.2").stderr(Stdio::piped()).spawn().expect("hksim");
    let outputs = [start(), start()].map(|running| running.wait_with_output().expect("hksim ends"));
    let mut codes = outputs.map(|output| output.status.code());
    codes.sort();
    assert_eq!(codes, [Some(0), Some(2)]);
    bench.ok("trace verify a.hkm");
    assert_eq!(names(&bench), ["a.hkm"]);
}

fn wait_for(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} does not appear", path.display());
        sleep(Duration::from_millis(2));
    }
}

/// Signals to the recorder alone, and to its process group as the terminal sends them.
#[test]
fn an_interrupt_ends_the_program_and_the_recording_is_written() {
    if !can_record() {
        return;
    }
    for (signal, to_group) in [(libc::SIGINT, true), (libc::SIGINT, false), (libc::SIGTERM, false)] {
        let bench = Bench::new();
        fs::write(bench.path("job.sh"), "touch ready; n=0; while [ $n -lt 20000000 ]; do n=$((n+1)); done")
            .expect("a script");
        let mut command = bench.command("record --memory -o a.hkm --format json -- sh job.sh");
        command.process_group(0).stderr(Stdio::piped());
        // A shell's background job ignores SIGINT, and so do the programs that it starts.
        let heeds_interrupts = || {
            // SAFETY: touches no memory.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: the closure only makes a system call.
        unsafe { command.pre_exec(heeds_interrupts) };
        let running = command.spawn().expect("hksim starts");
        wait_for(&bench.path("ready"));
        let recorder = running.id() as i32;
        // SAFETY: touches no memory; the process is a child that is not reaped yet.
        assert_eq!(unsafe { libc::kill(if to_group { -recorder } else { recorder }, signal) }, 0);
        let output = running.wait_with_output().expect("hksim ends");
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{text}");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["exit_signal"], signal, "{report}");
        let info = bench.json("info a.hkm");
        assert_eq!((&info["complete"], &info["footer"]["end"]), (&true.into(), &"exit".into()), "{info}");
        assert!(!names(&bench).iter().any(|name| name.contains(".recording-")), "its folder is gone");
    }
}

/// glibc advises its heap if it reads the mode madvise at its start, so each row needs a replay that reads its own mode.
#[test]
fn allocators_behave_as_under_the_mode_of_their_row() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    bench.ok("gen server --live 8M --threads 1 --events 40k -o s.hkt");
    let sweep = |modes: &str| {
        let result = bench.json(&format!("sweep s.hkt --allocators glibc:hugetlb=1 --thp {modes}"));
        result["rows"].as_array().expect("rows").clone()
    };
    let rows = sweep("always,madvise,never");
    let modes: Vec<_> = rows.iter().map(|row| row["recording"]["machine"]["thp_mode"].clone()).collect();
    assert_eq!(modes, ["always", "madvise", "never"], "the mode that the allocator read");
    let advised = |row: &serde_json::Value| row["kernel"]["thp"]["global"].clone();
    assert_eq!(rows.iter().map(advised).collect::<Vec<_>>(), modes, "in the order of the settings");
    // Only under madvise the heap grows by 2 MiB.
    let traps = |row: &serde_json::Value| number(row, "traps");
    let alone = sweep("madvise");
    assert_eq!(traps(&alone[0]), traps(&rows[1]), "whatever other rows there are");
    assert!(number(&rows[1], "huge_pages_peak") > 0 && number(&rows[0], "huge_pages_peak") == 0, "{rows:?}");
}
