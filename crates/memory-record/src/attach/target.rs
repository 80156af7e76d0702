//! A running process: whether it can be attached to, and what it was started with.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use hksim_linux_probe::attach_obstacle::AttachObstacle;
use hksim_linux_probe::process_words::{command_of, environment_of};
use hksim_linux_probe::status::Status;
use hksim_linux_probe::sysfs;
use hksim_memory_trace::{Limits, ThpDisabled};

use super::AttachedProcess;
use crate::error::AttachError;
use crate::machine;

/// A process that can probably be attached to.
#[derive(Debug)]
pub struct Target {
    pub pid: u32,
    status: Status,
    /// Whether it can get huge pages. `PR_THP_DISABLE_EXCEPT_ADVISED` is not visible from outside, and counts as
    /// [`ThpDisabled::Off`].
    pub thp: ThpDisabled,
}

impl Target {
    /// Looks at a process.
    ///
    /// # Errors
    /// There is no such process, or it cannot be attached to.
    pub fn open(pid: u32) -> Result<Self, AttachError> {
        let status = AttachObstacle::check(pid).map_err(|why| AttachError::Process { pid, why })?;
        let thp = if status.number("THP_enabled") == Some(0) { ThpDisabled::All } else { ThpDisabled::Off };
        Ok(Self { pid, status, thp })
    }

    /// The error of a request that the kernel refused.
    pub fn refused(&self, source: io::Error) -> AttachError {
        AttachError::Process { pid: self.pid, why: AttachObstacle::of_error(source, &self.status) }
    }

    /// The error if it has ended meanwhile.
    pub fn ended(&self) -> AttachError {
        AttachError::Process { pid: self.pid, why: AttachObstacle::Ended }
    }

    /// What the header says about it.
    pub fn process(&self, stopped_ns: u64, lazy_unknown_bytes: u64) -> AttachedProcess {
        let command = Some(command_of(self.pid)).filter(|words| !words.is_empty());
        let environment: BTreeMap<String, String> = environment_of(self.pid)
            .iter()
            .filter_map(|variable| variable.split_once('='))
            .filter(|(name, _)| machine::is_recorded_variable(name))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let personality = sysfs::text(&format!("/proc/{}/personality", self.pid));
        let directory = fs::read_link(format!("/proc/{}/cwd", self.pid)).ok();
        AttachedProcess {
            command: command.unwrap_or_else(|| vec![self.status.name().to_string()]),
            directory: directory.map(|path| path.display().to_string()),
            environment,
            personality: personality.and_then(|text| u32::from_str_radix(&text, 16).ok()).unwrap_or_default(),
            limits: limits(&fs::read_to_string(format!("/proc/{}/limits", self.pid)).unwrap_or_default()),
            stopped_ns,
            lazy_unknown_bytes,
        }
    }
}

/// The soft limits in the text of `/proc/PID/limits`: the first number after the name.
fn limits(text: &str) -> Limits {
    let soft = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Limits {
        stack_bytes: soft("Max stack size"),
        locked_bytes: soft("Max locked memory"),
        address_space_bytes: soft("Max address space"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max stack size            8388608              unlimited            bytes     \n\
                    Max locked memory         unlimited            unlimited            bytes     \n";
        let expected = Limits { stack_bytes: Some(8 << 20), locked_bytes: None, address_space_bytes: None };
        assert_eq!(limits(text), expected);
    }
}
