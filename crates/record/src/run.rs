//! Runs the program with the recorder loaded.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, siginfo_t};

use hksim_embedded::{PRELOAD_VARIABLE, preload_with};
use hksim_linux_probe::signal_handlers::{ENDING, Handler, SignalHandlers};
use hksim_linux_probe::status::Status;

use crate::clock::monotonic_ns;
use crate::environment::Environment;
use crate::error::RecordError;
use crate::event_log::{FILTERS_VARIABLE, SESSION_VARIABLE};
use crate::report::Exit;
use crate::signals::{self, REQUESTS};

/// Process id of the running program; 0 before and after.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that arrived before the program ran and is to be forwarded.
static EARLY_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Number of marks requested by SIGUSR1 and not yet set.
static MARKS_ASKED: AtomicU32 = AtomicU32::new(0);
/// Number of requests by SIGUSR2 to pause or resume that are not yet carried out.
static TOGGLES_ASKED: AtomicU32 = AtomicU32::new(0);

/// When the last signals came, `CLOCK_MONOTONIC` in nanoseconds; 0 for none.
static SIGNALS_NS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
/// Number of signals so far.
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// When the last signals of this recording came: up to 16.
pub fn signals_ns() -> Vec<u64> {
    SIGNALS_NS.iter().map(|time_ns| time_ns.load(Ordering::SeqCst)).filter(|&time_ns| time_ns > 0).collect()
}

/// Longest interval between two checks of a running program, in milliseconds.
const WATCH_INTERVAL_MS: c_int = 250;

/// A request made by a signal to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGUSR1: set a mark.
    Mark,
    /// SIGUSR2: pause or resume recording.
    Toggle,
}

/// The next request.
pub fn take_request() -> Option<Request> {
    let take =
        |asked: &AtomicU32| asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    if take(&MARKS_ASKED) {
        return Some(Request::Mark);
    }
    take(&TOGGLES_ASKED).then_some(Request::Toggle)
}

/// Whether the caller wants to keep watching the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchDecision {
    /// Keep watching.
    Continue,
    /// Stop watching, although the program still runs.
    Detach,
}

/// Result of watching a program.
pub enum WatchOutcome {
    /// The program ended.
    Ended(Exit),
    /// The program still runs.
    Runs(Running),
}

/// A wrapper in which the program runs, such as valgrind; none by default.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Words inserted before the command.
    pub words: Vec<OsString>,
    /// Additional environment variables.
    pub variables: Vec<(&'static str, OsString)>,
}

/// The running program. The recorder's signals are forwarded to it until [`Running::wait`] returns.
pub struct Running {
    child: Child,
    signals: SignalForwarding,
}

