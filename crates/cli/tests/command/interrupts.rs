//! Signals to `hksim record` from a terminal, a service manager or a user.

use std::fs;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Bench, number};

const INTERVAL: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// A shell script that allocates until the recording must end. Its status is the number of interrupts that it received.
const COUNTS_INTERRUPTS: &str = "n=0; trap 'n=$((n+1)); touch got' INT; touch ready; \
     while [ ! -e end ]; do sleep 0.02; done; exit $n";
/// A script that allocates forever, without child processes that could outlive the shell.
const RUNS_ON: &str = "touch ready; while :; do :; done";

fn wait_for<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "no result within {PATIENCE:?}");
        sleep(INTERVAL);
    }
}

fn send(pid: u32, signal: i32) {
    // SAFETY: touches no memory; the process is a child that is not reaped yet.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// The command that records a shell running `script`, not started yet.
fn recorder(bench: &Bench, script: &str) -> Command {
    fs::write(bench.path("job.sh"), script).expect("a script");
    let mut command = bench.command("record -o app.hkt -- sh job.sh");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Background jobs of a shell ignore interrupts, as do their children, which cannot trap them.
    // SAFETY: it makes system calls only.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

fn wait_until_ready(bench: &Bench) {
    wait_for(|| bench.path("ready").exists().then_some(()));
}

/// Checks that the trace is complete up to the signal and that no other file is left. Returns standard error.
fn printed(bench: &Bench, output: Output) -> String {
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("app.hkt: ") && text.contains("; 0 lost, 0 frees inserted"), "a summary: {text}");
    let info = bench.json("info app.hkt");
    assert!(info["complete"] == true && number(&info, "events") > 20, "{info}");
    bench.ok("trace verify app.hkt");
    assert_eq!(hidden(bench), Vec::<PathBuf>::new());
    text
}

/// Hidden files and directories next to the trace.
fn hidden(bench: &Bench) -> Vec<PathBuf> {
    let entries = fs::read_dir(bench.folder()).expect("the folder").flatten();
    let is_session = |path: &PathBuf| path.to_string_lossy().contains(".recording-");
    entries.map(|entry| entry.path()).filter(is_session).collect()
}

#[test]
fn a_signal_to_the_recorder_alone_ends_the_program_and_the_trace_is_written() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let bench = Bench::new();
        let recorder = recorder(&bench, RUNS_ON).spawn().expect("hksim starts");
        wait_until_ready(&bench);
        send(recorder.id(), signal);
        let text = printed(&bench, recorder.wait_with_output().expect("it ends"));
        assert!(text.contains(&format!("hksim: signal {signal} ended the program\n")), "{text}");
    }
}

#[test]
fn a_program_that_survives_a_signal_is_recorded_to_its_end() {
    let bench = Bench::new();
    let recorder = recorder(&bench, COUNTS_INTERRUPTS).spawn().expect("hksim starts");
    wait_until_ready(&bench);
    send(recorder.id(), libc::SIGINT);
    wait_for(|| bench.path("got").exists().then_some(()));
    fs::write(bench.path("end"), "").expect("a file");
    let text = printed(&bench, recorder.wait_with_output().expect("it ends"));
    assert!(text.contains("hksim: the program exited with 1\n"), "{text}");
}

/// A terminal: the side on which keys are pressed, and the programs' side.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut keys, mut programs) = (-1, -1);
    // SAFETY: two valid pointers to descriptors, which this process then owns; no name, settings or size.
    unsafe {
        let made = libc::openpty(&raw mut keys, &raw mut programs, null_mut(), null_mut(), null_mut());
        assert_eq!(made, 0, "a terminal");
        (OwnedFd::from_raw_fd(keys), OwnedFd::from_raw_fd(programs))
    }
}

/// Starts a command as the foreground process of its own terminal.
fn start_in(terminal: OwnedFd, mut command: Command) -> Child {
    command.stdin(Stdio::from(terminal));
    // SAFETY: two system calls.
    unsafe {
        command.pre_exec(|| {
            assert!(libc::setsid() > 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0);
            Ok(())
        });
    }
    command.spawn().expect("hksim starts")
}

