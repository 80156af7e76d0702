//! Converting while the program runs, on cores that would be idle.
//!
//! A spool is complete without this and stays as it is, so a recorder that dies loses nothing: a recovery begins anew. What
//! is converted lies a second back. Whatever a thread did before then stands in its lane by now, unless the thread has
//! been in one and the same call ever since; such an event comes late and counts as if it came at that time. (Of a resize that
//! moves its block the old address may have been free before: the merge then repairs that, and counts it.)

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
use crate::convert::{Conversion, How};
use crate::error::RecordError;
use crate::session::{Session, SpoolFile};
use crate::spool::FRAME_BYTES;
use crate::spool_reader::SpoolReader;
use crate::touch_full::Merging;

/// Bytes of a spool from which on it is worth it: two million events.
const SPOOL_BYTES_MIN: u64 = 64 * FRAME_BYTES as u64;
/// Time between two looks at the spools.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long ago the last event is that is taken over, in nanoseconds.
const MARGIN_NS: u64 = 1_000_000_000;

/// How long it may take to stop.
const PATIENCE: Duration = Duration::from_millis(250);
/// Conversions begun at the most: each holds two open files, and the live blocks of its process in memory.
const CONVERSIONS_MAX: usize = 16;

/// Conversions begun, by the path of their spool.
pub type Begun = HashMap<PathBuf, Conversion>;

/// What became of a spool so far.
enum State {
    /// There is too little in it.
    Small,
    Begun(Box<Conversion>),
    /// The thread works on it.
    InHand,
    /// It is not converted ahead any more: that failed, or its process has ended.
    Closed,
}

/// Spools looked at, by their path.
#[derive(Clone, Default)]
pub struct Known(Arc<Mutex<HashMap<PathBuf, State>>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a spool in hand, with what was begun of it; `None` where it has to wait for the end, as enough others are begun.
    fn take(&self, path: &Path) -> Option<Option<Conversion>> {
        let mut all = self.lock();
        let begun = all.values().filter(|state| matches!(state, State::Begun(_))).count();
        match all.get(path) {
            Some(State::InHand | State::Closed) => return None,
            Some(State::Begun(_)) => {}
            Some(State::Small) | None if begun < CONVERSIONS_MAX => {}
            Some(State::Small) | None => return None,
        }
        Some(match all.insert(path.to_path_buf(), State::InHand) {
            Some(State::Begun(conversion)) => Some(*conversion),
            _ => None,
        })
    }

    fn put(&self, path: PathBuf, state: State) {
        self.lock().insert(path, state);
    }

    /// Has a spool left alone from now on, and gives what was begun of it; `None` where that is being worked on.
    pub fn close(&self, path: &Path) -> Option<Option<Conversion>> {
        let mut all = self.lock();
        if matches!(all.get(path), Some(State::InHand)) {
            return None;
        }
        Some(match all.insert(path.to_path_buf(), State::Closed) {
            Some(State::Begun(conversion)) => Some(*conversion),
            _ => None,
        })
    }
}

/// The thread that converts ahead.
pub struct Ahead {
    stop: Sender<()>,
    ended: Receiver<Infallible>,
    known: Known,
}

impl Ahead {
    /// Begins to convert the session in `dir`, whose traces go beside `output`. `None` where that cannot be: the traces are
    /// then made at the end.
    pub fn begin(dir: &Path, output: &Path) -> Option<Self> {
        let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
        // What is written here will be renamed to be the trace.
        if device(dir)? != device(output.parent()?)? {
            return None;
        }
        let session = Session::open(dir).ok()?;
        let ((stop, stopped), (end, ended)) = (channel(), channel());
        let known = Known::default();
        let shared = known.clone();
        let work = move || {
            run(&session, &stopped, &shared);
            drop(end);
        };
        thread::Builder::new().name("ahead".into()).spawn(work).ok()?;
        Some(Self { stop, ended, known })
    }

    /// Stops, and gives what was begun. On a busy machine the thread gets no time, not even to stop: what it has in hand is
    /// then made anew from its spool.
    pub fn end(self) -> Begun {
        drop(self.stop);
        // It sends nothing; it is gone when its end of the channel is.
        let _ = self.ended.recv_timeout(PATIENCE);
        let known = mem::take(&mut *self.known.lock());
        let begun = known.into_iter().filter_map(|(path, state)| match state {
            State::Begun(conversion) => Some((path, *conversion)),
            State::Small | State::InHand | State::Closed => None,
        });
        begun.collect()
    }

    /// The spools looked at.
    pub fn known(&self) -> Known {
        self.known.clone()
    }
}

fn run(session: &Session, stop: &Receiver<()>, all: &Known) {
    if !run_when_idle() {
        return;
    }
    while stop.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        // Before the directory is read, so that no process can begin a spool unseen and write an event before then.
        let now = ClockPair::now().ticks;
        for file in session.spools().unwrap_or_default() {
            let go_on = || stop.try_recv() == Err(TryRecvError::Empty);
            let Some(begun) = all.take(&file.path) else {
                continue;
            };
            let next = match take_over(session, &file, begun, now, &go_on) {
                Ok(Some(conversion)) => State::Begun(Box::new(conversion)),
                Ok(None) => State::Small,
                Err(_) => {
                    // What failed is left for the end, which says why.
                    let _ = fs::remove_file(file.ahead_path());
                    State::Closed
                }
            };
            all.put(file.path, next);
        }
    }
}

/// Takes over what can be taken over of one spool; `None` where there is too little so far.
fn take_over(
    session: &Session,
    file: &SpoolFile,
    conversion: Option<Conversion>,
    now_ticks: u64,
    go_on: &impl Fn() -> bool,
) -> Result<Option<Conversion>, RecordError> {
    let bytes = fs::metadata(&file.path).map_err(RecordError::io(&file.path, "read"))?.len();
    if bytes < SPOOL_BYTES_MIN || !has_room(&session.dir, bytes) || !go_on() {
        return Ok(conversion);
    }
    let how = How::of(session, Merging::default())?;
    let mut conversion = match conversion {
        Some(conversion) => conversion,
        None => {
            let Some(spool) = SpoolReader::open(&file.path, true)? else {
                return Ok(None);
            };
            Conversion::begin(Arc::new(spool), how, &file.ahead_path())?
        }
    };
    conversion.advance(now_ticks.saturating_sub(how.rate.ticks(MARGIN_NS)), &session.control.entries()?, go_on)?;
    Ok(Some(conversion))
}

/// Gives this thread, and those it starts, only time that no other wants; false where the system refuses.
fn run_when_idle() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters are valid.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) == 0 }
}

/// Whether so many bytes can still be written: the program's own records come first.
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
