//! Looking at a recording while it goes on.

use std::collections::HashMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::control::{Control, EndReason};
use crate::error::RecordError;
use crate::run::{Interest, Request, take_request};
use crate::session::Session;
use crate::spool::{
    Control as ImagePage, FRAME_BYTES, FRAME_LANE, FRAME_WORDS, FrameHeader, SESSION_ENDED, SESSION_RECORDING, words,
};
use crate::window;

/// How far a recording has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the program was started.
    pub elapsed: Duration,
    /// Process images seen.
    pub images: usize,
    /// Words written so far by all processes: somewhat more than events, as a few events take more than one.
    pub words: u64,
    /// Bytes of spools.
    pub spool_bytes: u64,
    /// Events that could not be kept.
    pub events_lost: u64,
    /// Whether calls are being recorded now.
    pub is_recording: bool,
}

/// Carries out what is asked of a running recording, and counts what it has written.
pub struct Watch<'a> {
    session: &'a Session,
    began: Instant,
    duration: Option<Duration>,
    signal_marks: u32,
    spools: HashMap<PathBuf, Spool>,
    /// Number of the spool to look at next.
    turn: usize,
}

/// Spools looked at in one go. A build leaves thousands; they are looked at in turn then, and none is kept open.
const LOOKS_MAX: usize = 256;

/// What is known of one spool: every frame is looked at once, lanes each time.
#[derive(Default)]
struct Spool {
    /// Frames known, the control frame included.
    frames_seen: u64,
    lanes: Vec<u64>,
    blocks: u64,
    words: u64,
    events_lost: u64,
}

impl<'a> Watch<'a> {
    /// Watches `session` from now on, and ends it after `duration`.
    pub fn new(session: &'a Session, duration: Option<Duration>) -> Self {
        Self { session, began: Instant::now(), duration, signal_marks: 0, spools: HashMap::new(), turn: 0 }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The session cannot be read or written.
    pub fn look(&mut self, show: &mut dyn FnMut(&Progress)) -> Result<Interest, RecordError> {
        let control = &self.session.control;
        while let Some(request) = take_request() {
            self.signal_marks += u32::from(request == Request::Mark);
            obey(control, request, self.signal_marks)?;
        }
        if self.duration.is_some_and(|duration| self.began.elapsed() >= duration) {
            control.end(EndReason::Duration)?;
        }
        let page = control.page()?;
        let images = self.look_at_spools()?;
        show(&Progress {
            elapsed: self.began.elapsed(),
            images,
            words: self.spools.values().map(|spool| spool.words).sum(),
            spool_bytes: page.bytes,
            events_lost: self.spools.values().map(|spool| spool.events_lost).sum(),
            is_recording: page.state == SESSION_RECORDING,
        });
        Ok(if page.state == SESSION_ENDED { Interest::Lost } else { Interest::Kept })
    }

    /// Looks at the spools whose turn it is; gives the number of all.
    fn look_at_spools(&mut self) -> Result<usize, RecordError> {
        let files = self.session.spools()?;
        for file in files.iter().cycle().skip(self.turn).take(files.len().min(LOOKS_MAX)) {
            if let Ok(opened) = File::open(&file.path) {
                let spool = self.spools.entry(file.path.clone()).or_default();
                spool.look(&opened);
                // What cannot be granted is counted by the process as lost.
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

impl Spool {
    /// Counts the words in it now. What cannot be read counts as nothing: this is for the eye only.
    fn look(&mut self, file: &File) {
        let frames = file.metadata().map_or(0, |data| data.len().div_ceil(FRAME_BYTES as u64));
        for number in self.frames_seen.max(1)..frames {
            match header(file, number).map(|header| header.kind) {
                Some(FRAME_LANE) => self.lanes.push(number),
                Some(0) | None => break,
                Some(_) => self.blocks += 1,
            }
            self.frames_seen = number + 1;
        }
        let headers = self.lanes.iter().filter_map(|&lane| header(file, lane));
        let in_lanes: u64 = headers.map(|header| words(header.cursor) as u64).sum();
        self.words = self.blocks * FRAME_WORDS as u64 + in_lanes;
        let mut bytes = [0; 8];
        let read = file.read_exact_at(&mut bytes, offset_of!(ImagePage, events_lost) as u64);
        self.events_lost = read.map_or(0, |()| u64::from_ne_bytes(bytes));
    }
}

fn header(file: &File, number: u64) -> Option<FrameHeader> {
    let mut bytes = [0; size_of::<FrameHeader>()];
    file.read_exact_at(&mut bytes, number * FRAME_BYTES as u64).ok()?;
    // SAFETY: as many bytes as FrameHeader has, and every bit pattern is one.
    Some(unsafe { bytes.as_ptr().cast::<FrameHeader>().read_unaligned() })
}
