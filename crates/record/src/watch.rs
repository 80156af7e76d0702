//! Watches a recording in progress.

use std::collections::HashMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::control::{Control, EndReason};
use crate::error::RecordError;
use crate::event_log::{
    CHUNK_BUFFER, CHUNK_BYTES, CHUNK_WORDS, ChunkHeader, Control as ImagePage, SESSION_ENDED, SESSION_RECORDING, words,
};
use crate::run::{Request, WatchDecision, take_request};
use crate::session::Session;
use crate::window;
use crate::written_file;

/// Progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the program was started.
    pub elapsed: Duration,
    /// Number of process images so far.
    pub images: usize,
    /// Words written so far by all processes. The number exceeds that of events, because some events take several
    /// words.
    pub words: u64,
    /// Bytes of logs.
    pub log_bytes: u64,
    /// Number of lost events.
    pub events_lost: u64,
    /// Whether calls are being recorded now.
    pub is_recording: bool,
}

/// Carries out requests to a running recording, and counts the events and bytes that it has written.
pub struct Watch<'a> {
    session: &'a Session,
    began: Instant,
    duration: Option<Duration>,
    signal_marks: u32,
    logs: HashMap<PathBuf, Log>,
    /// Index of the next log to read.
    turn: usize,
}

/// Maximum number of logs read in one round. Recording a software build leaves thousands of logs. They are read in
/// turn, and none is kept open.
const LOOKS_MAX: usize = 256;

/// Counts of one log. Drained chunks are read once, thread buffers each time.
#[derive(Default)]
struct Log {
    /// Chunks seen, the control chunk included.
    chunks_seen: u64,
    buffers: Vec<u64>,
    blocks: u64,
    words: u64,
    events_lost: u64,
}

impl<'a> Watch<'a> {
    /// Starts watching `session`, which ends after `duration`.
    pub fn new(session: &'a Session, duration: Option<Duration>) -> Self {
        Self { session, began: Instant::now(), duration, signal_marks: 0, logs: HashMap::new(), turn: 0 }
    }

    /// Carries out pending requests, reads logs, and calls `show`.
    ///
    /// # Errors
    /// The session cannot be read or written.
    pub fn look(&mut self, show: &mut dyn FnMut(&Progress)) -> Result<WatchDecision, RecordError> {
        let control = &self.session.control;
        while let Some(request) = take_request() {
            self.signal_marks += u32::from(request == Request::Mark);
            obey(control, request, self.signal_marks)?;
        }
        if self.duration.is_some_and(|duration| self.began.elapsed() >= duration) {
            control.end(EndReason::Duration)?;
        }
        let images = self.look_at_logs()?;
        let page = control.page()?;
        let log_bytes = page.bytes.max(self.logs.values().map(Log::bytes).sum());
        // Processes of other users cannot count their bytes in root's page.
        if page.bytes_max != 0 && log_bytes >= page.bytes_max {
            control.end(EndReason::Size)?;
        }
        show(&Progress {
            elapsed: self.began.elapsed(),
            images,
            words: self.logs.values().map(|log| log.words).sum(),
            log_bytes,
            events_lost: self.logs.values().map(|log| log.events_lost).sum(),
            is_recording: page.state == SESSION_RECORDING,
        });
        Ok(if page.state == SESSION_ENDED { WatchDecision::Detach } else { WatchDecision::Continue })
    }

    /// Reads the next logs in turn; returns the number of all logs.
    fn look_at_logs(&mut self) -> Result<usize, RecordError> {
        let files = self.session.logs()?;
        for file in files.iter().cycle().skip(self.turn).take(files.len().min(LOOKS_MAX)) {
            if let Ok(opened) = written_file::open(&file.path) {
                let log = self.logs.entry(file.path.clone()).or_default();
                log.look(&opened);
                // If the grant fails, the process counts its events as lost.
                let _ = window::grant(&file.path, &opened);
            }
        }
        self.turn = (self.turn + LOOKS_MAX) % files.len().max(1);
        Ok(files.len())
    }
}

fn obey(control: &Control, request: Request, number: u32) -> Result<(), RecordError> {
    match request {
        Request::Mark => control.mark(&format!("signal {number}")),
        Request::Toggle => {
            control.stop().and_then(|stopped| if stopped { Ok(true) } else { control.start() }).map(drop)
        }
    }
}

impl Log {
    /// Bytes of the chunks seen, without the control chunk.
    fn bytes(&self) -> u64 {
        self.chunks_seen.saturating_sub(1) * CHUNK_BYTES as u64
    }

    /// Counts the words in the log. Unreadable words do not count: this is for display only.
    fn look(&mut self, file: &File) {
        let chunks = file.metadata().map_or(0, |data| data.len().div_ceil(CHUNK_BYTES as u64));
        for number in self.chunks_seen.max(1)..chunks {
            match header(file, number).map(|header| header.kind) {
                Some(CHUNK_BUFFER) => self.buffers.push(number),
                Some(0) | None => break,
                Some(_) => self.blocks += 1,
            }
            self.chunks_seen = number + 1;
        }
        let headers = self.buffers.iter().filter_map(|&buffer| header(file, buffer));
        let in_buffers: u64 = headers.map(|header| words(header.cursor) as u64).sum();
        self.words = self.blocks * CHUNK_WORDS as u64 + in_buffers;
        let mut bytes = [0; 8];
        let read = file.read_exact_at(&mut bytes, offset_of!(ImagePage, events_lost) as u64);
        self.events_lost = read.map_or(0, |()| u64::from_ne_bytes(bytes));
    }
}

fn header(file: &File, number: u64) -> Option<ChunkHeader> {
    let mut bytes = [0; size_of::<ChunkHeader>()];
    file.read_exact_at(&mut bytes, number * CHUNK_BYTES as u64).ok()?;
    // SAFETY: the array has the size of ChunkHeader, for which every bit pattern is valid.
    Some(unsafe { bytes.as_ptr().cast::<ChunkHeader>().read_unaligned() })
}