#[test]
fn an_interrupt_from_the_terminal_reaches_the_program_once() {
    // Ctrl-C also ends a child of the shell, maybe before the recorder is loaded into it. That is not a loss.
    let bench = Bench::new();
    let (keys, programs) = terminal();
    let recorder = start_in(programs, recorder(&bench, COUNTS_INTERRUPTS));
    wait_until_ready(&bench);
    // If it were sent immediately, the second interrupt would merge with the first.
    send(recorder.id(), libc::SIGSTOP);
    fs::File::from(keys).write_all(&[3]).expect("Ctrl-C");
    wait_for(|| bench.path("got").exists().then_some(()));
    send(recorder.id(), libc::SIGCONT);
    sleep(Duration::from_millis(100));
    fs::write(bench.path("end"), "").expect("a file");
    let text = printed(&bench, recorder.wait_with_output().expect("it ends"));
    assert!(text.contains("hksim: the program exited with 1\n"), "one interrupt, neither lost nor doubled: {text}");
    let bench = Bench::new();
    let (keys, programs) = terminal();
    let recorder = start_in(programs, self::recorder(&bench, RUNS_ON));
    wait_until_ready(&bench);
    fs::File::from(keys).write_all(&[3]).expect("Ctrl-C");
    let text = printed(&bench, recorder.wait_with_output().expect("it ends"));
    assert!(text.contains("hksim: signal 2 ended the program\n"), "{text}");
}

/// Records a program with this many rounds, and sends `signal` while its trace is written.
fn record_and_send(bench: &Bench, rounds: u32, signal: i32) -> Output {
    let script = format!("i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done");
    let recorder = recorder(bench, &script).spawn().expect("hksim starts");
    let program = wait_for(|| {
        let session = hidden(bench).pop()?;
        let info = fs::read_to_string(session.join("session.json")).ok()?;
        info.split("\"root_pid\": ").nth(1)?.split(',').next()?.trim().parse::<u32>().ok()
    });
    wait_for(|| (!fs::exists(format!("/proc/{program}")).expect("/proc")).then_some(()));
    send(recorder.id(), signal);
    recorder.wait_with_output().expect("it ends")
}

#[test]
fn an_interrupt_while_the_trace_is_written_leaves_only_a_session_to_recover() {
    let bench = Bench::new();
    // On a fast machine the trace may be written before the signal arrives; then try more rounds.
    let (output, session) = (0..7)
        .find_map(|doubled| {
            let output = record_and_send(&bench, 100_000 << doubled, libc::SIGINT);
            Some((output, hidden(&bench).pop()?))
        })
        .expect("a recording that is interrupted");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "a shell must see the interrupt: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let remedy =
        format!("interrupted by signal 2; the recording is kept: `hksim record --recover {}`", session.display());
    assert!(text.contains(&remedy), "{text}");
    let names = |folder: PathBuf| {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .filter(|name| name != "job.sh")
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(bench.folder().to_path_buf()).len(), 1, "only the session is left");
    let inside = names(session.clone());
    assert!(inside.len() == 2 && inside[1] == "session.json", "the session has only the recording: {inside:?}");
    let logs = names(session.join(&inside[0]));
    assert!(logs.len() == 2 && logs[0].ends_with(".spool"), "the session has only the recording: {logs:?}");
    // A recorder killed by SIGKILL leaves an incomplete trace file.
    fs::write(session.join("7-0.partial-7"), "half").expect("a file");
    bench.ok(&format!("record --recover {}", session.display()));
    assert_eq!(names(bench.folder().to_path_buf()), ["app.hkt"]);
    assert!(number(&bench.json("info app.hkt"), "events") > 100_000);
    bench.ok("trace verify app.hkt");
}

#[test]
fn a_mark_requested_while_the_trace_is_written_is_too_late_and_harmless() {
    let bench = Bench::new();
    let output = record_and_send(&bench, 100_000, libc::SIGUSR1);
    printed(&bench, output);
}
