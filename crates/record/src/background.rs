//! Converts logs while the program runs, on otherwise idle cores.
//!
//! A log is complete without this conversion, which does not change it. So nothing is lost if the recorder dies: a
//! recovery starts from the beginning.
//!
//! Only events at least one second old are converted. By then an event is in its thread's buffer, unless its call took
//! longer than a second. Such an event is placed at the time at which it arrives. (If it is a resize that moves its
//! block, the old address may have been allocated again before. The merge repairs this order and counts the repair.)

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

/// Minimum size of a log that is converted early: two million events.
const LOG_BYTES_MIN: u64 = 64 * CHUNK_BYTES as u64;
/// Time between two scans of the logs.
const INTERVAL: Duration = Duration::from_secs(2);
/// Minimum age of an event to be converted, in nanoseconds.
const MARGIN_NS: u64 = 1_000_000_000;

/// Longest time to wait for the thread to stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum number of conversions in progress: each has two open files and keeps its process's live blocks in memory.
const CONVERSIONS_MAX: usize = 16;

/// Conversions in progress, by the path of their log.
pub type StartedConversions = HashMap<PathBuf, Conversion>;

/// State of a log's conversion.
enum State {
    /// The log is still too small.
    Small,
    Begun(Box<Conversion>),
    /// The thread is working on it.
    Busy,
    /// The log is no longer converted early, because the conversion failed or its process has ended.
    Closed,
}

/// The state of all logs seen, by path.
#[derive(Clone, Default)]
pub struct ConversionTable(Arc<Mutex<HashMap<PathBuf, State>>>);

impl ConversionTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a log for the thread, with its conversion if one has begun. `None` if the log has to wait until the end,
    /// because too many other conversions are in progress.
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

    /// Excludes a log from early conversion and returns its conversion, if one has begun; `None` while the thread works
    /// on the log.
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

/// The thread that converts logs early.
pub struct BackgroundConverter {
    stop: Sender<()>,
    ended: Receiver<Infallible>,
    known: ConversionTable,
}

impl BackgroundConverter {
    /// Starts converting the session in `dir`, whose traces are written next to `output`. `None` if it cannot start:
    /// all traces are then written at the end.
    pub fn begin(dir: &Path, output: &Path) -> Option<Self> {
        let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
        // The converted file is later renamed to the trace, so both must be on one file system.
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

    /// Stops, and returns the conversions in progress. On a busy machine the thread may get no time to stop. The log on
    /// which it works is then converted from the start.
    pub fn end(self) -> StartedConversions {
        drop(self.stop);
        // The thread sends nothing, but its end of the channel closes when it ends.
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
        // Read before the directory: a log that is created after the listing has only later events.
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
                    // The conversion at the end fails too, and reports the error.
                    let _ = fs::remove_file(file.ahead_path());
                    State::Closed
                }
            };
            all.put(file.path, next);
        }
    }
}

/// Converts the events of one log that are ready; `None` if the log is still too small.
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

/// Limits this thread, and the threads that it starts, to otherwise idle time; false if the system refuses.
fn run_when_idle() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters are valid.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) == 0 }
}

/// Whether at least `bytes` of disk space are free. Early conversion must leave space for the program's own records.
fn has_room(dir: &Path, bytes: u64) -> bool {
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    let mut figures = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is a C string; all zero is a valid value of the figures, which the call fills.
    let figures = unsafe {
        libc::statvfs(path.as_ptr(), figures.as_mut_ptr());
        figures.assume_init()
    };
    figures.f_bavail.saturating_mul(figures.f_frsize) > bytes
}
