//! Traces of processes that end while others of the session go on: written at once, and their spools cut down to the control
//! page. So a recording of thousands of short processes takes the room of their traces, not 256 KiB for each.
//!
//! This takes its share of the processors, as what is not done here fills the disk.
//!
//! A trace stands in the session's folder, whole, before its spool is cut. So a recorder that dies loses nothing.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::ahead::Known;
use crate::convert::{How, ImageEnd, convert};
use crate::error::RecordError;
use crate::in_use;
use crate::session::{Session, SpoolFile};
use crate::spool::CONTROL_BYTES;
use crate::spool_reader::SpoolReader;
use crate::touch_full::Merging;
use crate::traces::is_running;

/// Time between two looks at the spools, at the least.
const INTERVAL: Duration = Duration::from_millis(100);
/// Part of the time that is spent on listing them, at the most: one of so many.
const LISTING_PART: u32 = 20;

/// The thread that writes traces of processes that have ended.
pub struct EndedProcesses {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl EndedProcesses {
    /// Begins to look after the session in `dir`, whose program is process `root`; `begun` is what is
    /// converted of running ones. `None` where that cannot be: its traces
    /// are then written at the end.
    pub fn begin(dir: &Path, root: u32, begun: Known) -> Option<Self> {
        let session = Session::open(dir).ok()?;
        let (stop, stopped) = channel();
        let run =
            move || run(Images { session, root, begun, settled: HashSet::new(), ended: HashSet::new() }, &stopped);
        let thread = thread::Builder::new().name("ended".into()).spawn(run).ok()?;
        Some(Self { stop, thread })
    }

    /// Stops, when the trace in hand is written.
    pub fn end(self) {
        drop(self.stop);
        // It cannot panic; what it has not done is done at the end.
        let _ = self.thread.join();
    }
}

fn run(mut images: Images, stop: &Receiver<()>) {
    let mut pause = INTERVAL;
    while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let began = Instant::now();
        let files = images.session.spools().unwrap_or_default();
        pause = INTERVAL.max(began.elapsed() * LISTING_PART);
        images.look(files, &|| stop.try_recv() == Err(TryRecvError::Empty));
    }
}

/// The session, and what is known of its images.
struct Images {
    session: Session,
    root: u32,
    begun: Known,
    /// Nothing more is to be done here: written, or left for the end, which says why.
    settled: HashSet<PathBuf>,
    /// Had ended at the look before.
    ended: HashSet<PathBuf>,
}

impl Images {
    fn look(&mut self, files: Vec<SpoolFile>, goes_on: &impl Fn() -> bool) {
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

    /// Whether nothing will come any more; `None` where that cannot be found out.
    fn has_ended(&mut self, file: &SpoolFile, end: ImageEnd) -> Option<bool> {
        if in_use::is_written(&File::open(&file.path).ok()?)? {
            return Some(false);
        }
        // Between two images of a process none has a spool: the next one shows itself by the next look.
        let was_seen = !self.ended.insert(file.path.clone());
        Some(end == ImageEnd::Exec || (was_seen && !is_running(file.pid)))
    }

    /// Writes the trace of an image that has ended, and cuts its spool; false if that has to wait.
    fn write(&mut self, file: &SpoolFile, end: ImageEnd) -> Result<bool, RecordError> {
        let Some(reader) = SpoolReader::open(&file.path, false)? else {
            return Ok(true);
        };
        if reader.facts()?.record_bytes == 0 {
            return Ok(true);
        }
        let Some(begun) = self.begun.close(&file.path) else {
            return Ok(false);
        };
        let log = self.session.control.entries()?;
        let trace = file.trace_path();
        if let Some(begun) = begun {
            begun.finish(end, &reader, &log, &trace)?;
        } else {
            let how = How::of(&self.session, Merging::default())?;
            convert(&Arc::new(reader), how, end, &log, &file.partial_path(), &trace)?;
        }
        let cut = || OpenOptions::new().write(true).open(&file.path)?.set_len(CONTROL_BYTES as u64);
        cut().map_err(RecordError::io(&file.path, "cut"))?;
        Ok(true)
    }
}