/// Starts `command` with its standard streams untouched.
///
/// # Errors
/// The system refused to start it.
pub fn start(command: &[OsString], object: &Path, session: &Path, host: &Host) -> Result<Running, RecordError> {
    let words: Vec<&OsString> = host.words.iter().chain(command).collect();
    let (program, arguments) = words.split_first().ok_or(RecordError::NoCommand)?;
    let signals = SignalForwarding::begin();
    // A signal that arrived before this point ends the recording, and is not forwarded.
    signals::check()?;
    let failed = |source| RecordError::Start { command: program.to_string_lossy().into_owned(), source };
    let mut environment = Environment::own();
    let own = [(PRELOAD_VARIABLE, preload_with(object)), (SESSION_VARIABLE, session.into())].into_iter();
    let filters = own_filters().map(|filters| (FILTERS_VARIABLE, filters.into()));
    for (name, value) in own.chain(filters).chain(host.variables.iter().cloned()) {
        environment.set(name, &value).map_err(failed)?;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    environment.give_to(&mut command);
    let child = command.spawn().map_err(failed)?;
    SignalForwarding::to(child.id());
    Ok(Running { child, signals })
}

/// Number of system-call filters of this process, which its children inherit; `None` if there is none. Older kernels
/// report only whether there are any.
fn own_filters() -> Option<String> {
    let status = Status::of_this_process().ok()?;
    let number = |name: &str| status.number::<u32>(name);
    let filters = number("Seccomp_filters").or_else(|| number("Seccomp").map(|mode| mode.min(1)))?;
    (filters > 0).then(|| filters.to_string())
}

impl Running {
    /// The program's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end, and calls `each` about four times a second and after every request by a signal.
    /// Returns the running program as soon as `each` returns [`WatchDecision::Detach`].
    ///
    /// # Errors
    /// The system refused to wait, or `each` failed. In either case the program has ended by the time this returns.
    pub fn watch(
        self,
        mut each: impl FnMut() -> Result<WatchDecision, RecordError>,
    ) -> Result<WatchOutcome, RecordError> {
        let pid = self.child.id();
        let failed = |source| RecordError::Start { command: format!("process {pid}"), source };
        let Some(end) = EndOf::process(pid) else {
            // An old kernel: wait without progress reports and limits.
            return self.wait().map(WatchOutcome::Ended);
        };
        loop {
            if end.came_within(WATCH_INTERVAL_MS).map_err(failed)? {
                return self.wait().map(WatchOutcome::Ended);
            }
            match each() {
                Ok(WatchDecision::Continue) => {}
                Ok(WatchDecision::Detach) => return Ok(WatchOutcome::Runs(self)),
                Err(why) => return self.wait().and(Err(why)),
            }
        }
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn wait(mut self) -> Result<Exit, RecordError> {
        let pid = self.child.id();
        let failed = |source| RecordError::Start { command: format!("process {pid}"), source };
        // Until the child is reaped, no other process can have its id, so forwarded signals reach only the program.
        await_end(pid).map_err(failed)?;
        drop(self.signals);
        self.child.wait().map(exit).map_err(failed)
    }
}

/// A descriptor that becomes readable when a process ends.
pub struct EndOf(OwnedFd);

impl EndOf {
    /// `None` if the kernel has no pidfds (before Linux 5.3).
    pub fn process(pid: u32) -> Option<Self> {
        // SAFETY: touches no memory; nothing else owns the new descriptor.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0 as libc::c_long);
            (fd >= 0).then(|| Self(OwnedFd::from_raw_fd(fd as c_int)))
        }
    }

    /// Waits for the end for at most `ms` milliseconds, or until a signal arrives; true if the process has ended.
    pub fn came_within(&self, ms: c_int) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        match unsafe { libc::poll(&raw mut poll, 1, ms) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Ok(false),
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }
}

/// Waits for the end of a child without reaping it.
fn await_end(pid: u32) -> io::Result<()> {
    loop {
        // SAFETY: siginfo is plain data that the kernel fills.
        let result = unsafe {
            let mut info = MaybeUninit::<siginfo_t>::zeroed();
            libc::waitid(libc::P_PID, pid, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
        };
        match io::Error::last_os_error() {
            _ if result == 0 => return Ok(()),
            why if why.kind() == io::ErrorKind::Interrupted => {}
            why => return Err(why),
        }
    }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

/// Handlers that forward signals to the program.
struct SignalForwarding {
    _handlers: Vec<SignalHandlers>,
    /// Handlers belong to the whole process, so only one recording at a time can use them. It ends after them.
    _turn: MutexGuard<'static, ()>,
}

impl SignalForwarding {
    fn begin() -> Self {
        let handlers = ENDING.map(|signal| (signal, pass_on as Handler)).into_iter();
        let handlers = handlers.chain(REQUESTS.map(|signal| (signal, note_request as Handler)));
        // SAFETY: the handlers store numbers and call `clock_gettime` and `kill`.
        Self::with(|| vec![unsafe { SignalHandlers::install(handlers, 0) }])
    }

    fn with(install: impl FnOnce() -> Vec<SignalHandlers>) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        EARLY_SIGNAL.store(0, Ordering::Relaxed);
        SIGNALS_NS.iter().for_each(|time_ns| time_ns.store(0, Ordering::SeqCst));
        Self { _handlers: install(), _turn: turn }
    }

    fn to(pid: u32) {
        PROGRAM.store(pid as c_int, Ordering::SeqCst);
        let early = EARLY_SIGNAL.swap(0, Ordering::SeqCst);
        if early != 0 {
            // SAFETY: the child is not reaped yet, so its id is not reused.
            unsafe { libc::kill(pid as c_int, early) };
        }
    }
}

impl Drop for SignalForwarding {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::SeqCst);
    }
}

/// Handlers of a recorder that attached to its program: ending signals end the recording, and are not forwarded.
pub struct EndingSignals(SignalForwarding);

impl EndingSignals {
    /// Installs the handlers.
    pub fn begin() -> Self {
        let requests = REQUESTS.map(|signal| (signal, note_request as Handler));
        // SAFETY: the handlers store numbers.
        let handlers =
            || unsafe { vec![SignalHandlers::install_to_end(note_ending), SignalHandlers::install(requests, 0)] };
        Self(SignalForwarding::with(handlers))
    }

    /// The last signal that came and was not taken yet.
    pub fn take(&self) -> Option<c_int> {
        let Self(_installed) = self;
        Some(EARLY_SIGNAL.swap(0, Ordering::SeqCst)).filter(|&signal| signal != 0)
    }
}

extern "C" fn note_ending(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    EARLY_SIGNAL.store(signal, Ordering::SeqCst);
}

/// Forwards a signal that another process sent to the recorder. Signals from the terminal or the kernel are not
/// forwarded: the terminal sends them to the program too.
extern "C" fn pass_on(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    let number = SIGNALS.fetch_add(1, Ordering::SeqCst);
    if let Some(time_ns) = SIGNALS_NS.get(number % SIGNALS_NS.len()) {
        time_ns.store(monotonic_ns(), Ordering::SeqCst);
    }
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler.
    if unsafe { (*info).si_code } > 0 {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY_SIGNAL.store(signal, Ordering::SeqCst),
        // SAFETY: PROGRAM is a child that is not reaped yet, so its id is not reused.
        pid => unsafe {
            libc::kill(pid, signal);
        },
    }
}

extern "C" fn note_request(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    let asked = if signal == libc::SIGUSR1 { &MARKS_ASKED } else { &TOGGLES_ASKED };
    asked.fetch_add(1, Ordering::SeqCst);
}
