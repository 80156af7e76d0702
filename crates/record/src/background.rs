//! Converts logs while the program runs, on otherwise idle cores.
//!
//! A log is complete without this and is not changed, so nothing is lost if the recorder is killed: a recovery starts over.
//! The conversion lags one second. By then every earlier event is in its thread's buffer, unless its call has taken
//! longer. Such an event is late: it gets the time that the conversion has reached. (If it is a realloc that moves its
//! block, the old address may have been allocated again before. The merge repairs that and counts it.)

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::mem::{self, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock::ClockPair;
use crate::convert::{Conversion, ConversionConfig};
use crate::error::RecordError;
use crate::event_log::CHUNK_BYTES;
use crate::log_reader::LogReader;
use crate::session::{LogFile, Session};
use crate::touch_full::Merging;

/// Least size of a log worth converting early: two million events.
const LOG_BYTES_MIN: u64 = 64 * CHUNK_BYTES as u64;
/// Time between two scans of the logs.
const INTERVAL: Duration = Duration::from_secs(2);
/// Age of the latest event that is converted, in nanoseconds.
const MARGIN_NS: u64 = 1_000_000_000;

/// Longest time to wait for the thread to stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(250);
/// Most conversions in progress: each has two open files, and a table of the live blocks of its process.
const CONVERSIONS_MAX: usize = 16;

/// Conversions in progress, by the path of their log.
pub type StartedConversions = HashMap<PathBuf, Conversion>;

/// State of a log's conversion.
enum State {
    /// The log is too small so far.
    Small,
    Begun(Box<Conversion>),
    /// The thread is working on it.
    Busy,
    /// It is no longer converted early: that failed, or its process has ended.
    Closed,
}

/// The state of all logs seen, by path.
#[derive(Clone, Default)]
pub struct ConversionTable(Arc<Mutex<HashMap<PathBuf, State>>>);

impl ConversionTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a log, with its conversion if there is one. `None` if it has to wait for the end, because enough others
    /// are in progress.
    fn take(&self, path: &Path) -> Option<Option<Conversion>> {
        let mut all = self.lock();
        let begun = all.values().filter(|state| matches!(state, State::Begun(_))).count();
        match all.get(path) {
            Some(State::Busy | State::Closed) => return None,
            Some(State::Begun(_)) => {}
            Some(State::Small) | None if begun < CONVERSIONS_MAX => {}
            Some(State::Small) | None => return None,
        }
        Some(match all.insert(path.to_path_buf(), State::Busy) {
            Some(State::Begun(conversion)) => Some(*conversion),
            _ => None,
        })
    }

    fn put(&self, path: PathBuf, state: State) {
        self.lock().insert(path, state);
    }

    /// Removes a log from early conversion and returns its conversion, if there is one; `None` while the thread works
    /// on it.
    pub fn close(&self, path: &Path) -> Option<Option<Conversion>> {
        let mut all = self.lock();
        if matches!(all.get(path), Some(State::Busy)) {
            return None;
        }
        Some(match all.insert(path.to_path_buf(), State::Closed) {
            Some(State::Begun(conversion)) => Some(*conversion),
            _ => None,
        })
    }
}

/// The thread that converts early.
pub struct BackgroundConverter {
    stop: Sender<()>,
    ended: Receiver<Infallible>,
    known: ConversionTable,
}

impl BackgroundConverter {
    /// Starts converting the session in `dir`, whose traces go beside `output`. `None` if it cannot start: the traces
    /// are then written at the end.
    pub fn begin(dir: &Path, output: &Path) -> Option<Self> {
        let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
        // The file written here is renamed to become the trace.
        if device(dir)? != device(output.parent()?)? {
            return None;
        }
        let session = Session::open(dir).ok()?;
        let ((stop, stopped), (end, ended)) = (channel(), channel());
        let known = ConversionTable::default();
        let shared = known.clone();
        let work = move || {
            run(&session, &stopped, &shared);
            drop(end);
        };
        thread::Builder::new().name("ahead".into()).spawn(work).ok()?;
        Some(Self { stop, ended, known })
    }

    /// Stops, and returns the conversions in progress. On a busy machine the thread gets no time even to stop; its
    /// present log is then converted from the start.
    pub fn end(self) -> StartedConversions {
        drop(self.stop);
        // The thread sends nothing; when it ends, its end of the channel closes.
        let _ = self.ended.recv_timeout(STOP_TIMEOUT);
        let known = mem::take(&mut *self.known.lock());
        let begun = known.into_iter().filter_map(|(path, state)| match state {
            State::Begun(conversion) => Some((path, *conversion)),
            State::Small | State::Busy | State::Closed => None,
        });
        begun.collect()
    }

    /// The state of all logs.
    pub fn known(&self) -> ConversionTable {
        self.known.clone()
    }
}

fn run(session: &Session, stop: &Receiver<()>, all: &ConversionTable) {
    if !run_when_idle() {
        return;
    }
    while stop.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        // Read before the directory, so that no process can create a log unseen and write an earlier event.
        let now = ClockPair::now().ticks;
        for file in session.logs().unwrap_or_default() {
            let go_on = || stop.try_recv() == Err(TryRecvError::Empty);
            let Some(begun) = all.take(&file.path) else {
                continue;
            };
            let next = match convert_ready(session, &file, begun, now, &go_on) {
                Ok(Some(conversion)) => State::Begun(Box::new(conversion)),
                Ok(None) => State::Small,
                Err(_) => {
                    // A failure is left for the end, where it is reported.
                    let _ = fs::remove_file(file.ahead_path());
                    State::Closed
                }
            };
            all.put(file.path, next);
        }
    }
}

/// Converts what is ready of one log; `None` if there is too little so far.
fn convert_ready(
    session: &Session,
    file: &LogFile,
    conversion: Option<Conversion>,
    now_ticks: u64,
    go_on: &impl Fn() -> bool,
) -> Result<Option<Conversion>, RecordError> {
    let bytes = fs::metadata(&file.path).map_err(RecordError::io(&file.path, "read"))?.len();
    if bytes < LOG_BYTES_MIN || !has_room(&session.dir, bytes) || !go_on() {
        return Ok(conversion);
    }
    let how = ConversionConfig::of(session, Merging::default())?;
    let mut conversion = match conversion {
        Some(conversion) => conversion,
        None => {
            let Some(log) = LogReader::open(&file.path, true)? else {
                return Ok(None);
            };
            Conversion::begin(Arc::new(log), how, &file.ahead_path())?
        }
    };
    conversion.advance(now_ticks.saturating_sub(how.rate.ticks(MARGIN_NS)), &session.control.entries()?, go_on)?;
    Ok(Some(conversion))
}

/// Gives this thread, and those it starts, only otherwise idle time; false if the system refuses.
fn run_when_idle() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters are valid.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) == 0 }
}

/// Whether at least `bytes` can still be written: the program's own records come first.
fn has_room(dir: &Path, bytes: u64) -> bool {
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    let mut figures = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is a C string; the call fills the figures, for which all zero is valid besides.
    let figures = unsafe {
        libc::statvfs(path.as_ptr(), figures.as_mut_ptr());
        figures.assume_init()
    };
    figures.f_bavail.saturating_mul(figures.f_frsize) > bytes
}
