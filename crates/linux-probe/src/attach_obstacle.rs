//! Why a running process cannot be attached to.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::process;

use crate::status::Status;
use crate::sysfs;

/// Place of the class in an ELF file, and its value for 64-bit programs.
const ELF_CLASS_AT: usize = 4;
const ELF_CLASS_64: u8 = 2;

/// Why a process cannot be attached to. As text, it is about "it", and says what to do.
#[derive(Debug)]
pub enum AttachObstacle {
    /// No process has this id.
    NoProcess,
    /// It is this process.
    Itself,
    /// The id is that of a thread other than the first one.
    Thread {
        /// The thread's process.
        process: u32,
    },
    /// It ended meanwhile.
    Ended,
    /// It has ended, and its parent has not waited for it.
    Zombie,
    /// Its first thread has ended; others run.
    FirstThreadEnded,
    /// It belongs to the kernel.
    KernelThread,
    /// It has a tracer, and can have one only.
    Traced {
        /// The tracer.
        tracer: u32,
        /// The tracer's name.
        by: String,
    },
    /// Its calls and its code are of another kind.
    Program32Bit,
    /// This user may not trace it.
    Forbidden(Ban),
    /// The kernel refused for another reason.
    Refused(io::Error),
}

/// What forbids this user to trace a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ban {
    /// It belongs to another user.
    Owner(u32),
    /// It belongs to another user, whom Yama would forbid to trace it, too.
    OwnerAndYama {
        /// That user.
        user: u32,
        /// The value of `kernel.yama.ptrace_scope`.
        scope: u64,
    },
    /// The security module Yama, by this value of `kernel.yama.ptrace_scope`.
    Yama(u64),
    /// Its rights or its own wish: that needs `CAP_SYS_PTRACE`.
    Rights,
    /// The same; and root, as which hksim runs, does not have `CAP_SYS_PTRACE` here.
    RootWithout,
    /// A security module or a container: hksim has `CAP_SYS_PTRACE`.
    Confined,
}

impl AttachObstacle {
    /// The status of a process that can probably be attached to. Nothing is done to it.
    ///
    /// # Errors
    /// It cannot be attached to.
    pub fn check(pid: u32) -> Result<Status, Self> {
        let status = Self::status_of(pid)?;
        match Self::of_status(pid, &status) {
            Some(obstacle) => Err(obstacle),
            None => Ok(status),
        }
    }

    /// The status of a process whose program can be looked at from outside: as [`AttachObstacle::check`], but a tracer, or
    /// rights that attaching needs, are no obstacle.
    ///
    /// # Errors
    /// It has no program, or none of 64 bits.
    pub fn check_program(pid: u32) -> Result<Status, Self> {
        let status = Self::status_of(pid)?;
        match Self::without_program(pid, &status) {
            Some(obstacle) => Err(obstacle),
            None if elf_class(pid).is_ok_and(is_not_64_bit) => Err(Self::Program32Bit),
            None => Ok(status),
        }
    }

    fn status_of(pid: u32) -> Result<Status, Self> {
        if pid == process::id() {
            return Err(Self::Itself);
        }
        Status::of(pid).map_err(|why| match (why.kind(), why.raw_os_error()) {
            (ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => Self::NoProcess,
            _ => Self::Refused(why),
        })
    }

    fn without_program(pid: u32, status: &Status) -> Option<Self> {
        match status.number("Tgid").filter(|&process| process != pid) {
            Some(process) => Some(Self::Thread { process }),
            None => Self::without_memory(status),
        }
    }

    fn of_status(pid: u32, status: &Status) -> Option<Self> {
        if let Some(obstacle) = Self::without_program(pid, status) {
            return Some(obstacle);
        }
        if let Some(tracer) = status.number("TracerPid").filter(|&tracer| tracer != 0) {
            let by = Status::of(tracer).map_or_else(|_| "in another namespace".to_string(), |by| by.name().to_string());
            return Some(Self::Traced { tracer, by });
        }
        match elf_class(pid) {
            Ok(class) if is_not_64_bit(class) => Some(Self::Program32Bit),
            Err(why) if why.kind() == ErrorKind::PermissionDenied => Some(Self::of_error(why, status)),
            _ => None,
        }
    }

    /// Why a process with this status has no memory; `None` if it has.
    pub fn without_memory(status: &Status) -> Option<Self> {
        match status.is_zombie() {
            true if status.has_lost_first_thread() => Some(Self::FirstThreadEnded),
            true => Some(Self::Zombie),
            false => (!status.has_memory()).then_some(Self::KernelThread),
        }
    }

    /// Of an error of the kernel for a process with this status.
    pub fn of_error(why: io::Error, status: &Status) -> Self {
        match why.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Self::Ended,
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden(Ban::of_tracing(status)),
            _ => Self::Refused(why),
        }
    }

    /// Whether there is no such process any more.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::NoProcess | Self::Ended | Self::Zombie)
    }
}

/// Who wants to trace a process.
#[derive(Clone, Copy, Debug)]
struct Tracer {
    user: u32,
    /// Whether it has `CAP_SYS_PTRACE`.
    may_trace_all: bool,
}

