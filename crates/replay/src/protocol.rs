//! The messages of a child on its standard output: frames of a header and a payload.
//!
//! Page sets are binary, because they are sent while faults are counted and allocation is forbidden. The result is
//! JSON.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use hksim_engine::{PageRun, PageSet, PageState};
use hksim_timing::Sample;
use serde::{Deserialize, Serialize};

use crate::explained::{ExplainedTotals, Record, Records};
use crate::phases::PhaseSamples;
use crate::pieces::Piece;
use crate::result::{Control, Mark, Replayed, StartMemory};
use crate::system::SystemRun;
use crate::tlb::DtlbEvents;
use crate::window::Moments;
use hksim_linux_probe::resident::{Resident, Zeroable};

/// Marks a frame, so that other output on the channel is detected.
const MAGIC: u32 = 0x6B72_7068;
const HEADER_BYTES: usize = 16;
/// Maximum size of a frame.
const FRAME_BYTES_MAX: u64 = 1 << 30;

/// A frame with some of the pages of one mark.
const KIND_PAGES: u32 = 1;
/// The last frame, with the result.
const KIND_RESULT: u32 = 2;
/// A frame with records of an explained run.
const KIND_LOG: u32 = 3;

/// The report of a child at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Failed {
        message: String,
    },
    /// This machine does not permit the run.
    Refused {
        message: String,
    },
    Control(ControlReport),
    Measured(Box<MeasuredReport>),
    Timed(Timing),
    Pieces(Sample, Vec<Piece>),
    System(SystemRun),
    Apart(PhaseSamples),
    Explained(Box<ExplainedTotals>),
    ExplainedStart(StartMemory),
    Limited,
}

/// A control run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ControlReport {
    pub(crate) control: Control,
    /// The memory of the process before the first event, if the whole process is observed.
    pub(crate) start: Option<StartMemory>,
}

/// A measured run: its figures and marks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MeasuredReport {
    pub(crate) replayed: Replayed,
    pub(crate) marks: Vec<Mark>,
    /// The memory of the process before the first event, if the whole process is observed.
    pub(crate) start: Option<StartMemory>,
}

/// A timed run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// Without reading the trace.
    pub(crate) sample: Sample,
    /// Processor time from reading the job to the report, which the child's `main` notes. The rest of the child's is that of
    /// its start and its end.
    #[serde(default)]
    pub(crate) job_ns: u64,
    /// Also without reading the trace; or why they were not counted.
    pub(crate) dtlb: Result<DtlbEvents, String>,
    /// Of a replay in trace order.
    #[serde(default)]
    pub(crate) moments: Option<Moments>,
}

/// A run of pages in a message: first page, count, state.
#[derive(Clone, Copy)]
#[repr(C)]
struct WireRun {
    first_page: u64,
    pages: u64,
    state: u64,
}

// SAFETY: three integers.
unsafe impl Zeroable for WireRun {}

const RUNS: usize = 16 << 10;
const RUN_BYTES: usize = size_of::<WireRun>();

/// Sends frames without allocating.
pub(crate) struct Channel {
    out: OwnedFd,
    runs: Resident<WireRun>,
    used: usize,
}

impl Channel {
    pub(crate) fn new(out: OwnedFd) -> io::Result<Channel> {
        Ok(Channel { out, runs: Resident::zeroed(RUNS)?, used: 0 })
    }

    /// Adds a run of pages to a mark's set, merging it with the previous one if they are adjacent.
    pub(crate) fn page_run(&mut self, mark: u32, run: PageRun) -> io::Result<()> {
        let state = run.state as u64;
        if let Some(last) = self.runs[..self.used].last_mut()
            && last.first_page + last.pages == run.first_page
            && last.state == state
        {
            last.pages += run.pages;
            return Ok(());
        }
        if self.used == RUNS {
            self.end_mark(mark)?;
        }
        self.runs[self.used] = WireRun { first_page: run.first_page, pages: run.pages, state };
        self.used += 1;
        Ok(())
    }

