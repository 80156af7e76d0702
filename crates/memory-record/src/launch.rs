//! Starts the program, stopped until the recorder is ready.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use hksim_memory_trace::ThpDisabled;
use libc::{c_int, pid_t, sock_filter};

use crate::call_log::CallLog;
use crate::error::MemoryRecordError;
use crate::filter;
use crate::shown_mode::ShownMode;
use crate::signals;
use crate::snapshot::{self, Snapshots, SnapshotsOf};
use crate::tracer::{self, Reads, Traced};

/// What the process gets to execute the program, without and with a filter of its calls.
const GO: u8 = 1;
const GO_FILTERED: u8 = 2;
/// Argument of `personality` that changes nothing.
const PERSONALITY_QUERY: libc::c_ulong = 0xffff_ffff;
/// Exit status of a process that was never allowed to execute its program.
const GAVE_UP: c_int = 127;

/// How the program is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The command and its arguments; not empty.
    pub command: Vec<OsString>,
    /// The directory in which it starts; `None` for that of this process.
    pub directory: Option<PathBuf>,
    /// The THP mode that it reads.
    pub shown_mode: Option<Arc<ShownMode>>,
    /// Additional environment variables.
    pub variables: Vec<(OsString, OsString)>,
    /// Whether the program and its children get huge pages (`PR_SET_THP_DISABLE`).
    pub thp_disable: ThpDisabled,
    /// Switch random addresses off.
    pub fixes_addresses: bool,
    /// The program's standard streams.
    pub streams: Streams,
    /// Whose memory is read at the exit. These processes are stopped for that (ptrace).
    pub snapshots_of: SnapshotsOf,
}

/// The standard streams of a program.
#[derive(Clone, Debug, Default)]
pub enum Streams {
    /// Those of this process.
    #[default]
    Inherited,
    /// An empty input; the output is dropped, and errors go to a file or are dropped too.
    Silent {
        /// The file for errors.
        errors: Option<PathBuf>,
    },
    /// A text as input; the output goes to a file, errors to those of this process.
    Job {
        /// The input.
        input: String,
        /// The file for the output.
        output: PathBuf,
    },
}

impl Streams {
    fn apply(&self, command: &mut Command) -> io::Result<()> {
        match self {
            Self::Inherited => {}
            Self::Silent { errors } => {
                let errors = errors.as_ref().map(File::create).transpose()?;
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.map_or(Stdio::null(), Stdio::from));
            }
            Self::Job { input, output } => {
                // The input is at most a few kilobytes, less than a pipe holds.
                let (reader, mut writer) = io::pipe()?;
                writer.write_all(input.as_bytes())?;
                command.stdin(reader).stdout(File::create(output)?);
            }
        }
        Ok(())
    }
}

/// How the program ended, and what the kernel charged to it and to the descendants that it waited for.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// Faults without input or output (`ru_minflt`).
    pub minor_faults: u64,
    /// Largest resident set of one process (`ru_maxrss`).
    pub resident_bytes_peak: u64,
    /// The memory at the exit of the program and of its children, if asked for.
    pub snapshots: Snapshots,
}

/// A program that waits before its exec.
pub struct Stopped {
    pid: pid_t,
    snapshots_of: SnapshotsOf,
    go: io::PipeWriter,
    /// Tells the watcher where a tracer reports the end.
    tracer: Sender<Receiver<Ended>>,
    watcher: JoinHandle<io::Result<Ended>>,
}

/// A running program.
pub struct Running {
    pid: pid_t,
    watcher: JoinHandle<io::Result<Ended>>,
}

impl Launch {
    /// Creates the process. It waits before its exec until [`Stopped::go`].
    ///
    /// # Errors
    /// No process can be created.
    pub fn start(self) -> Result<Stopped, MemoryRecordError> {
        let failed = MemoryRecordError::system("create a process");
        let (ready, parent_ready, child_go, go) = match (io::pipe(), io::pipe()) {
            (Ok((ready, parent_ready)), Ok((child_go, go))) => (ready, parent_ready, child_go, go),
            (Err(why), _) | (_, Err(why)) => return Err(failed(why)),
        };
        let (mut ready, child_ready) = (ready, OwnedFd::from(parent_ready));
        let child_go = OwnedFd::from(child_go);
        let parent_go_fd = go.as_raw_fd();
        let snapshots_of = self.snapshots_of;
        let (tracer, traced_end) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        // `spawn` returns after the exec, so it needs a thread of its own.
        let watcher = thread::spawn(move || {
            let result = self.spawn_and_wait(child_ready, child_go, parent_go_fd, &traced_end);
            let _ = report.send(());
            result
        });
        let mut pid = [0; 4];
        if let Err(why) = ready.read_exact(&mut pid) {
            // The process could not be created; the watcher has the reason.
            let _ = reported.recv();
            let why = watcher.join().ok().and_then(Result::err).unwrap_or(why);
            return Err(failed(why));
        }
        Ok(Stopped { pid: pid_t::from_ne_bytes(pid), snapshots_of, go, tracer, watcher })
    }

