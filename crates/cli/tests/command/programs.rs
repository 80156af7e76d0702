//! Recording and importing through the command.

use crate::support::{Bench, number};

#[test]
fn a_recorded_program_can_be_simulated() {
    let bench = Bench::new();
    let ran = bench.run("record -o ls.hkt -- ls /");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("proc"), "standard output is the program's: {}", ran.stdout);
    assert!(ran.stderr.contains("ls.hkt"), "{}", ran.stderr);
    let info = bench.json("info ls.hkt");
    assert!(number(&info, "mallocs") > 0);
    assert_eq!(info["origin"]["command"], serde_json::json!(["ls", "/"]));
    let sim = bench.json("sim ls.hkt");
    assert_eq!(sim["events"], info["events"]);
    assert_eq!(number(&sim, "live_bytes_peak"), number(&info, "live_bytes_peak"));
}

#[test]
fn a_failing_program_is_recorded_and_reported() {
    let bench = Bench::new();
    let ran = bench.run("record -o ls.hkt -- ls /no-such-folder");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("the program exited with 2"), "{}", ran.stderr);
    assert!(number(&bench.json("info ls.hkt"), "events") > 0);
}

#[test]
fn child_processes_and_images_are_reported() {
    let bench = Bench::new();
    let ran = bench.run("record -o sh.hkt -- env env sh -c /bin/echo;/bin/echo");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(bench.path("sh.hkt").exists(), "{}", ran.stderr);
    let mut traces = 0;
    for entry in std::fs::read_dir(bench.path("sh.hkt.processes")).expect("the folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(["sh.", "env.", "echo."].iter().any(|program| name.starts_with(program)), "{name}");
        assert!(ran.stderr.contains(&name), "{name}: {}", ran.stderr);
        traces += 1;
    }
    assert!(ran.stderr.contains(&format!("sh.hkt.processes: {traces} trace")), "{}", ran.stderr);
    assert!(ran.stderr.contains("0 lost, "), "{}", ran.stderr);
}

#[test]
fn a_command_needs_no_double_dash() {
    let bench = Bench::new();
    for line in ["record -o a.hkt ls -la /", "record -o a.hkt -- ls -la /", "record -q -o a.hkt ls --color=never -la /"]
    {
        let _ = std::fs::remove_file(bench.path("a.hkt"));
        let ran = bench.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        assert!(ran.stdout.contains("proc"), "{line}: {}", ran.stdout);
        assert!(bench.path("a.hkt").exists(), "{line}");
    }
}

#[test]
fn the_environment_is_unchanged() {
    let bench = Bench::new();
    let entries = ["ZED=1", "ABLE=2", "ZED=3", "LD_PRELOAD=", "no equals sign", "MIDDLE=x y"];
    // Python can start a process with any environment, which /proc shows.
    std::fs::write(
        bench.path("run.py"),
        format!(
            "import ctypes, sys\nlibc = ctypes.CDLL(None)\nwords = [word.encode() for word in sys.argv[1:]] + [None]\n\
             own = [entry.encode() for entry in {entries:?}] + [None]\n\
             libc.execve(words[0], (ctypes.c_char_p * len(words))(*words), (ctypes.c_char_p * len(own))(*own))\n"
        ),
    )
    .expect("a script");
    let command = format!("{} record -q -o a.hkt -- /bin/cat /proc/self/environ", env!("CARGO_BIN_EXE_hksim"));
    let ran = std::process::Command::new("python3")
        .arg("run.py")
        .args(command.split(' '))
        .current_dir(bench.folder())
        .output();
    let Ok(ran) = ran else {
        return println!("skipped: python3 is not installed");
    };
    let text = String::from_utf8_lossy(&ran.stdout);
    let seen: Vec<&str> = text.split_terminator('\0').collect();
    assert!(seen[3].starts_with("LD_PRELOAD=") && seen[3].ends_with("preload.so"), "{seen:?}");
    let others: Vec<&str> = seen.iter().copied().filter(|entry| !entry.starts_with("LD_PRELOAD=")).collect();
    assert_eq!(others[..5], ["ZED=1", "ABLE=2", "ZED=3", "no equals sign", "MIDDLE=x y"], "{seen:?}");
    assert!(others[5..].iter().all(|entry| entry.starts_with("HKSIM_RECORD_")), "{seen:?}");
}

