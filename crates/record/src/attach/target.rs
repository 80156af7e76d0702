//! The process to record, and why it cannot be.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hksim_linux_probe::attach_obstacle::AttachObstacle;
use hksim_linux_probe::process_memory::ProcessMemory;
use hksim_linux_probe::process_words::command_of;
use hksim_linux_probe::status::Status;

use crate::error::RecordError;

/// A running process that this one may record.
#[derive(Debug)]
pub struct Target {
    /// Its process id, as this process sees it.
    pub pid: u32,
    /// Its process id in its own namespace.
    pub inside_pid: u32,
    /// The user as which it opens files.
    pub user: u32,
    /// Whether it sees the same files under the same paths as this process.
    pub sees_same_files: bool,
    /// Its command line.
    pub command: Vec<String>,
    /// Its memory.
    pub memory: ProcessMemory,
}

impl Target {
    /// Checks the process, without any effect on it.
    ///
    /// # Errors
    /// There is no such process, or it cannot be recorded; the error says why.
    pub fn check(pid: u32) -> Result<Self, RecordError> {
        let refused = |why: AttachObstacle| RecordError::CannotAttach { pid, why: why.to_string() };
        let status = AttachObstacle::check(pid).map_err(refused)?;
        if let Some(why) = obstacle_to_calls(pid, &status) {
            return Err(RecordError::CannotAttach { pid, why });
        }
        let memory = ProcessMemory::open(pid).map_err(|why| refused(AttachObstacle::of_error(why, &status)))?;
        Ok(Self {
            pid,
            inside_pid: status.numbers("NSpid").last().unwrap_or(pid),
            user: status.numbers("Uid").nth(3).unwrap_or_default(),
            sees_same_files: sees_same_files(pid),
            command: command_of(pid),
            memory,
        })
    }
}

/// Why a process makes no calls of the recorder.
fn obstacle_to_calls(pid: u32, status: &Status) -> Option<String> {
    if status.state() == Some('T') {
        return Some(format!("it is stopped; let it continue first (kill -CONT {pid})"));
    }
    status.number("Seccomp").is_some_and(|mode: u32| mode != 0).then(|| {
        "it has a system-call filter (seccomp), which cannot be read and could end it at a call of the recorder; start it \
         with hksim record instead"
            .into()
    })
}

fn sees_same_files(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let root = |path: &Path| fs::metadata(path).map(|root| (root.dev(), root.ino())).ok();
    namespace(&pid.to_string()).is_some_and(|own| Some(own) == namespace("self"))
        && root(Path::new(&format!("/proc/{pid}/root"))).is_some_and(|own| Some(own) == root(Path::new("/")))
}