/// The number of `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u32 = 19;

impl Tracer {
    fn this_process() -> Self {
        let capabilities = Status::of_this_process().ok();
        let capabilities = capabilities.and_then(|own| u64::from_str_radix(own.field("CapEff")?, 16).ok());
        Self {
            // SAFETY: has no precondition.
            user: unsafe { libc::geteuid() },
            may_trace_all: capabilities.is_some_and(|all| all >> CAP_SYS_PTRACE & 1 == 1),
        }
    }
}

/// What Yama permits; absent in a kernel without it.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

impl Ban {
    fn of_tracing(status: &Status) -> Self {
        Self::of(status, Tracer::this_process(), sysfs::number(YAMA))
    }

    /// What forbids this user to read the memory map of a process with this status. Yama forbids no reading.
    pub fn of_reading(status: &Status) -> Self {
        Self::of(status, Tracer::this_process(), None)
    }

    fn of(status: &Status, tracer: Tracer, yama: Option<u64>) -> Self {
        // All of its user ids must be the tracer's.
        let other = status.numbers("Uid").find(|&user| user != tracer.user);
        match (other, yama) {
            (_, Some(scope @ 3)) => Self::Yama(scope),
            _ if tracer.may_trace_all => Self::Confined,
            _ if tracer.user == 0 => Self::RootWithout,
            (Some(user), Some(scope @ (1 | 2))) => Self::OwnerAndYama { user, scope },
            (Some(user), _) => Self::Owner(user),
            (None, Some(scope @ (1 | 2))) => Self::Yama(scope),
            _ => Self::Rights,
        }
    }
}

fn is_not_64_bit(class: Option<u8>) -> bool {
    class.is_some_and(|class| class != ELF_CLASS_64)
}

/// The class in the head of a process's program; `None` if that is too short.
fn elf_class(pid: u32) -> io::Result<Option<u8>> {
    let mut start = [0; ELF_CLASS_AT + 1];
    let read = File::open(format!("/proc/{pid}/exe"))?.read_exact(&mut start);
    Ok(read.is_ok().then_some(start[ELF_CLASS_AT]))
}

impl fmt::Display for AttachObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => write!(f, "there is no such process"),
            Self::Itself => write!(f, "it is hksim itself; name another one"),
            Self::Thread { process } => write!(f, "it is a thread of process {process}; use -p {process}"),
            Self::Ended => write!(f, "it has ended"),
            Self::Zombie => write!(f, "it has ended, and its parent has not waited for it (zombie)"),
            Self::FirstThreadEnded => write!(
                f,
                "its first thread has ended (pthread_exit in main), so the kernel shows neither its program nor its memory"
            ),
            Self::KernelThread => write!(f, "it is a kernel thread, which has no memory of its own"),
            Self::Traced { tracer, by } => {
                write!(f, "process {tracer} ({by}) traces it already; end that tracer, or wait for it")
            }
            Self::Program32Bit => write!(f, "it is a 32-bit program; hksim records 64-bit programs only"),
            Self::Forbidden(ban) => ban.fmt(f),
            Self::Refused(why) => write!(f, "the kernel refuses access to it: {why}"),
        }
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(user) => write!(f, "it belongs to the user with id {user}; run hksim as that user or as root"),
            Self::OwnerAndYama { user, scope } => write!(
                f,
                "it belongs to the user with id {user}, who may not trace it either (kernel.yama.ptrace_scope is {scope}); run \
                 hksim as root or with CAP_SYS_PTRACE"
            ),
            Self::Yama(1) => write!(
                f,
                "Yama permits tracing of child processes only (kernel.yama.ptrace_scope is 1); run hksim as root or with \
                 CAP_SYS_PTRACE, or set that to 0"
            ),
            Self::Yama(2) => write!(
                f,
                "Yama permits tracing by root only (kernel.yama.ptrace_scope is 2); run hksim as root or with CAP_SYS_PTRACE"
            ),
            Self::Yama(scope) => {
                write!(f, "Yama permits no tracing until the next boot (kernel.yama.ptrace_scope is {scope})")
            }
            Self::Rights => write!(
                f,
                "the kernel forbids access to it: it has more rights than hksim, or has forbidden it (prctl \
                 PR_SET_DUMPABLE); run hksim as root or with CAP_SYS_PTRACE"
            ),
            Self::RootWithout => write!(
                f,
                "that needs CAP_SYS_PTRACE, which root does not have here, as in most containers; start the container with \
                 it (--cap-add SYS_PTRACE), or run hksim outside of it"
            ),
            Self::Confined => write!(
                f,
                "the kernel forbids access to it although hksim has CAP_SYS_PTRACE: hksim runs in a container or sandbox \
                 (user namespace, Landlock, SELinux or AppArmor) to which the process does not belong; run hksim outside \
                 of it"
            ),
        }
    }
}

