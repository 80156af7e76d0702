//! The process to record, and why it cannot be.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;

use hksim_linux_probe::process_memory::ProcessMemory;

use crate::error::RecordError;

const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// Offset of the class in an ELF file, and the class of 64-bit programs.
const CLASS_OFFSET: usize = 4;
const CLASS_64: u8 = 2;

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
        let refused = |why: &str| RecordError::CannotAttach { pid, why: why.to_string() };
        if pid == process::id() {
            return Err(refused("it is hksim itself"));
        }
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            return Err(refused("there is no such process"));
        };
        let status = Status(&status);
        if let Some(why) = status.obstacle(pid) {
            return Err(refused(&why));
        }
        let user = status.numbers("Uid").nth(3).unwrap_or_default();
        let memory = ProcessMemory::open(pid).map_err(|why| refused(&forbidden(&why, user)))?;
        let head = fs::File::open(format!("/proc/{pid}/exe")).and_then(|mut file| {
            let mut head = [0; CLASS_OFFSET + 1];
            io::Read::read_exact(&mut file, &mut head).map(|()| head)
        });
        if head.is_ok_and(|head| head[CLASS_OFFSET] != CLASS_64) {
            return Err(refused("it is a 32-bit program; the recorder is for 64-bit programs"));
        }
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = command.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        Ok(Self {
            pid,
            inside_pid: status.numbers("NSpid").last().unwrap_or(pid),
            user,
            sees_same_files: sees_same_files(pid),
            command: command.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
            memory,
        })
    }
}

/// `/proc/PID/status`.
struct Status<'a>(&'a str);

impl<'a> Status<'a> {
    fn field(&self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    fn numbers(&self, name: &str) -> impl Iterator<Item = u32> {
        self.field(name).unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok())
    }

    fn number(&self, name: &str) -> u32 {
        self.numbers(name).next().unwrap_or_default()
    }

    /// Why a process in this state cannot be recorded.
    fn obstacle(&self, pid: u32) -> Option<String> {
        let process = self.number("Tgid");
        if process != pid {
            return Some(format!("it is a thread of process {process}; give the process"));
        }
        match self.field("State")?.chars().next() {
            Some('Z' | 'X') => return Some("it has ended, and its parent has not noticed yet (zombie)".into()),
            Some('T') => return Some(format!("it is stopped; let it continue first (kill -CONT {pid})")),
            _ => {}
        }
        if self.field("VmSize").is_none() {
            return Some("it is a kernel thread, which calls no malloc".into());
        }
        match self.number("TracerPid") {
            0 => {}
            tracer => return Some(format!("process {tracer} traces it already (a debugger, or strace)")),
        }
        (self.number("Seccomp") != 0).then(|| {
            "it has a system-call filter (seccomp), which cannot be read and could end it at a call of the recorder; \
             start it with hksim record instead"
                .into()
        })
    }
}

/// Why the kernel forbids access to a process of `user`.
fn forbidden(why: &io::Error, user: u32) -> String {
    // SAFETY: no arguments.
    let own = unsafe { libc::geteuid() };
    if !matches!(why.raw_os_error(), Some(libc::EACCES | libc::EPERM)) {
        return format!("its memory cannot be opened: {why}");
    }
    if own != 0 && own != user {
        return format!("it belongs to user {user}; record it as that user or as root");
    }
    let scope = fs::read_to_string(YAMA).unwrap_or_default();
    match scope.trim() {
        "1" if own != 0 => {
            "Yama permits tracing of child processes only (kernel.yama.ptrace_scope is 1); record it as \
                            root, or set that to 0"
                .into()
        }
        "2" if own != 0 => {
            "Yama permits tracing by root only (kernel.yama.ptrace_scope is 2); record it as root".into()
        }
        "3" => "Yama permits no tracing until the next boot (kernel.yama.ptrace_scope is 3)".into(),
        _ => "the kernel forbids access to it: it has more rights than this process, or has forbidden it (prctl \
              PR_SET_DUMPABLE); record it as root"
            .into(),
    }
}

fn sees_same_files(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let root = |path: &Path| fs::metadata(path).map(|root| (root.dev(), root.ino())).ok();
    namespace(&pid.to_string()).is_some_and(|own| Some(own) == namespace("self"))
        && root(Path::new(&format!("/proc/{pid}/root"))).is_some_and(|own| Some(own) == root(Path::new("/")))
}
