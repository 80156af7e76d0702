//! The count of system calls, compared with strace.

use std::process::{Command, ExitCode};

use hksim_engine::{OsCalls, TouchRule};
use hksim_replay::{Measure, ReplaySpec, Target, replay};

use crate::common::{design, server};

/// Makes this program perform one replay, for strace. Arguments: trace, policy.
pub const TRACED_ARGUMENT: &str = "replay-under-strace";

pub fn traced(arguments: &[String]) -> ExitCode {
    let on = Target::Native(Box::new(design(&arguments[1])));
    let spec = ReplaySpec::ordered(&arguments[0], on, TouchRule::All);
    let spec = ReplaySpec { measure: Measure::PAGES, ..spec };
    let calls = replay(&spec).unwrap().os_calls.unwrap();
    println!("{}", serde_json::to_string(&calls).unwrap());
    ExitCode::SUCCESS
}

/// Calls on the reservation, the only mapping at 2^45. The harness unmaps it at the end, which does not count.
fn count(log: &str) -> OsCalls {
    let mut calls = OsCalls::default();
    for line in log.lines() {
        let call = line.trim_start_matches(|byte: char| byte.is_ascii_digit() || byte == ' ');
        let Some((name, arguments)) = call.split_once('(') else { continue };
        let is_ours = arguments.starts_with("0x2000") && arguments.find(',') == Some("0x200000000000".len());
        match name {
            _ if !is_ours => {}
            "mmap" => calls.mmap += 1,
            "munmap" if !arguments.starts_with("0x200000000000,") => calls.munmap += 1,
            "madvise" => calls.madvise += 1,
            "mremap" => calls.mremap += 1,
            _ => {}
        }
    }
    calls
}

pub fn strace_counts_the_same_calls() -> Result<(), String> {
    let trace = server();
    let log = trace.folder().join("strace.log");
    for json in [r#"{"purge":"unmap","purge_delay_ns":0}"#, r#"{"prefault":"populate","purge_delay_ns":0}"#] {
        let output = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=mmap,munmap,madvise,mremap", "-o"])
            .arg(&log)
            .arg(std::env::current_exe().unwrap())
            .arg(TRACED_ARGUMENT)
            .arg(trace.path())
            .arg(json)
            .output();
        let output = output.map_err(|why| format!("strace: {why}"))?;
        if !output.status.success() {
            return Err(format!("strace: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let ours: OsCalls = serde_json::from_slice(&output.stdout).unwrap();
        let theirs = count(&std::fs::read_to_string(&log).unwrap());
        assert_eq!(ours, theirs, "{json}");
        assert!(ours.mmap + ours.madvise > 20, "{json}: too few calls for a comparison: {ours:?}");
    }
    Ok(())
}
