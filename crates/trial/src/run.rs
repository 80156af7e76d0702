//! One run of the program, below a keeper.

use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hksim_linux_probe::lifetime::signal_at_parents_end;
use hksim_validate::Listener;
use hksim_validate::memory::{Moment, Supervision};

use crate::error::RunError;
use crate::job::{Ended, Job, Message, receive, send};
use crate::keeper::KEEPER_ARGUMENT;
use crate::marks::{Mark, Marks};
use crate::output::Stream;
use crate::sampling::Seen;
use crate::tree::{self, Memory};

/// A run that went as it should.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) ended: Ended,
    /// Processor and elapsed time: of the load for a server, else of the whole run.
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
    /// What was seen of it, if it was sampled.
    pub(crate) seen: Seen,
    /// The moments that the program named.
    pub(crate) marks: Vec<Mark>,
    /// Memory of a server after its load, if it was sampled.
    pub(crate) loaded: Option<Memory>,
}

/// How runs are watched.
pub(crate) struct Watch<'a> {
    pub(crate) supervision: &'a Supervision,
    /// Is told what happens.
    pub(crate) listener: &'a dyn Listener,
    /// The time of a run that is known.
    pub(crate) known: Duration,
}

/// Whether a run is timed, or its processes are looked at meanwhile: then the library that they should have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose<'a> {
    Timed,
    Sampled(Option<&'a Path>),
}

/// When the load of a server starts and ends.
#[derive(Clone, Copy, Debug)]
struct Reached {
    at: Instant,
    cpu_ns: u64,
    memory: Option<Memory>,
}

/// Runs the program once.
pub(crate) fn run(job: &Job, watch: &Watch<'_>, purpose: Purpose<'_>) -> Result<Run, RunError> {
    let (mut keeper, socket) = start_keeper().map_err(RunError::Keeper)?;
    let pid = keeper.id();
    let streams = (keeper.stdout.take().map(Stream::read), keeper.stderr.take().map(Stream::read));
    let reached = Mutex::new(Vec::new());
    let note = |_: Moment| {
        let (at, cpu_ns) = (Instant::now(), tree::cpu_ns(pid));
        let memory = matches!(purpose, Purpose::Sampled(_)).then(|| tree::memory_of_all(pid));
        if let Ok(mut reached) = reached.lock() {
            reached.push(Reached { at, cpu_ns, memory });
        }
    };
    let taking = Marks::of(pid).map_err(RunError::Keeper)?;
    let supervisor = watch.supervision.supervisor(watch.known);
    let ((answer, trouble), marks) = taking.during(|| {
        supervisor
            .watch(watch.listener, &note, |started| kept(job, socket, &mut || started(pid as i32), (pid, purpose)))
    });
    // It ends after its last message, or when its socket is closed.
    keeper.wait().map_err(RunError::Keeper)?;
    let (ended, seen) = answer?;
    if let Some(trouble) = trouble {
        return Err(RunError::Trouble(trouble));
    }
    let (stdout, stderr) = (whole(streams.0)?, whole(streams.1)?);
    let reached = reached.into_inner().unwrap_or_default();
    let (cpu_ns, wall_ns, loaded) = match reached.as_slice() {
        [ready, loaded] => {
            let wall = loaded.at - ready.at;
            (loaded.cpu_ns.saturating_sub(ready.cpu_ns), wall.as_nanos() as u64, loaded.memory)
        }
        _ => (ended.cpu_ns, ended.wall_ns, None),
    };
    Ok(Run { ended, cpu_ns, wall_ns, stdout, stderr, seen, marks, loaded })
}

impl Run {
    /// How the program ended: `exit status: 1`, `signal: 11 (SIGSEGV)`.
    pub(crate) fn status(&self) -> String {
        ExitStatus::from_raw(self.ended.status).to_string()
    }
}

/// Starts a keeper with a socket as its standard input, and with a session of its own, so without a terminal. It stops
/// the program if this process is killed.
fn start_keeper() -> io::Result<(Child, UnixStream)> {
    let (own, other) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(KEEPER_ARGUMENT).stdin(OwnedFd::from(other)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: both only make system calls that are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            signal_at_parents_end(parent, libc::SIGTERM);
            if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    };
    Ok((command.spawn()?, own))
}

/// Gives the keeper its job and waits for its answer. Looks at the program meanwhile if that is the purpose.
fn kept(
    job: &Job,
    mut socket: UnixStream,
    started: &mut dyn FnMut(),
    (pid, purpose): (u32, Purpose<'_>),
) -> Result<(Ended, Seen), RunError> {
    send(&mut socket, job).map_err(RunError::Keeper)?;
    let mut answers = BufReader::new(socket);
    let mut answer = || match receive(&mut answers) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(RunError::Keeper(io::ErrorKind::UnexpectedEof.into())),
        Err(why) => Err(RunError::Keeper(why)),
    };
    if let Message::NotStarted(why) = answer()? {
        return Err(RunError::NotStarted(why));
    }
    started();
    let (end, seen) = match purpose {
        Purpose::Timed => (answer(), Seen::default()),
        Purpose::Sampled(library) => thread::scope(|scope| {
            let (running, end) = mpsc::channel();
            let looking = scope.spawn(move || Seen::until(&end, pid, library));
            let answer = answer();
            drop::<mpsc::Sender<()>>(running);
            (answer, looking.join().unwrap_or_default())
        }),
    };
    match end? {
        Message::Ended(ended) => Ok((ended, seen)),
        Message::Started | Message::NotStarted(_) => Err(RunError::Keeper(io::ErrorKind::InvalidData.into())),
    }
}

fn whole(stream: Option<thread::JoinHandle<io::Result<Stream>>>) -> Result<Stream, RunError> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let read = stream.and_then(|thread| thread.join().ok()).unwrap_or_else(|| Err(gone()));
    read.map_err(RunError::Keeper)
}
