//! Files and pipes: outputs are complete or absent, and a closed pipe is not an error.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::{Bench, number};

#[test]
fn unwritable_outputs_are_named_and_nothing_is_lost() {
    let bench = Bench::with_trace();
    fs::create_dir(bench.path("folder")).expect("a folder");
    for output in ["folder", "nowhere/x", "/proc/hksim-x"] {
        for line in ["gen tiny-hot --cycles 10", "info rm.hkt", "sim rm.hkt", "sweep rm.hkt", "import t.script"] {
            fs::write(bench.path("t.script"), "a 0 16\nf 0\n").expect("a script trace");
            let message = bench.refused(&format!("{line} -o {output}"));
            assert!(message.contains(output), "{line} -o {output}: {message}");
        }
    }
    bench.ok("gen tiny-hot --cycles 10 -o kept.hkt");
    let kept = fs::read(bench.path("kept.hkt")).expect("the trace");
    fs::write(bench.path("bad.script"), "a 0 16\nf 0\nwhat\n").expect("a script trace");
    let message = bench.refused("import bad.script -o kept.hkt");
    assert!(message.contains("bad.script:3"), "{message}");
    bench.refused("import kept.hkt -o kept.hkt");
    assert_eq!(fs::read(bench.path("kept.hkt")).expect("the file"), kept);
    let left: Vec<_> =
        fs::read_dir(bench.folder()).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
}

#[test]
fn a_full_disk_is_an_error() {
    let bench = Bench::with_trace();
    for line in ["gen tiny-hot --cycles 10 -o /dev/full", "info rm.hkt -o /dev/full", "sim rm.hkt -o /dev/full"] {
        let message = bench.refused(line);
        assert!(message.contains("/dev/full") && message.contains("No space left"), "{line}: {message}");
    }
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let ran = bench.command("sim rm.hkt").stdout(full).output().expect("hksim starts");
    let message = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{message}");
    assert!(message.contains("standard output"), "{message}");
}

#[test]
fn a_symbolic_link_is_kept() {
    let bench = Bench::new();
    bench.ok("gen tiny-hot --cycles 5 -o real.hkt");
    std::os::unix::fs::symlink("real.hkt", bench.path("link.hkt")).expect("a link");
    bench.ok("gen tiny-hot --cycles 10 -o link.hkt");
    assert!(fs::symlink_metadata(bench.path("link.hkt")).expect("the link").is_symlink());
    assert_eq!(bench.json("info real.hkt")["events"], 20);
}

#[test]
fn only_traces_are_replaced_by_traces() {
    let bench = Bench::with_trace();
    fs::write(bench.path("notes.txt"), "precious").expect("a file");
    fs::write(bench.path("t.script"), "a 0 16\nf 0\n").expect("a script trace");
    for line in [
        "record -q -o notes.txt true",
        "record -q --memory -o notes.txt true",
        "gen tiny-hot --cycles 10 -o notes.txt",
        "import t.script -o notes.txt",
        "trace cut rm.hkt --events ..9 -o notes.txt",
    ] {
        let said = bench.refused(line);
        assert!(said.contains("notes.txt: is no trace"), "{line}: {said}");
    }
    assert_eq!(fs::read(bench.path("notes.txt")).expect("the notes"), b"precious");
    fs::write(bench.path("empty.hkt"), "").expect("a file");
    bench.ok("gen tiny-hot --cycles 10 -o empty.hkt");
}

#[test]
fn a_recording_keeps_the_earlier_one_with_its_processes() {
    let bench = Bench::new();
    let names = |folder: &str| {
        let Ok(entries) = fs::read_dir(bench.path(folder)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().into_string().expect("a name")).collect::<Vec<String>>()
    };
    let pids_of = |folder: &str| names(folder).len();
    bench.ok("record -q -o a.hkt sh -c ls;ls;ls;:");
    let (first, processes) = (fs::read(bench.path("a.hkt")).expect("the trace"), names("a.hkt.processes"));
    assert!(!processes.is_empty());
    let again = bench.run("record -o a.hkt sh -c ls;ls;:");
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stderr.contains("is now") && again.stderr.contains("a.hkt.old"), "{}", again.stderr);
    assert_eq!(fs::read(bench.path("a.hkt.old")).expect("the earlier trace"), first);
    assert_eq!(names("a.hkt.processes.old"), processes);
    assert!(
        pids_of("a.hkt.processes") < processes.len() && names("a.hkt.processes").iter().all(|n| !processes.contains(n))
    );
    // A recording that fails replaces nothing, and only one generation is kept.
    let second = fs::read(bench.path("a.hkt")).expect("the trace");
    bench.refused("record -q -o a.hkt ./no-such-program");
    assert_eq!(fs::read(bench.path("a.hkt")).expect("the trace"), second);
    bench.ok("record -q -o a.hkt ls");
    assert_eq!(fs::read(bench.path("a.hkt.old")).expect("the earlier trace"), second);
    assert!(names("a.hkt.processes").is_empty());
    fs::write(bench.path("a.hkt.old"), "precious").expect("a file");
    assert!(bench.refused("record -q -o a.hkt ls").contains("a.hkt.old: is no trace"));
    assert_eq!(fs::read(bench.path("a.hkt.old")).expect("the notes"), b"precious");
}

