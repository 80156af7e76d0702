//! A memory recording names the command that `validate` runs. A file that is not trusted must not get anything run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use hksim_memory_trace::{Header, Reader, Writer};

use crate::support::recordings::{can_record, with_recording};
use crate::support::{Bench, Ran};

/// Writes a copy of `ops.hkm` with another header.
fn forged(bench: &Bench, to: &str, change: impl FnOnce(&mut Header)) {
    let mut reader = Reader::open(&bench.path("ops.hkm")).expect("a recording");
    let mut header = reader.header().clone();
    header.directory = Some(bench.folder().display().to_string());
    change(&mut header);
    let mut writer = Writer::create(&bench.path(to), &header).expect("a file");
    let mut chunk = Vec::new();
    while reader.next_chunk(&mut chunk).expect("events") {
        for mut event in chunk.drain(..) {
            if let hksim_memory_trace::Op::Map(map) = &mut event.op {
                map.name = map.name.map(|name| writer.name(reader.name(name)));
            }
            writer.push(event).expect("an event");
        }
    }
    writer.finish(reader.footer().expect("the end")).expect("the end");
}

/// A recording that names a command which writes its variables to `planted`.
fn hostile(bench: &Bench) {
    forged(bench, "hostile.hkm", |header| {
        header.run_id = "hostile-1".to_string();
        (header.pid, header.image) = (1, 0);
        let script = "echo \"$LD_PRELOAD|$LD_AUDIT|$NODE_OPTIONS|$MALLOC_CONF|$PATH\" > planted";
        header.command = ["sh", "-c", script].map(str::to_string).to_vec();
        let variables = [
            ("LD_PRELOAD", "/no/such/evil.so"),
            ("LD_AUDIT", "/no/such/audit.so"),
            ("NODE_OPTIONS", "--require evil"),
            ("MALLOC_CONF", "thp:always"),
            ("PATH", "/no/such"),
        ];
        header.environment = variables.map(|(name, value)| (name.to_string(), value.to_string())).into();
    });
}

#[test]
fn a_recorded_command_is_shown_and_not_run() {
    let bench = with_recording();
    hostile(&bench);
    for line in ["validate hostile.hkm", "validate hostile.hkm ops.hkm --thp always --runs 2"] {
        let said = bench.refused(line);
        let place = bench.folder().display();
        assert!(said.contains(&format!("this file names: cd {place} && MALLOC_CONF=thp:always sh -c 'echo")), "{said}");
        assert!(said.contains(&format!("type: hksim {line} --run-recorded")), "{said}");
        assert!(said.contains("-- COMMAND"), "{said}");
    }
    assert!(!bench.path("planted").exists());
}

#[test]
fn variables_that_load_code_are_not_taken_even_with_leave() {
    if !can_record() {
        return;
    }
    let bench = with_recording();
    hostile(&bench);
    let path = std::env::var("PATH").unwrap_or_default();
    let ran = bench.run("validate hostile.hkm --run-recorded --runs 2");
    assert_eq!(fs::read_to_string(bench.path("planted")).expect("it ran"), format!("|||thp:always|{path}\n"));
    assert!(ran.stderr.contains("running cd "), "{}", ran.stderr);
    let other =
        "recorded with another environment: now LD_AUDIT unset, and not /no/such/audit.so; LD_PRELOAD unset, and";
    assert!(ran.stderr.contains(other), "{}", ran.stderr);
}

#[test]
fn a_command_of_the_user_s_is_run_instead() {
    if !can_record() {
        return;
    }
    let bench = with_recording();
    hostile(&bench);
    let ran = bench.run("validate hostile.hkm --runs 2 --format json -- touch own");
    assert!(!bench.path("planted").exists() && bench.path("own").exists(), "{}", ran.stderr);
    assert!(
        ran.stdout.contains(
            r#""--",
    "touch",
    "own""#
        ),
        "{}",
        ran.stdout
    );
    let said = bench.refused("validate hostile.hkm --run-recorded -- touch own");
    assert!(said.contains("cannot be used with"), "{said}");
    let said = bench.refused("validate hostile.hkm ops.hkm -- touch own");
    assert!(said.contains("one recording"), "{said}");
}

#[test]
fn flags_about_a_recorded_program_are_not_for_traces() {
    let bench = Bench::with_trace();
    for flags in ["--run-recorded", "--load true", "--time-limit 5s", "-- true"] {
        let said = bench.refused(&format!("validate rm.hkt {flags}"));
        assert!(said.contains("is for memory recordings"), "{said}");
    }
}

/// The record of a shell script in a directory of its own; `None`, with the reason printed, without root.
fn recorded(script: &str) -> Option<Bench> {
    if !can_record() {
        return None;
    }
    let bench = Bench::new();
    fs::create_dir(bench.path("there")).expect("a folder");
    let mut command = bench.command("record --memory --no-aslr -o ../a.hkm -- sh -c");
    let output = command.arg(script).current_dir(bench.path("there")).output().expect("hksim starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(bench)
}

fn rows(ran: &Ran) -> serde_json::Value {
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|why| panic!("{why}: {ran:?}"));
    result["rows"].clone()
}

