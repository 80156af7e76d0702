//! A replay stopped at a point has the pages of `sim --dump-pages`. A Python script that reads /proc compares them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::Bench;

/// A replay that has stopped itself. When dropped, it continues to its end or is killed.
struct Stopped {
    replay: Child,
    pid: String,
    base: String,
}

impl Stopped {
    fn at(bench: &Bench, line: &str) -> Stopped {
        let mut replay =
            bench.command(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("hksim starts");
        let mut printed = String::new();
        let mut stderr = BufReader::new(replay.stderr.take().expect("a pipe"));
        stderr.read_line(&mut printed).expect("a line");
        let word_after = |name: &str| {
            let rest = printed.split_once(name).unwrap_or_else(|| panic!("{line}: no `{name}` in {printed}")).1;
            rest.split([',', ';']).next().unwrap_or_default().trim().to_string()
        };
        let (pid, base) = (word_after("pid "), word_after("base "));
        let mut stopped = Stopped { replay, pid, base };
        stopped.wait_until_stopped();
        stopped
    }

    /// Waits for the stop: the line is printed just before the signal.
    fn wait_until_stopped(&mut self) {
        for _ in 0..1000 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
            if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("process {} did not stop", self.pid);
    }

    fn resume(mut self) {
        let sent = Command::new("kill").args(["-CONT", &self.pid]).status().expect("kill starts");
        assert!(sent.success());
        assert!(self.replay.wait().expect("the replay ends").success());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The stopped child dies with the replay.
        let _ = self.replay.kill();
        let _ = self.replay.wait();
    }
}

#[test]
fn an_independent_reader_finds_the_predicted_pages() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let bench = Bench::with_trace();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/page_sets.py");
    for (policy, at) in [
        ("--huge never --arena 256M", "7000"),
        ("--huge thp --purge-delay 0 --arena 256M", "end"),
        ("--huge never --header light --carve bump --arena 256M", "12345"),
        ("--huge collapse --superslab 1M --arena 256M", "20k"),
    ] {
        bench.ok(&format!("sim rm.hkt {policy} --kernel host --dump-pages pages.txt --at {at}"));
        let stopped = Stopped::at(&bench, &format!("replay rm.hkt {policy} --stop-at {at}"));
        let event = if at == "end" { "20000" } else { &at.replace('k', "000") };
        let compared = Command::new("python3")
            .arg(script)
            .arg(bench.path("pages.txt"))
            .args([event, &stopped.pid, &stopped.base])
            .output()
            .expect("python3 starts");
        let printed =
            String::from_utf8_lossy(&compared.stdout).into_owned() + &String::from_utf8_lossy(&compared.stderr);
        assert!(compared.status.success(), "{policy} at {at}: {printed}");
        eprintln!("{policy} at {at}: {}", printed.trim());
        stopped.resume();
    }
}

#[test]
fn missing_points_are_refused() {
    let bench = Bench::with_trace();
    for (line, needle) in [
        ("sim rm.hkt --dump-pages pages.txt --at 20001", "no event 20001"),
        ("sim rm.hkt --dump-pages pages.txt --at 0", "no event 0"),
        ("sim rm.hkt --dump-pages pages.txt --at warm", "warm"),
        ("sim rm.hkt --at 5", "--dump-pages"),
        ("sim rm.hkt --dump-pages rm.hkt", "is a trace"),
        ("replay rm.hkt --stop-at 20001", "no event 20001"),
        ("replay rm.hkt --stop-at end --mode threaded", "ordered"),
        ("replay rm.hkt --stop-at end --on glibc", "native"),
    ] {
        let printed = bench.refused(line);
        assert!(printed.contains(needle), "{line}: {printed}");
    }
    // All marks: 16 evenly spaced points and the end.
    bench.ok("sim rm.hkt --dump-pages pages.txt");
    let text = std::fs::read_to_string(bench.path("pages.txt")).expect("a dump");
    let marks: Vec<&str> = text.lines().filter(|line| line.starts_with("after ")).collect();
    assert_eq!((marks.len(), marks.first(), marks.last()), (17, Some(&"after 1176"), Some(&"after 20000")));
}
