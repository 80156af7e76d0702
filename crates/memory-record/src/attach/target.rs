//! A running process: whether it can be attached to, and what it was started with.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};

use hksim_linux_probe::sysfs;
use hksim_memory_trace::{Limits, ThpDisabled};

use super::AttachedProcess;
use crate::error::AttachError;
use crate::machine;

/// Place of the class in an ELF file, and its value for 64-bit programs.
const ELF_CLASS_AT: usize = 4;
const ELF_CLASS_64: u8 = 2;

/// A process that can probably be attached to.
#[derive(Debug)]
pub struct Target {
    pub pid: u32,
    /// The name that the kernel shows (`comm`).
    pub name: String,
    /// The user that owns it.
    uid: u32,
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
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|why| match why.kind() {
            ErrorKind::NotFound => AttachError::NoProcess { pid },
            _ => AttachError::Read { path: format!("/proc/{pid}/status"), source: why },
        })?;
        let word = |key: &str| field(&status, key).and_then(|value| value.split_whitespace().next());
        let number = |key: &str| word(key).and_then(|word| word.parse::<u32>().ok());
        let name = field(&status, "Name:").unwrap_or_default().to_string();
        if pid == std::process::id() {
            return Err(AttachError::Itself);
        }
        if let Some(process) = number("Tgid:").filter(|&process| process != pid) {
            return Err(AttachError::IsThread { pid, process });
        }
        if matches!(word("State:"), Some("Z" | "X")) {
            return Err(AttachError::Exited { pid });
        }
        if word("VmSize:").is_none() {
            return Err(AttachError::KernelThread { pid, name });
        }
        if let Some(tracer) = number("TracerPid:").filter(|&tracer| tracer != 0) {
            let by = sysfs::text(&format!("/proc/{tracer}/comm")).unwrap_or_default();
            return Err(AttachError::Traced { pid, name, tracer, by });
        }
        let thp = if word("THP_enabled:") == Some("0") { ThpDisabled::All } else { ThpDisabled::Off };
        let target = Self { pid, name, uid: number("Uid:").unwrap_or_default(), thp };
        match target.elf_class() {
            Ok(Some(class)) if class != ELF_CLASS_64 => Err(AttachError::Is32Bit { pid, name: target.name }),
            Err(why) if why.kind() == ErrorKind::PermissionDenied => Err(target.refused(why)),
            _ => Ok(target),
        }
    }

    fn elf_class(&self) -> io::Result<Option<u8>> {
        let mut start = [0; ELF_CLASS_AT + 1];
        let read = File::open(format!("/proc/{}/exe", self.pid))?.read_exact(&mut start);
        Ok(read.is_ok().then_some(start[ELF_CLASS_AT]))
    }

    /// The error of a request that the kernel refused.
    pub fn refused(&self, source: io::Error) -> AttachError {
        let (pid, name) = (self.pid, self.name.clone());
        match source.raw_os_error() {
            Some(libc::ESRCH) => AttachError::Exited { pid },
            Some(libc::EPERM | libc::EACCES) => {
                // SAFETY: has no precondition.
                let own = unsafe { libc::geteuid() };
                let scope = sysfs::number("/proc/sys/kernel/yama/ptrace_scope").unwrap_or(0);
                let why = if own != 0 && own != self.uid {
                    format!("it belongs to the user with id {}", self.uid)
                } else if scope > 0 {
                    format!("kernel.yama.ptrace_scope is {scope}")
                } else {
                    "a container, a security module or the process itself forbids ptrace".to_string()
                };
                AttachError::NotPermitted { pid, name, why }
            }
            _ => AttachError::Stop { pid, name, source },
        }
    }

    /// What the header says about it.
    pub fn process(&self, stopped_ns: u64) -> AttachedProcess {
        let words = |file: &str| -> Vec<String> {
            let bytes = fs::read(format!("/proc/{}/{file}", self.pid)).unwrap_or_default();
            let words = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        };
        let command = Some(words("cmdline")).filter(|words| !words.is_empty());
        let environment: BTreeMap<String, String> = words("environ")
            .iter()
            .filter_map(|variable| variable.split_once('='))
            .filter(|(name, _)| machine::is_recorded_variable(name))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let personality = sysfs::text(&format!("/proc/{}/personality", self.pid));
        let directory = fs::read_link(format!("/proc/{}/cwd", self.pid)).ok();
        AttachedProcess {
            command: command.unwrap_or_else(|| vec![self.name.clone()]),
            directory: directory.map(|path| path.display().to_string()),
            environment,
            personality: personality.and_then(|text| u32::from_str_radix(&text, 16).ok()).unwrap_or_default(),
            limits: limits(&fs::read_to_string(format!("/proc/{}/limits", self.pid)).unwrap_or_default()),
            stopped_ns,
        }
    }
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// The soft limits in the text of `/proc/PID/limits`: the first number after the name.
fn limits(text: &str) -> Limits {
    let soft = |name: &str| field(text, name)?.split_whitespace().next()?.parse().ok();
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

    #[test]
    fn what_cannot_be_attached_to_is_refused() {
        let refusal = |pid| Target::open(pid).map(|target| target.name).expect_err("a refusal");
        assert!(matches!(refusal(std::process::id()), AttachError::Itself));
        assert!(matches!(refusal(u32::MAX), AttachError::NoProcess { .. }));
        let thread = std::thread::spawn(move || {
            // SAFETY: has no precondition.
            refusal(unsafe { libc::gettid() } as u32)
        });
        let thread = thread.join().expect("a thread");
        assert!(matches!(thread, AttachError::IsThread { process, .. } if process == std::process::id()));
    }
}
