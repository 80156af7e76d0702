//! What happens when processes die.

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use hksim_rules::{ExecuteError, Machine, SetModes, check};
use hksim_sim::kernel::script::Script;

/// First argument of a process that changes a mode and waits to be killed.
pub const SETS_MODES_ARGUMENT: &str = "sets-modes";
/// A mode that no other measurement feels.
const HARMLESS: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";

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
    assert_eq!(children.len(), 1, "the process that executes, and no other");
    // SAFETY: a child of our own, that is not waited for yet.
    unsafe { libc::kill(children[0] as i32, libc::SIGKILL) };
    match check(&mut machine, &script) {
        Err(ExecuteError::Died { script: named, .. }) => assert_eq!(named, script.to_string()),
        other => panic!("{other:?}"),
    }
    // The next script gets a process of its own.
    let checked = check(&mut machine, &script).expect("the script is executed");
    assert_eq!(checked.difference(), None);
    Ok(())
}

/// The `main` of the process that is killed.
pub fn sets_modes() -> ExitCode {
    match SetModes::new().and_then(|mut modes| modes.calm_khugepaged().map(|()| modes)) {
        Ok(modes) => {
            println!("set");
            std::thread::sleep(Duration::from_secs(60));
            drop(modes);
        }
        Err(why) => println!("{why}"),
    }
    ExitCode::SUCCESS
}

pub fn modes_are_put_back_after_a_kill() -> Result<(), String> {
    let value = || std::fs::read_to_string(HARMLESS).map_err(|why| format!("{HARMLESS}: {why}"));
    let before = value()?;
    if before.trim() == "3600000" {
        return Err("another run keeps khugepaged asleep".into());
    }
    let program = std::env::current_exe().expect("this program");
    let mut child =
        Command::new(program).arg(SETS_MODES_ARGUMENT).stdout(Stdio::piped()).spawn().expect("this program starts");
    let mut said = [0; 4];
    let stdout = child.stdout.as_mut().expect("stdout is piped");
    let read = stdout.read_exact(&mut said);
    if read.is_err() || &said != b"set\n" {
        child.wait().expect("it ends");
        return Err("modes cannot be set here".into());
    }
    let meanwhile = value();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_ne!(meanwhile?, before);
    let deadline = Instant::now() + Duration::from_secs(5);
    while value()? != before {
        assert!(Instant::now() < deadline, "{HARMLESS} is still {}, and was {before}", value()?);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