#[test]
fn a_recorded_command_runs_in_its_directory_and_another_status_is_told_first() {
    let Some(bench) = recorded("read line < /proc/self/comm; test ! -e missing || { echo no input >&2; exit 3; }")
    else {
        return;
    };
    let line = "validate a.hkm --run-recorded --runs 2 --format json";
    assert_eq!(rows(&bench.run(line))[0]["verdict"], "ok");
    fs::write(bench.path("there/missing"), "").expect("a file");
    let ran = bench.run(line);
    let reason = "the program exited with 3, and when it was recorded it exited with 0: no input";
    assert_eq!((&rows(&ran)[0]["verdict"], &rows(&ran)[0]["reason"]), (&"skipped".into(), &reason.into()), "{ran:?}");
    fs::remove_dir_all(bench.path("there")).expect("a folder");
    let ran = bench.run(line);
    assert!(rows(&ran)[0]["reason"].as_str().is_some_and(|why| why.contains("there is no directory")), "{ran:?}");
}

/// A server ends only when it is told to.
#[test]
fn a_server_gets_its_load_and_is_stopped() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let server = "trap 'exit 0' TERM; : > up; until test -e used; do sleep 0.02; done; while :; do sleep 0.02; done";
    // At its recording, a process of the server's own plays the client.
    let client = "(sleep 0.3; : > used; sleep 0.2; kill $$) & ";
    let mut command = bench.command("record --memory --no-aslr -o a.hkm -- sh -c");
    let output = command.arg(format!("test -n \"$AGAIN\" || {{ {client} }}; {server}")).output().expect("hksim starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["up", "used"] {
        fs::remove_file(bench.path(name)).expect("a file");
    }
    let validated = |flags: &[&str]| {
        let mut command = bench.command("validate a.hkm --run-recorded --runs 2 --format json");
        let output = command.args(flags).env("AGAIN", "1").output().expect("hksim starts");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&output.stderr)));
        result["rows"][0].clone()
    };
    let load = "rm up && : > used && sleep 0.2 && rm used";
    let row = validated(&["--ready", "test -e up", "--load", load]);
    assert!(row["class"].is_string(), "it was measured: {row}");
    assert!(!bench.path("used").exists(), "the load ran");
    let row = validated(&["--time-limit", "1s"]);
    assert_eq!(row["verdict"], "skipped", "{row}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("stopped after 1 s; a server needs --load"), "{row}");
    let row = validated(&["--load", "exit 7"]);
    assert!(row["reason"].as_str().is_some_and(|why| why.contains("--load failed: exit status: 7")), "{row}");
}

/// The program counts its runs, and has another outcome in some: in both runs that are measured first.
#[test]
fn a_program_with_two_outcomes_is_run_more_often_before_it_fails() {
    let script = "open my $f, '<', 'n'; my $n = <$f> // 0; close $f; open $f, '>', 'n'; print $f $n + 1; close $f; \
        my $more = $n == 1 || $n == 2; my @a = map { 'x' x 200 } 1 .. ($more ? 90000 : 30000);";
    if !can_record() || !std::path::Path::new("/usr/bin/perl").exists() {
        return eprintln!("skipped: needs root and perl");
    }
    let bench = Bench::new();
    fs::write(bench.path("job.pl"), script).expect("a script");
    bench.ok("record --memory --no-aslr -o a.hkm -- /usr/bin/perl job.pl");
    let ran = bench.run("validate a.hkm --run-recorded --runs 2 --format json");
    let row = &rows(&ran)[0];
    if row["class"].is_null() {
        return eprintln!("skipped: {row}");
    }
    assert_eq!((&row["class"], &row["verdict"]), (&"statistical".into(), &"ok".into()), "{row}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("compared over 6 recordings and 7 runs"), "{reason}");
    let lengths = ["predicted", "measured", "recordings"].map(|name| row[name].as_array().map_or(0, Vec::len));
    assert_eq!(lengths, [7, 7, 5], "{row}");
}

/// Without root, reads and faults inside system calls are not seen, which must not look like a wrong prediction.
#[test]
fn what_an_ordinary_user_does_not_see_is_named() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let program = bench.path("hksim");
    fs::copy(env!("CARGO_BIN_EXE_hksim"), &program).expect("a copy");
    for path in [bench.folder(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("permissions");
    }
    let as_user = |line: &str| {
        let mut command = std::process::Command::new(&program);
        command.args(line.split(' ')).current_dir(bench.folder()).uid(65534).gid(65534).env("TMPDIR", bench.folder());
        command.output().expect("hksim starts")
    };
    // Two blocks of which one is read first, and one that a system call fills.
    let script =
        "my $a = 'x' x 300_000; my $b; open my $f, '<', '/dev/zero'; sysread $f, $b, 300_000; print length $a.$b";
    fs::write(bench.path("job.pl"), script).expect("a script");
    let recorded = as_user("record --memory --no-aslr -o a.hkm -- /usr/bin/perl job.pl");
    if !recorded.status.success() {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&recorded.stderr));
    }
    let output = as_user("validate a.hkm --run-recorded --runs 2 --format json");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = &result["rows"][0];
    assert_eq!(row["verdict"], "ok", "{row}");
    if row["class"] == "bounded" {
        let reason = row["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("recorded without root's rights, so reads count as writes"), "{row}");
    }
}