#[test]
fn a_profile_does_not_replace_a_result() {
    let bench = Bench::with_trace();
    bench.ok("sim rm.hkt --format json -o sim.json");
    for line in ["explain rm.hkt --folded sim.json", "info rm.hkt --pprof sim.json"] {
        assert!(bench.refused(line).contains("sim.json: is JSON"), "{line}");
    }
    bench.ok("sim rm.hkt --format json -o sim.json");
    bench.ok("explain rm.hkt --folded stacks.folded -o explain.txt");
    bench.ok("explain rm.hkt --folded stacks.folded -o explain.txt");
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let bench = Bench::with_trace();
    // More than the capacity of a pipe, so that the write fails.
    let line = "sweep rm.hkt --superslab 1M,2M,4M,8M --huge --cache 1,2,3 --format json";
    let mut child = bench.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hksim starts");
    let mut first = [0; 1];
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut first).expect("a first byte");
    drop(out);
    let ended = child.wait_with_output().expect("hksim ends");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn an_output_file_has_what_would_be_printed() {
    let bench = Bench::with_trace();
    for format in ["table", "json", "csv"] {
        let printed = bench.ok(&format!("info rm.hkt --format {format}"));
        assert_eq!(bench.ok(&format!("info rm.hkt --format {format} -o out")), "");
        assert_eq!(fs::read_to_string(bench.path("out")).expect("the file"), printed, "{format}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_named_before_the_work() {
    let bench = Bench::with_trace();
    fs::write(bench.path("ran-once"), "#!/bin/sh\nmkdir ran\n").expect("a program");
    fs::set_permissions(bench.path("ran-once"), fs::Permissions::from_mode(0o755))
        .expect("the program is made executable");
    // If the check came after the work, each command would print another error or run for an hour.
    for line in [
        "calibrate --rounds 10000 --seconds 3600",
        "sim none.hkt",
        "sweep none.hkt",
        "info none.hkt",
        "replay none.hkt",
        "validate none.hkt",
        "compare none.hkt",
        "rules --script none.txt",
        "import --faults none.txt",
        "trace shrink rm.hkt --while ./ran-once{}",
        "record --backend ltrace",
        "record",
    ] {
        let line = match line.split_once(' ') {
            Some(("record", _)) | None => format!("{line} -o nowhere/x -- ./ran-once"),
            Some(_) => format!("{line} -o nowhere/x"),
        };
        let message = bench.refused(&line);
        assert!(message.contains("nowhere/x"), "{line}: {message}");
        assert!(!bench.path("ran").exists(), "{line}: ran");
    }
    for line in
        ["sim none.hkt --dump-pages", "sweep none.hkt --plot", "info none.hkt --plot", "compare none.hkt --plot"]
    {
        let message = bench.refused(&format!("{line}=nowhere/x.svg"));
        assert!(message.contains("nowhere/x.svg"), "{line}: {message}");
    }
    // The existing file stays if the work fails later.
    fs::write(bench.path("kept"), "kept").expect("a file");
    bench.refused("validate none.hkt -o kept");
    assert_eq!(fs::read(bench.path("kept")).expect("the file"), b"kept");
    assert_eq!(fs::read_dir(bench.folder()).expect("the folder").count(), 3, "rm.hkt, ran-once and kept");
}

#[test]
fn a_dash_is_standard_output_for_results_only() {
    let bench = Bench::with_trace();
    for line in ["info rm.hkt --format csv", "export rm.hkt --to rep"] {
        assert_eq!(bench.ok(&format!("{line} -o -")), bench.ok(line), "{line}");
    }
    for line in [
        "gen tiny-hot --cycles 10 -o -",
        "import t.script -o -",
        "trace anonymise rm.hkt -o -",
        "record -o - -- true",
        "calibrate -o -",
        "sweep rm.hkt --plot=-",
        "info rm.hkt --plot -",
        "sim rm.hkt --dump-pages -",
    ] {
        fs::write(bench.path("t.script"), "a 0 16\nf 0\n").expect("a script trace");
        let message = bench.refused(line);
        assert!(message.contains("not standard output"), "{line}: {message}");
    }
    assert!(!bench.path("-").exists());
    bench.ok("gen tiny-hot --cycles 10 -o ./-");
    assert_eq!(bench.json("info ./-")["events"], 20);
}

#[test]
fn a_dash_is_standard_input_for_single_pass_inputs() {
    let bench = Bench::new();
    let from_input = |line: &str, bytes: &[u8]| {
        let mut command = bench.command(line);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("hksim starts");
        // A command that refuses its input may not read all of it.
        let _ = child.stdin.take().expect("stdin is piped").write_all(bytes);
        let ended = child.wait_with_output().expect("hksim ends");
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned(), ended.stdout)
    };
    let script = b"a 0 16\na 1 100\nf 0\nf 1\n";
    assert_eq!(from_input("import - -o t.hkt", script).0, Some(0));
    assert_eq!(bench.json("info t.hkt")["events"], 4);
    let (code, message, _) = from_input("import - -o t.hkt", b"a 0 16\nf 0\nwhat\n");
    assert!(code == Some(2) && message.contains("-:3"), "{message}");
    let (code, message, _) = from_input("import - -o t.hkt", b"PK\x03\x04 and more of it");
    assert!(code == Some(2) && message.contains("from a file"), "{message}");

    let faults: String = (0..9).map(|page| format!("t 1 1.{page}: 1 page-faults: 7f0000{page}000\n")).collect();
    fs::write(bench.path("k.txt"), &faults).expect("a script of perf's");
    let named = bench.ok("import --faults k.txt --format csv");
    let (code, message, stdout) = from_input("import --faults - --format csv", faults.as_bytes());
    assert_eq!((code, String::from_utf8_lossy(&stdout).into_owned()), (Some(0), named), "{message}");
    assert!(bench.refused("import --faults - --maps -").contains("--maps"));

    // Traces are read twice.
    for line in ["info -", "sim -", "trace verify -", "validate -"] {
        assert!(bench.refused(line).contains("save a pipe to a file"), "{line}");
    }
}

#[test]
fn a_trace_is_validated_without_a_temporary_directory() {
    let bench = Bench::with_trace();
    let validated = |line: &str| {
        let ran = bench.command(line).env("TMPDIR", bench.path("nowhere")).output().expect("hksim starts");
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let (code, message) = validated("validate rm.hkt --huge never");
    assert_eq!(code, Some(0), "{message}");
    let (code, message) = validated("validate --huge never");
    assert!(code == Some(2) && message.contains("set TMPDIR") && message.contains("nowhere"), "{message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{message}");
}

#[test]
fn an_output_replaces_no_input_and_no_other_output() {
    let bench = Bench::with_trace();
    let faults: String = (0..9).map(|page| format!("t 1 1.{page}: 1 page-faults: 7f0000{page}000\n")).collect();
    fs::write(bench.path("f.txt"), &faults).expect("a script of perf's");
    fs::write(bench.path("s.txt"), "w 0 1 1\n").expect("a page-op script");
    fs::write(bench.path("p.toml"), "version = 1\n").expect("a profile");
    // Inputs may have the names of pictures.
    fs::write(bench.path("f.svg"), &faults).expect("a script of perf's");
    fs::write(bench.path("p.svg"), "version = 1\n").expect("a profile");
    for (line, named) in [
        ("import --faults f.txt -o f.txt", "f.txt"),
        ("import --faults f.txt -o ./f.txt", "f.txt"),
        ("import --faults f.svg --plot f.svg", "f.svg"),
        ("import --faults f.txt --maps s.txt -o s.txt", "s.txt"),
        ("import --faults f.txt -o out.svg --plot out.svg", "out.svg"),
        ("rules --script s.txt --predict-only -o s.txt", "s.txt"),
        ("sim rm.hkt --profile p.toml -o p.toml", "p.toml"),
        ("sim rm.hkt -o d.json --dump-pages d.json", "d.json"),
        ("sweep rm.hkt --profile p.svg --plot=p.svg", "p.svg"),
        ("validate rm.hkt --profile p.toml -o p.toml", "p.toml"),
    ] {
        let message = bench.refused(line);
        assert!(message.contains(named) && message.contains("would be lost"), "{line}: {message}");
    }
    assert_eq!(fs::read_to_string(bench.path("f.txt")).expect("the file is kept"), faults);
    assert_eq!(fs::read_to_string(bench.path("f.svg")).expect("the file is kept"), faults);
    assert_eq!(fs::read_to_string(bench.path("p.toml")).expect("the file is kept"), "version = 1\n");
    assert_eq!(fs::read_to_string(bench.path("p.svg")).expect("the file is kept"), "version = 1\n");
    assert!(!bench.path("out.svg").exists() && !bench.path("d.json").exists());
}

#[test]
fn recordings_of_both_kinds_keep_their_processes() {
    let bench = Bench::new();
    let names = |folder: &str| {
        let Ok(entries) = fs::read_dir(bench.path(folder)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    // The names that README uses for one program.
    bench.ok("record -q -o app.hkt sh -c ls;ls;:");
    let of_calls = names("app.hkt.processes");
    assert_eq!(of_calls.len(), 2);
    let ran = bench.run("record --memory -q -o app.hkm sh -c (ls);(ls);:");
    if ran.code != Some(0) {
        return println!("skipped: {}", ran.stderr);
    }
    let of_pages = names("app.hkm.processes");
    assert!(of_pages.len() > 2, "each child and each program has a file: {of_pages:?}");
    bench.ok("record -q -o app.hkt ls");
    assert_eq!((names("app.hkt.processes.old"), names("app.hkm.processes")), (of_calls, of_pages));
    // Without the children's files, a prediction of the parent says so.
    assert!(!bench.run("sim app.hkm").stderr.contains("missing"));
    fs::rename(bench.path("app.hkm.processes"), bench.path("elsewhere")).expect("a folder");
    let alone = bench.run("sim app.hkm --format json");
    assert!(alone.stderr.contains("2 recordings of forked children missing"), "{}", alone.stderr);
    assert!(alone.stdout.contains("\"children_missing\": 2"), "{}", alone.stdout);
    // Versions before named the folder without the extension.
    fs::rename(bench.path("elsewhere"), bench.path("app.processes")).expect("a folder");
    assert!(!bench.run("sim app.hkm").stderr.contains("missing"));
}

#[test]
fn of_two_recordings_to_one_name_the_second_is_refused() {
    let bench = Bench::new();
    let begin = |kind: &str| {
        let output = if kind.contains("-o ") { "" } else { "-o one.hkt" };
        let line = format!("record {kind} -q {output} sh -c echo;cat");
        let mut child = bench.command(&line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("hksim");
        // The program runs.
        child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("a line");
        child
    };
    let mut first = begin("");
    let pid = first.id();
    for line in ["record -q -o one.hkt ls", "record --memory -q -o one.hkt ls", "record -q -o ./one.hkt ls"] {
        let said = bench.refused(line);
        assert!(said.contains(&format!("another hksim (process {pid}) records to this file now")), "{line}: {said}");
    }
    // Ways of recording that write at the end only.
    let said = bench.refused("record --backend ltrace -o one.hkt ls");
    assert!(said.contains("records to this file now"), "{said}");
    let mut other = begin("--max-size 1G -o other.hkt");
    other.kill().expect("a running process");
    other.wait().expect("hksim");
    let mut session = fs::read_dir(bench.folder()).expect("the folder").flatten().map(|entry| entry.path());
    let session = session.find(|path| path.to_string_lossy().contains(".other.hkt.recording-")).expect("a session");
    let recover = format!("record --recover {}", session.display());
    let said = bench.refused(&format!("{recover} -o one.hkt"));
    assert!(said.contains("records to this file now"), "{said}");
    // A recovered recording does not replace an earlier one.
    fs::write(bench.path("other.hkt"), "").expect("a file");
    bench.ok("record -q -o other.hkt ls");
    let events = number(&bench.json("info other.hkt"), "events");
    bench.ok(&recover);
    assert_eq!(number(&bench.json("info other.hkt.old"), "events"), events);
    drop(first.stdin.take());
    assert!(first.wait().expect("hksim").success());
    bench.ok("info one.hkt");
    // A killed recorder claims nothing.
    let mut killed = begin("");
    killed.kill().expect("a running process");
    killed.wait().expect("hksim");
    bench.ok("record -q -o one.hkt ls");
    let left: Vec<_> =
        fs::read_dir(bench.folder()).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".lock")), "{left:?}");
}
