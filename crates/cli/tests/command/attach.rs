//! `hksim record --memory -p PID`: what the user types and reads. What is recorded is checked by the libraries' tests.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::recordings::can_record;
use crate::support::{Bench, number};

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell that starts programs all the time.
fn shell() -> Running {
    let script = "while :; do /bin/true; done";
    Running(Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().expect("a shell"))
}

#[test]
fn a_running_process_is_recorded_described_and_predicted() {
    if !can_record() {
        return;
    }
    let (bench, shell) = (Bench::new(), shell());
    let pid = shell.0.id();
    bench.ok(&format!("record --memory -p {pid} --duration 300ms -o sh.hkm"));
    assert!(fs::read_to_string(format!("/proc/{pid}/status")).expect("a status").contains("TracerPid:\t0"));
    let info = bench.ok("info sh.hkm");
    for part in ["from the middle on", "at the start", "stopped for", "resident in", "the recording ended before"] {
        assert!(info.contains(part), "{part}: {info}");
    }
    let json = bench.json("sim sh.hkm");
    assert!(number(&json, "rss_bytes_peak") > 0 && json["recording"]["beginning"]["kind"] == "attached", "{json}");
    assert!(number(&json["recording"]["at_start"], "resident_bytes") > 0, "{json}");
    // Elsewhere than recorded: mappings stay where they are.
    assert_eq!(bench.json("sim sh.hkm --kernel 6.1")["addresses"], "recorded");
    let said = bench.run("sim sh.hkm").stderr;
    assert!(said.contains("the recording began in the middle of the process"), "{said}");
    let refused = bench.refused("validate sh.hkm --run-recorded");
    assert!(refused.contains("no run begins with its memory"), "{refused}");
    let refused = bench.refused("validate sh.hkm -- true");
    assert!(refused.contains("no run begins with its memory"), "{refused}");
}

/// Whether a process has a handler for SIGINT, or blocks it to read it.
fn handles_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigCgt:").or_else(|| line.strip_prefix("SigBlk:")));
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & 1 << (libc::SIGINT - 1) != 0)
}

#[test]
fn an_interrupt_ends_the_recording_and_not_the_process() {
    if !can_record() {
        return;
    }
    let (bench, mut shell) = (Bench::new(), shell());
    let line = format!("record --memory -p {} -o sh.hkm --format json", shell.0.id());
    let mut command = bench.command(&line);
    // As a script starts its background jobs.
    let ignored = || {
        // SAFETY: touches no memory.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure only makes a system call.
    unsafe { command.pre_exec(ignored) };
    let mut recorder = command.stderr(Stdio::null()).spawn().expect("hksim");
    let is_begun =
        || fs::read_dir(bench.folder()).expect("a directory").count() > 0 && handles_interrupts(recorder.id());
    let begin = Instant::now();
    while !is_begun() && begin.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(5));
    }
    // SAFETY: numbers only, for this test's own child.
    unsafe { libc::kill(recorder.id() as libc::pid_t, libc::SIGINT) };
    assert!(recorder.wait().expect("hksim").success());
    assert!(shell.0.try_wait().expect("a shell").is_none(), "it runs on");
    assert_eq!(bench.json("info sh.hkm")["footer"]["end"], "running");
}

/// What the process executes begins a recording of its own, known from its start.
#[test]
fn a_program_that_the_process_executes_is_recorded_from_its_start() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let script = "sleep 1; exec sleep 1";
    let shell = Running(Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().expect("a shell"));
    let said = bench.run(&format!("record --memory -p {} -o sleep.hkm", shell.0.id())).stderr;
    assert!(said.contains("attached, stopped for") && said.contains("the process has ended"), "{said}");
    let of_shell = fs::read_dir(bench.path("sleep.hkm.processes")).expect("the shell's").flatten();
    let of_shell = of_shell.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("sh."));
    let of_shell = bench.ok(&format!("info {}", of_shell.expect("the shell").display()));
    assert!(of_shell.contains("from the middle on") && of_shell.contains("executed another program"), "{of_shell}");
    let info = bench.ok("info sleep.hkm");
    assert!(info.contains("image 1") && !info.contains("from the middle on"), "{info}");
    assert!(!info.contains("at the start") && info.contains("mappings by exec"), "{info}");
    let json = bench.json("sim sleep.hkm");
    assert_eq!(
        (json["recording"]["beginning"]["kind"].as_str(), number(&json, "rss_bytes_peak") > 0),
        (Some("exec"), true)
    );
}

#[test]
fn the_end_of_the_process_ends_the_recording() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let sleeper = Running(Command::new("sleep").arg("1").spawn().expect("a program"));
    bench.ok(&format!("record --memory -p {} -o sleep.hkm", sleeper.0.id()));
    assert_eq!(bench.json("info sleep.hkm")["footer"]["end"], "exit");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let bench = Bench::new();
    let said = bench.refused("record --memory -p 4194305 -o a.hkm");
    assert!(said.contains("process 4194305: cannot be recorded: there is no such process"), "{said}");
    let said = bench.refused("record --memory -p 1 --duratoin 3s -o a.hkm");
    assert!(said.contains("--duratoin: record has no such flag; did you mean --duration?"), "{said}");
    let said = bench.refused("record --memory -p 1 -o a.hkm -- true");
    assert!(said.contains("leave out the program, or --pid"), "{said}");
    let said = bench.refused("record --memory -p 1 --no-aslr -o a.hkm");
    assert!(said.contains("--no-aslr"), "{said}");
    assert!(!bench.path("a.hkm").exists());
}