    fn spawn_and_wait(
        self,
        ready: OwnedFd,
        go: OwnedFd,
        parent_go_fd: c_int,
        traced_end: &Receiver<Receiver<Ended>>,
    ) -> io::Result<Ended> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        self.streams.apply(&mut command)?;
        let (ready_fd, go_fd) = (ready.as_raw_fd(), go.as_raw_fd());
        let (options, filter) = (self.clone(), filter::program());
        // SAFETY: the function makes only system calls, which are permitted between fork and exec, on descriptors that
        // are open until after the spawn.
        unsafe { command.pre_exec(move || prepare(ready_fd, go_fd, parent_go_fd, &options, &filter)) };
        let child = command.spawn()?;
        drop((ready, go));
        let pid = child.id() as pid_t;
        if let Ok(ended) = traced_end.recv() {
            return ended.recv().map_err(|_| io::Error::other("the tracer failed"));
        }
        let snapshots = match self.snapshots_of {
            SnapshotsOf::Nothing => Snapshots::new(),
            whose => snapshot::at_exits(pid, whose)?,
        };
        wait(pid).map(|ended| Ended { snapshots, ..ended })
    }
}

/// Runs in the new process before the exec.
fn prepare(ready: c_int, go: c_int, parent_go: c_int, options: &Launch, filter: &[sock_filter]) -> io::Result<()> {
    // SAFETY: system calls with numbers and with buffers of the given lengths. The descriptor that is closed is this
    // process's copy, which nothing else here uses.
    unsafe {
        // With its own copy of the pipe's other end, this process would never notice that the recorder is gone.
        libc::close(parent_go);
        signals::restore_defaults();
        if let Some(mode) = &options.shown_mode {
            mode.show()?;
        }
        let [value, flags] = options.thp_disable.arguments();
        // Kernels before 6.18 refuse flags. Nothing is to be changed if this process has the setting.
        let has_it = libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == (value | flags) as c_int;
        if !has_it && libc::prctl(libc::PR_SET_THP_DISABLE, value, flags, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fixed = libc::personality(PERSONALITY_QUERY) | libc::ADDR_NO_RANDOMIZE;
        if options.fixes_addresses && libc::personality(fixed as _) < 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = libc::getpid().to_ne_bytes();
        if libc::write(ready, pid.as_ptr().cast(), pid.len()) != pid.len() as isize {
            return Err(io::Error::last_os_error());
        }
        let mut byte = 0u8;
        match (libc::read(go, (&raw mut byte).cast(), 1), byte) {
            (1, GO_FILTERED) => filter::install(filter),
            (1, _) if options.snapshots_of != SnapshotsOf::Nothing => snapshot::trace_me(),
            (1, _) => Ok(()),
            // The recorder gave up. It may be gone, so no error can be reported to it.
            _ => libc::_exit(GAVE_UP),
        }
    }
}

fn wait(pid: pid_t) -> io::Result<Ended> {
    let mut status: c_int = 0;
    // SAFETY: plain numbers, valid when zeroed.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the kernel writes to the two values.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            break;
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
    Ok(Ended::new(ExitStatus::from_raw(status), &usage, Snapshots::new()))
}

impl Ended {
    /// The exit status, as recordings hold it.
    pub fn exit_status(&self) -> Option<hksim_memory_trace::ExitStatus> {
        use hksim_memory_trace::ExitStatus;
        let by_signal = || self.status.signal().map(ExitStatus::Signal);
        self.status.code().map(ExitStatus::Code).or_else(by_signal)
    }

    pub(crate) fn new(status: ExitStatus, usage: &libc::rusage, snapshots: Snapshots) -> Self {
        let (minor_faults, resident_bytes_peak) = (usage.ru_minflt as u64, usage.ru_maxrss as u64 * 1024);
        Self { status, minor_faults, resident_bytes_peak, snapshots }
    }
}

impl Stopped {
    /// The process.
    pub fn pid(&self) -> pid_t {
        self.pid
    }

    /// Lets the process execute the program.
    ///
    /// # Errors
    /// The process is gone.
    pub fn go(self) -> Result<Running, MemoryRecordError> {
        self.go_with(GO)
    }

    /// Lets the process execute the program, traced: its memory calls are logged, `with_stacks` with
    /// registers and stack.
    ///
    /// # Errors
    /// The process cannot be traced, or is gone.
    pub(crate) fn go_traced(
        self,
        log: &Arc<CallLog>,
        with_stacks: bool,
    ) -> Result<(Running, Traced), MemoryRecordError> {
        let (ended, traced) = {
            let reads = Reads { snapshots: self.snapshots_of, stacks: with_stacks };
            tracer::start(self.pid, log, reads)?
        };
        // The watcher waits for this, or has failed and has the reason.
        let _ = self.tracer.send(ended);
        Ok((self.go_with(GO_FILTERED)?, traced))
    }

    fn go_with(mut self, how: u8) -> Result<Running, MemoryRecordError> {
        self.go.write_all(&[how]).map_err(MemoryRecordError::system("start the program"))?;
        Ok(Running { pid: self.pid, watcher: self.watcher })
    }
}

impl Running {
    /// The process.
    pub fn pid(&self) -> pid_t {
        self.pid
    }

    /// Whether the process has ended, or could not execute the program.
    pub fn has_ended(&self) -> bool {
        self.watcher.is_finished()
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The program could not be executed.
    pub fn wait(self) -> io::Result<Ended> {
        self.watcher.join().unwrap_or_else(|_| Err(io::Error::other("the waiting thread failed")))
    }
}
