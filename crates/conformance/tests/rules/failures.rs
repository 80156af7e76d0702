//! Behaviour when processes are killed.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use hksim_conformance::{ExecuteError, Machine, SetModes, check};
use hksim_linux_mm::script::Script;

/// First argument of a process that changes a mode and waits to be killed.
pub const SETS_MODES_ARGUMENT: &str = "sets-modes";
/// A mode that affects no other measurement.
const HARMLESS: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
/// The value that [`SetModes::pause_khugepaged`] sets.
const ASLEEP: &str = "3600000";
/// The output of a process that has set the mode, or is waiting for the lock.
const SET: &str = "set";
const WAITS: &str = "waits";

fn children_of(parent: u32) -> Vec<u32> {
    let stat = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: u32 = text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((pid, parent))
    };
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten().filter_map(stat);
    processes.filter(|(_, its)| *its == parent).map(|(pid, _)| pid).collect()
}

pub fn a_killed_child_is_an_error() -> Result<(), String> {
    let mut machine = Machine::open().map_err(|why| why.to_string())?;
    let script: Script = "w 0 16 1".parse().expect("a well-formed script");
    let children = children_of(std::process::id());
    assert_eq!(children.len(), 1, "only the process that executes scripts");
    // SAFETY: our own child, which has not been reaped yet.
    unsafe { libc::kill(children[0] as i32, libc::SIGKILL) };
    match check(&mut machine, &script) {
        Err(ExecuteError::Died { script: named, .. }) => assert_eq!(named, script.to_string()),
        other => panic!("{other:?}"),
    }
    // The next script gets a new process.
    let checked = check(&mut machine, &script).expect("the script is executed");
    assert_eq!(checked.difference(), None);
    Ok(())
}

/// The `main` of the process that is killed.
pub fn sets_modes() -> ExitCode {
    match SetModes::new(|| println!("{WAITS}")).and_then(|mut modes| modes.pause_khugepaged().map(|()| modes)) {
        Ok(modes) => {
            println!("{SET}");
            std::thread::sleep(Duration::from_secs(60));
            drop(modes);
        }
        Err(why) => println!("{why}"),
    }
    ExitCode::SUCCESS
}

/// A process that sets a mode, or waits to do so.
struct Setter {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Setter {
    fn start() -> Setter {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        let mut process = command.arg(SETS_MODES_ARGUMENT).stdout(Stdio::piped()).spawn().expect("this program starts");
        let lines = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        Setter { process, lines }
    }

    /// The process's next output line. Empty if the process has ended.
    fn said(&mut self) -> String {
        self.lines.next().map_or(String::new(), |line| line.expect("text"))
    }
}

impl Drop for Setter {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn value() -> Result<String, String> {
    std::fs::read_to_string(HARMLESS).map_err(|why| format!("{HARMLESS}: {why}"))
}

/// Starts a process that sets the mode. Returns the mode's previous value and the process.
fn first_setter() -> Result<(String, Setter), String> {
    let before = value()?;
    let mut setter = Setter::start();
    match setter.said().as_str() {
        SET if before.trim() == ASLEEP => Err("another process has paused khugepaged".into()),
        SET => Ok((before, setter)),
        WAITS => Err("another run holds the machine's modes".into()),
        why => Err(format!("modes cannot be set here: {why}")),
    }
}

/// Whether `holds` becomes true within five seconds.
fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

fn assert_restored(before: &str) -> Result<(), String> {
    let is_back = soon(|| value().is_ok_and(|now| now == before));
    assert!(is_back, "{HARMLESS} is still {}, not {before}", value()?);
    Ok(())
}

pub fn modes_are_restored_after_a_kill() -> Result<(), String> {
    let (before, setter) = first_setter()?;
    assert_eq!(value()?.trim(), ASLEEP);
    drop(setter);
    assert_restored(&before)
}

/// Without the lock, the second run would record the first run's modes as the machine's own and restore those.
pub fn concurrent_runs_set_modes_one_after_the_other() -> Result<(), String> {
    let (before, first) = first_setter()?;
    let mut second = Setter::start();
    assert_eq!(second.said(), WAITS);
    drop(first);
    assert_eq!(second.said(), SET);
    assert_eq!(value()?.trim(), ASLEEP, "the second run starts only after the first run's guard has finished");
    drop(second);
    assert_restored(&before)
}

/// If a run is killed while it waits, its guard must not survive and take the lock later.
pub fn a_run_killed_while_waiting_leaves_no_guard() -> Result<(), String> {
    let (before, first) = first_setter()?;
    let mut waiting = Setter::start();
    assert_eq!(waiting.said(), WAITS);
    let guards = children_of(waiting.process.id());
    assert_eq!(guards.len(), 1, "only the waiting guard");
    drop(waiting);
    let is_there = |pid: &u32| std::path::Path::new("/proc").join(pid.to_string()).exists();
    assert!(soon(|| !guards.iter().any(is_there)), "the guard of the killed run still waits");
    assert_eq!(value()?.trim(), ASLEEP, "the first run continues");
    drop(first);
    assert_restored(&before)
}
