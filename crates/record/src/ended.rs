//! Writes the traces of processes soon after they end, while the session continues, and truncates their logs to the
//! control page. So each of thousands of short processes takes only the space of its trace, not 256 KiB.
//!
//! This thread runs at normal priority, because logs that it does not truncate fill the disk.
//!
//! A trace is complete in the session's directory before its log is truncated. So nothing is lost if the recorder is
//! killed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::background::ConversionTable;
use crate::convert::{ConversionConfig, ImageEnd, convert};
use crate::error::RecordError;
use crate::event_log::CONTROL_BYTES;
use crate::in_use;
use crate::log_reader::LogReader;
use crate::session::{LogFile, Session};
use crate::touch_full::Merging;
use crate::traces::is_running;
use crate::written_file;

/// Shortest time between two scans of the logs.
const INTERVAL: Duration = Duration::from_millis(100);
/// Minimum pause between two listings of the logs, in multiples of the time that a listing takes.
const LISTING_PART: u32 = 20;

/// The thread that writes traces of processes that have ended.
pub struct EndedProcesses {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl EndedProcesses {
    /// Starts watching the session in `dir`, whose program is process `root`. `begun` has the conversions that have
    /// begun. `None` if watching cannot start: all traces are then written at the end.
    pub fn begin(dir: &Path, root: u32, begun: ConversionTable) -> Option<Self> {
        let session = Session::open(dir).ok()?;
        let (stop, stopped) = channel();
        let run =
            move || run(Images { session, root, begun, settled: HashSet::new(), ended: HashSet::new() }, &stopped);
        let thread = thread::Builder::new().name("ended".into()).spawn(run).ok()?;
        Some(Self { stop, thread })
    }

    /// Stops after the trace in progress is written.
    pub fn end(self) {
        drop(self.stop);
        // The thread cannot panic; remaining traces are written at the end.
        let _ = self.thread.join();
    }
}

fn run(mut images: Images, stop: &Receiver<()>) {
    let mut pause = INTERVAL;
    while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let began = Instant::now();
        let files = images.session.logs().unwrap_or_default();
        pause = INTERVAL.max(began.elapsed() * LISTING_PART);
        images.look(files, &|| stop.try_recv() == Err(TryRecvError::Empty));
    }
}

/// The session, and the state of its process images.
struct Images {
    session: Session,
    root: u32,
    begun: ConversionTable,
    /// Images that this thread has finished with: written, or failed. A failed image is converted at the end, which
    /// reports the error.
    settled: HashSet<PathBuf>,
    /// Images that had ended at the previous scan.
    ended: HashSet<PathBuf>,
}

impl Images {
    fn look(&mut self, files: Vec<LogFile>, goes_on: &impl Fn() -> bool) {
        let last_images: HashMap<u32, u32> = files.iter().map(|file| (file.pid, file.image)).collect();
        for file in files {
            if file.pid == self.root || self.settled.contains(&file.path) || !goes_on() {
                continue;
            }
            let end = match last_images.get(&file.pid) == Some(&file.image) {
                true => ImageEnd::Process,
                false => ImageEnd::Exec,
            };
            let is_settled = match self.has_ended(&file, end) {
                Some(true) => self.write(&file, end).unwrap_or(true),
                Some(false) => false,
                None => true,
            };
            if is_settled {
                self.ended.remove(&file.path);
                self.settled.insert(file.path);
            }
        }
    }

    /// Whether the log will not grow any more; `None` if unknown.
    fn has_ended(&mut self, file: &LogFile, end: ImageEnd) -> Option<bool> {
        if in_use::is_written(&written_file::open(&file.path).ok()?)? {
            return Some(false);
        }
        // During exec a process may have no log in use. If there is a next image, its log exists by the next scan.
        let was_seen = !self.ended.insert(file.path.clone());
        Some(end == ImageEnd::Exec || (was_seen && !is_running(file.pid)))
    }

    /// Writes the trace of an image that has ended and truncates its log; false if it must try again later.
    fn write(&mut self, file: &LogFile, end: ImageEnd) -> Result<bool, RecordError> {
        let Some(reader) = LogReader::open(&file.path, false)? else {
            return Ok(true);
        };
        if reader.facts()?.record_bytes == 0 {
            return Ok(true);
        }
        let Some(begun) = self.begun.close(&file.path) else {
            return Ok(false);
        };
        let control_log = self.session.control.entries()?;
        let trace = file.trace_path();
        if let Some(begun) = begun {
            begun.finish(end, &reader, &control_log, &trace)?;
        } else {
            let how = ConversionConfig::of(&self.session, Merging::default())?;
            convert(&Arc::new(reader), how, end, &control_log, &file.partial_path(), &trace)?;
        }
        let cut = || written_file::open_to_write(&file.path)?.set_len(CONTROL_BYTES as u64);
        cut().map_err(RecordError::io(&file.path, "cut"))?;
        Ok(true)
    }
}