    /// Sends the rest of a mark's set.
    pub(crate) fn end_mark(&mut self, mark: u32) -> io::Result<()> {
        let bytes = self.used * RUN_BYTES;
        self.header(KIND_PAGES, 8 + bytes as u64)?;
        self.write(&u64::from(mark).to_ne_bytes())?;
        // SAFETY: the first `used` runs are plain integers.
        let payload = unsafe { std::slice::from_raw_parts(self.runs.as_ptr().cast::<u8>(), bytes) };
        self.write(payload)?;
        self.used = 0;
        Ok(())
    }

    /// Sends the result.
    pub(crate) fn report(&self, report: &Report) -> io::Result<()> {
        let json = serde_json::to_vec(report)?;
        self.header(KIND_RESULT, json.len() as u64)?;
        self.write(&json)
    }

    /// Another descriptor of the channel, for [`send_log`].
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.out.try_clone()
    }

    fn header(&self, kind: u32, bytes: u64) -> io::Result<()> {
        write(&self.out, &header(kind, bytes))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write(&self.out, bytes)
    }
}

/// Sends whole records of an explained run, without allocating.
pub(crate) fn send_log(out: &OwnedFd, words: &[u64]) -> io::Result<()> {
    // SAFETY: the bytes of plain integers.
    let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
    write(out, &header(KIND_LOG, bytes.len() as u64))?;
    write(out, bytes)
}

fn header(kind: u32, bytes: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    header[4..8].copy_from_slice(&kind.to_ne_bytes());
    header[8..].copy_from_slice(&bytes.to_ne_bytes());
    header
}

fn write(out: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the kernel reads the slice.
        let wrote = unsafe { libc::write(out.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        match wrote {
            0.. => bytes = &bytes[wrote as usize..],
            _ => {
                let why = io::Error::last_os_error();
                if why.kind() != io::ErrorKind::Interrupted {
                    return Err(why);
                }
            }
        }
    }
    Ok(())
}

/// All messages of a child.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) report: Report,
    /// Page sets, by mark.
    pub(crate) pages: Vec<PageSet>,
}

/// Reads frames up to the result. `None` if the channel ends before it.
pub(crate) fn receive(from: impl Read) -> Result<Option<Received>, String> {
    receive_with(from, &mut |_| {})
}

/// [`receive`], which passes each record of an explained run on.
pub(crate) fn receive_with(mut from: impl Read, each: &mut dyn FnMut(Record)) -> Result<Option<Received>, String> {
    let mut pages = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        match from.read_exact(&mut header) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(why.to_string()),
        }
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let bytes = u64::from(word(8)) | u64::from(word(12)) << 32;
        if word(0) != MAGIC || bytes > FRAME_BYTES_MAX {
            return Err("something else wrote to its standard output".into());
        }
        let mut payload = vec![0; bytes as usize];
        if from.read_exact(&mut payload).is_err() {
            return Ok(None);
        }
        match word(4) {
            KIND_PAGES => take_pages(&payload, &mut pages)?,
            KIND_LOG => {
                let words: Vec<u64> = words(&payload).collect();
                for record in Records(&words) {
                    each(record?);
                }
            }
            KIND_RESULT => {
                let report = serde_json::from_slice(&payload).map_err(|why| why.to_string())?;
                return Ok(Some(Received { report, pages }));
            }
            kind => return Err(format!("a frame of kind {kind}")),
        }
    }
}

fn words(payload: &[u8]) -> impl Iterator<Item = u64> {
    payload.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_ne_bytes(bytes)
    })
}

fn take_pages(payload: &[u8], sets: &mut Vec<PageSet>) -> Result<(), String> {
    let mut words = words(payload);
    let mark = words.next().ok_or("a page frame without a mark")? as usize;
    if mark > sets.len() {
        return Err(format!("pages of mark {mark}, but {} marks so far", sets.len()));
    }
    if mark == sets.len() {
        sets.push(PageSet::default());
    }
    while let (Some(first_page), Some(pages), Some(state)) = (words.next(), words.next(), words.next()) {
        let state = *PageState::ALL.get(state as usize).ok_or("an unknown page state")?;
        sets[mark].push(PageRun { first_page, pages, state });
    }
    Ok(())
}