#[test]
fn a_fatal_signal_is_reported_without_any_event() {
    let bench = Bench::new();
    std::fs::write(bench.path("dies.c"), "#include <signal.h>\nint main(void) { raise(SIGSEGV); }\n").expect("a file");
    bench.compile("dies.c", "dies", &[]).expect("a C compiler");
    let line = bench.refused("record -o x.hkt -- ./dies");
    assert!(line.contains("nothing was recorded (signal 11 ended the program)"), "{line}");
    let line = bench.refused("record -o x.hkt -- false");
    assert!(line.contains("(the program exited with 1)"), "{line}");
}

#[test]
fn the_json_report_has_a_schema_and_excluded_processes() {
    let bench = Bench::new();
    let ran = bench.run("record --format json --only ls --only cat -o a.hkt sh -c ls;ls;echo");
    let report: serde_json::Value = serde_json::from_str(&ran.stderr).expect("JSON");
    assert_eq!(report["schema"], 2);
    assert_eq!(report["traces"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["excluded_processes"], 1, "the shell: {report}");
    let refused = bench.run("record --only bin/ls -o a.hkt ls");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("without its directory"), "{}", refused.stderr);
}

#[test]
fn a_running_process_is_reported() {
    let bench = Bench::new();
    let script = "(while :; do echo x; done >/dev/null 2>&1 & echo $! >pid)\nls >/dev/null\n";
    std::fs::write(bench.path("daemon.sh"), script).expect("a script");
    let ran = bench.run("record -q -o a.hkt sh daemon.sh");
    let pid: i32 = std::fs::read_to_string(bench.path("pid")).expect("its id").trim().parse().expect("a number");
    // SAFETY: a process started by this test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("is kept for processes that still run"), "{}", ran.stderr);
}

