//! Running the program with the recorder loaded.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, siginfo_t};

use crate::error::RecordError;
use crate::report::Exit;
use crate::spool::SESSION_VARIABLE;

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Signals that are meant for the program: the recorder passes them on and goes on to convert.
const PASSED_ON: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// The program while it runs, 0 before and after.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal to pass on that came before the program ran.
static EARLY_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The program, started, with the recorder's signals passed on to it until [`Running::wait`] returns.
pub struct Running {
    child: Child,
    signals: PassedOn,
}

/// Starts `command` with its standard streams untouched.
///
/// # Errors
/// The system refuses.
pub fn start(command: &[OsString], object: &Path, session: &Path) -> Result<Running, RecordError> {
    let (program, arguments) = command.split_first().ok_or(RecordError::NoCommand)?;
    let signals = PassedOn::begin();
    let child = Command::new(program)
        .args(arguments)
        .env(PRELOAD_VARIABLE, preload_with(object))
        .env(SESSION_VARIABLE, session)
        .spawn()
        .map_err(|source| RecordError::Start { command: program.to_string_lossy().into_owned(), source })?;
    PassedOn::to(child.id());
    Ok(Running { child, signals })
}

/// The object before whatever the caller preloads already.
fn preload_with(object: &Path) -> OsString {
    let mut value = object.as_os_str().to_owned();
    if let Some(others) = env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(mut self) -> Result<Exit, RecordError> {
        let pid = self.child.id();
        let failed = |source| RecordError::Start { command: format!("process {pid}"), source };
        // Until it is reaped its process id is its own, so signals go to it alone.
        await_end(pid).map_err(failed)?;
        drop(self.signals);
        self.child.wait().map(exit).map_err(failed)
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

/// Handlers that pass signals on, with what stood there before.
struct PassedOn {
    /// Handlers belong to the whole process, so one recording at a time may have them.
    _turn: MutexGuard<'static, ()>,
    before: Vec<(c_int, libc::sigaction)>,
}

impl PassedOn {
    fn begin() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        EARLY_SIGNAL.store(0, Ordering::Relaxed);
        let before = PASSED_ON.into_iter().filter_map(|signal| Some((signal, install(signal)?)));
        Self { _turn: turn, before: before.collect() }
    }

    fn to(pid: u32) {
        PROGRAM.store(pid as c_int, Ordering::SeqCst);
        let early = EARLY_SIGNAL.swap(0, Ordering::SeqCst);
        if early != 0 {
            // SAFETY: the child is not waited for yet, so the id is its own.
            unsafe { libc::kill(pid as c_int, early) };
        }
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::SeqCst);
        for (signal, before) in &self.before {
            // SAFETY: restores what sigaction itself reported.
            unsafe { libc::sigaction(*signal, before, null_mut()) };
        }
    }
}

/// Installs the handler; `None` where the signal is ignored and shall stay so (nohup).
fn install(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: sigaction is plain data for which all zero is valid; the handler is async-signal-safe.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(signal, null_mut(), &raw mut before) != 0 || before.sa_sigaction == libc::SIG_IGN {
            return None;
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = pass_on as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        (libc::sigaction(signal, &raw const action, null_mut()) == 0).then_some(before)
    }
}

/// Passes a signal on that another process sent to the recorder alone. What the terminal sends, it sends to the
/// program too.
extern "C" fn pass_on(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler.
    if unsafe { (*info).si_code } > 0 {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY_SIGNAL.store(signal, Ordering::SeqCst),
        // SAFETY: PROGRAM is a child that is not waited for yet, so the id is its own.
        pid => unsafe {
            libc::kill(pid, signal);
        },
    }
}