impl Error for AttachObstacle {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pid: u32) -> AttachObstacle {
        AttachObstacle::check(pid).expect_err("a refusal")
    }

    #[test]
    fn what_cannot_be_attached_to_is_refused() {
        assert!(matches!(refusal(process::id()), AttachObstacle::Itself));
        assert!(matches!(refusal(u32::MAX), AttachObstacle::NoProcess));
        let thread = std::thread::spawn(move || {
            // SAFETY: has no precondition.
            refusal(unsafe { libc::gettid() } as u32)
        });
        let thread = thread.join().expect("a thread");
        assert!(matches!(thread, AttachObstacle::Thread { process } if process == process::id()));
    }

    #[test]
    fn the_first_obstacle_of_a_status_counts() {
        let of = |text: &str| AttachObstacle::of_status(7, &Status::from(text.to_string()));
        assert!(matches!(of("Tgid:\t5\nState:\tZ (zombie)"), Some(AttachObstacle::Thread { process: 5 })));
        assert!(matches!(of("Tgid:\t7\nState:\tZ (zombie)"), Some(AttachObstacle::Zombie)));
        let of_others = of("Tgid:\t7\nState:\tZ (zombie)\nThreads:\t2");
        assert!(matches!(of_others, Some(AttachObstacle::FirstThreadEnded)));
        assert!(matches!(of("Tgid:\t7\nState:\tI (idle)"), Some(AttachObstacle::KernelThread)));
        let traced = of("Tgid:\t7\nState:\tS (sleeping)\nVmSize:\t 9 kB\nTracerPid:\t4194305");
        assert!(matches!(traced, Some(AttachObstacle::Traced { tracer: 4_194_305, .. })));
    }

    #[test]
    fn a_ban_names_what_this_user_lacks() {
        let status = Status::from("Uid:\t0\t0\t0\t0\n".to_string());
        let of = |user, may_trace_all, yama| Ban::of(&status, Tracer { user, may_trace_all }, yama);
        assert_eq!(of(0, true, Some(1)), Ban::Confined);
        assert_eq!(of(0, true, Some(3)), Ban::Yama(3));
        assert_eq!(of(0, false, None), Ban::RootWithout);
        assert_eq!((of(7, false, Some(0)), of(7, false, None)), (Ban::Owner(0), Ban::Owner(0)));
        assert_eq!(of(7, false, Some(1)), Ban::OwnerAndYama { user: 0, scope: 1 });
        let own = Status::from("Uid:\t7\t7\t7\t7\n".to_string());
        let of_own = |yama| Ban::of(&own, Tracer { user: 7, may_trace_all: false }, yama);
        assert_eq!((of_own(Some(1)), of_own(Some(0)), of_own(None)), (Ban::Yama(1), Ban::Rights, Ban::Rights));
        for ban in [Ban::RootWithout, Ban::Confined] {
            assert!(!ban.to_string().contains("as root"), "root is root: {ban}");
        }
    }

    /// As the kernel documents the values (Documentation/admin-guide/LSM/Yama.rst), read from a file as the kernel's is.
    #[test]
    fn each_value_of_yama_says_what_helps() {
        let path = std::env::temp_dir().join(format!("hksim-ptrace_scope-{}", process::id()));
        let sentence = |value: &str, owner: u32| {
            std::fs::write(&path, value).expect("a file");
            let status = Status::from(format!("Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n"));
            let yama = sysfs::number(&path.display().to_string());
            Ban::of(&status, Tracer { user: 7, may_trace_all: false }, yama).to_string()
        };
        for (value, owner, says, helps, does_not) in [
            ("0\n", 7, "has forbidden it (prctl PR_SET_DUMPABLE)", "as root or with CAP_SYS_PTRACE", "yama"),
            ("1\n", 7, "child processes only", "or set that to 0", "as that user"),
            ("2\n", 7, "by root only", "as root or with CAP_SYS_PTRACE", "set that to 0"),
            ("3\n", 7, "no tracing until the next boot", "ptrace_scope is 3", "run hksim as root"),
            ("0\n", 8, "the user with id 8", "as that user or as root", "yama"),
            ("1\n", 8, "the user with id 8", "ptrace_scope is 1", "as that user"),
            ("2\n", 8, "the user with id 8", "ptrace_scope is 2", "as that user"),
            ("3\n", 8, "no tracing until the next boot", "ptrace_scope is 3", "as that user"),
            ("", 7, "has forbidden it (prctl PR_SET_DUMPABLE)", "as root", "yama"),
        ] {
            let text = sentence(value, owner);
            assert!(
                text.contains(says) && text.contains(helps) && !text.contains(does_not),
                "{value:?}, {owner}: {text}"
            );
        }
        std::fs::remove_file(path).expect("the file");
    }

    #[test]
    fn errors_of_the_kernel_say_what_they_mean() {
        let status = Status::of_this_process().expect("a status");
        let of = |number: i32| AttachObstacle::of_error(io::Error::from_raw_os_error(number), &status);
        assert!(of(libc::ESRCH).is_end());
        assert!(matches!(of(libc::EIO), AttachObstacle::Refused(_)));
        // This process's own user is not what forbids it.
        assert!(matches!(of(libc::EPERM), AttachObstacle::Forbidden(ban) if !matches!(ban, Ban::Owner(_))));
    }
}