/// The events per clock read in a recording of `ls`, and the clock in its header.
fn events_for_each_time(clock: &str) -> (f64, serde_json::Value) {
    let bench = Bench::new();
    let ran = bench.run(&format!("record {clock} -o ls.hkt -- ls -lR /usr/share/doc"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    bench.ok("export ls.hkt --to csv -o ls.csv");
    let text = std::fs::read_to_string(bench.path("ls.csv")).expect("the exported trace");
    let header = text.lines().nth(1).and_then(|line| line.split_once(",\"")).expect("a header's row").1;
    let header = header.trim_end_matches('"').replace("\"\"", "\"");
    let header: serde_json::Value = serde_json::from_str(&header).expect("a header");
    let times: Vec<&str> = text.lines().skip(2).filter_map(|line| line.split(',').nth(1)).collect();
    let distinct = times.iter().collect::<std::collections::HashSet<_>>().len();
    assert!(times.len() > 1000, "worth recording: {}", times.len());
    (times.len() as f64 / distinct as f64, header["clock_events"].clone())
}

#[test]
fn the_clock_is_read_at_the_requested_rate() {
    let (every, header) = events_for_each_time("--clock every");
    assert!(every < 1.5 && header.is_null(), "{every} {header}");
    let (sixteenth, header) = events_for_each_time("--clock 16");
    assert!((2.0 * every..=17.0).contains(&sixteenth) && header == 16, "{sixteenth} {header}");
}

#[test]
fn a_coarse_clock_excludes_touches() {
    let bench = Bench::new();
    for accesses in ["pages", "full"] {
        let line = bench.refused(&format!("record --clock 16 --accesses {accesses} -o x.hkt -- true"));
        assert!(line.contains("leave out --accesses or --clock"), "{line}");
    }
    for wrong in ["--clock 16 --stacks", "--clock 8", "--clock 16 --backend ltrace"] {
        let ran = bench.run(&format!("record {wrong} -o x.hkt -- true"));
        assert_eq!(ran.code, Some(2), "{wrong}: {}", ran.stderr);
        assert!(ran.stderr.contains("--clock"), "{wrong}: {}", ran.stderr);
    }
    assert!(!bench.path("x.hkt").exists());
}

#[test]
fn a_killed_recorder_leaves_a_recoverable_session() {
    let bench = Bench::new();
    let mut recorder = bench.command("record -o dd.hkt -- sleep 60").spawn().expect("hksim starts");
    let found = |end: &str| {
        let entries = std::fs::read_dir(bench.folder()).expect("the folder").flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(end))
    };
    let spool = || {
        let session = found(".recording-")?;
        let folders = std::fs::read_dir(&session).ok()?.flatten().filter(|entry| entry.path().is_dir());
        let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok()).flatten().flatten();
        let spools = files.filter(|file| file.metadata().is_ok_and(|data| data.len() > 300_000)).count();
        let info = std::fs::read_to_string(session.join("session.json")).ok()?;
        let pid = info.split("\"root_pid\": ").nth(1)?.split(',').next()?.trim().parse::<i32>().ok()?;
        (spools > 0).then_some((session, pid))
    };
    let (session, program) = (0..3000)
        .find_map(|_| {
            spool().or_else(|| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                None
            })
        })
        .expect("the program runs");
    recorder.kill().expect("it is killed");
    recorder.wait().expect("it ends");
    let session = session.display();
    bench.ok(&format!("mark {program} --stop"));
    // SAFETY: a process started by this test.
    unsafe { libc::kill(program, libc::SIGKILL) };
    let ran = bench.run(&format!("record --recover {session} -o elsewhere.hkt"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(number(&bench.json("info elsewhere.hkt"), "events") > 0);
    assert!(!bench.path("dd.hkt").exists(), "the trace is at --output only");
    assert_eq!(bench.run(&format!("record --recover {session}")).code, Some(2), "the session is gone");
}

#[test]
fn a_program_that_removes_its_session_is_awaited() {
    let bench = Bench::new();
    // `rm` may list the directory while the shell renames the file of the fork that started `rm`.
    let job = "while rm -r .app.hkt.recording-* 2>/dev/null; [ -d .app.hkt.recording-* ]; do :; done; sleep 1; touch done; exit 0";
    std::fs::write(bench.path("job.sh"), job).expect("a script");
    let line = bench.refused("record -o app.hkt -- sh job.sh");
    assert!(bench.path("done").exists(), "the program has ended before its recorder");
    assert!(line.contains("No such file") && !line.contains("is kept"), "there is nothing to recover: {line}");
}

#[test]
fn control_characters_in_names_are_escaped() {
    let bench = Bench::new();
    let record = |name: &str, program: &str| {
        let mut command = bench.command("record -o");
        let output = command.arg(name).args(["--", program]).output().expect("hksim starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (code, printed) = record("a\nb.hkt", "ls");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("/a\\nb.hkt: ") && printed.lines().count() == 2, "{printed}");
    let (code, printed) = record("no\nfolder/b.hkt", "ls");
    assert_eq!((code, printed.lines().count()), (Some(2), 1), "{printed}");
}

#[test]
fn an_imported_script_has_all_calls() {
    let bench = Bench::new();
    std::fs::write(bench.path("t.script"), "a 0 100\na 1 200\nr 0 5000\nf 1\nf 7\n").expect("a script trace");
    let said = bench.refused("import t.script -o t.hkt");
    assert!(said.contains("only 66.6 % of the known calls") && !bench.path("t.hkt").exists(), "{said}");
    bench.ok("import t.script --force -o t.hkt");
    let info = bench.json("info t.hkt");
    let counts = ["mallocs", "reallocs", "frees", "unknown_frees", "live_bytes_peak", "live_objects_end"];
    assert_eq!(counts.map(|name| number(&info, name)), [2, 1, 2, 1, 5_200, 1]);
    assert!(bench.ok("info t.hkt").contains("unknown frees         1"));
}
