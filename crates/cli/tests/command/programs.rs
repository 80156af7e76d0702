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
fn a_program_that_fails_is_recorded_and_said_so() {
    let bench = Bench::new();
    let ran = bench.run("record -o ls.hkt -- ls /no-such-folder");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("the program exited with 2"), "{}", ran.stderr);
    assert!(number(&bench.json("info ls.hkt"), "events") > 0);
}

#[test]
fn other_processes_and_images_are_named() {
    let bench = Bench::new();
    let ran = bench.run("record -o sh.hkt -- env env sh -c /bin/echo;/bin/echo");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut traces = 0;
    for entry in std::fs::read_dir(bench.folder()).expect("the folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(ran.stderr.contains(&name), "{name}: {}", ran.stderr);
        traces += 1;
    }
    assert!(bench.path("sh.hkt").exists(), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("beside it: {} trace", traces - 1)), "{}", ran.stderr);
    assert!(ran.stderr.contains("lost 0, repaired"), "{}", ran.stderr);
}

#[test]
fn a_killed_recorder_leaves_what_recover_reads() {
    let bench = Bench::new();
    let mut recorder = bench.command("record -o dd.hkt -- sleep 60").spawn().expect("hksim starts");
    let found = |end: &str| {
        let entries = std::fs::read_dir(bench.folder()).expect("the folder").flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(end))
    };
    let spool = || {
        let session = found(".recording-")?;
        let files = std::fs::read_dir(&session).ok()?.flatten();
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
    // SAFETY: a process that this test had started.
    unsafe { libc::kill(program, libc::SIGKILL) };
    let ran = bench.run(&format!("record --recover {session}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(number(&bench.json("info dd.hkt"), "events") > 0);
    assert_eq!(bench.run(&format!("record --recover {session}")).code, Some(2), "it is gone");
}

#[test]
fn an_imported_script_has_its_calls() {
    let bench = Bench::new();
    std::fs::write(bench.path("t.script"), "a 0 100\na 1 200\nr 0 5000\nf 1\nf 7\n").expect("a script trace");
    bench.ok("import t.script -o t.hkt");
    let info = bench.json("info t.hkt");
    let counts = ["mallocs", "reallocs", "frees", "unknown_frees", "live_bytes_peak", "live_objects_end"];
    assert_eq!(counts.map(|name| number(&info, name)), [2, 1, 2, 1, 5_200, 1]);
    assert!(bench.ok("info t.hkt").contains("unknown frees         1"));
}
