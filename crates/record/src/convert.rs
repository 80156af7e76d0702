//! From a spool to a trace: the lanes merged by time, addresses resolved to objects.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_trace::header::{Clock, Header, Origin, Quality, Summary, Touch};
use hksim_trace::hkt::TraceWriter;
use hksim_trace::resolve::{RawEvent, Resolver, Window};

use crate::clock::TickRate;
use crate::control::Entry;
use crate::error::RecordError;
use crate::lane_events::Stamps;
use crate::marks::MarkNames;
use crate::merge::{Taker, merge};
use crate::outflow::{Outflow, Sink};
use crate::pages::PageTouches;
use crate::report::Touches;
use crate::sites::SiteReader;
use crate::spool_reader::SpoolReader;
use crate::timeline::Timeline;
use crate::touch_full::{self, Interleave, Merging};

/// How the recorded image ended, as far as its trace can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageEnd {
    /// Its process lasted as long as the session: it is the program itself, or still runs.
    Session,
    /// Its process ended before.
    Process,
    /// Another image took its place.
    Exec,
}

/// What a conversion needs to know besides the spool.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Of the session's time stamps.
    pub rate: TickRate,
    /// Events for one reading of the clock, at the most.
    pub clock_events: u32,
    /// Whether touches are merged.
    pub merging: Merging,
}

/// What a conversion came to.
pub struct Converted {
    /// How large the trace is.
    pub summary: Summary,
    /// What was lost, guessed or repaired.
    pub quality: Quality,
    /// The accesses in it, where there was a stream of them.
    pub touches: Option<Touches>,
}

/// Events that are numbered wait for nothing.
const CERTAIN_ORDER: Window = Window { events: 0, death_ns: 0, birth_ns: 0, hold_ns: 0 };

/// Writes the trace of `spool`, cut and marked as `log` says, to `output`, which appears only when it is complete.
///
/// # Errors
/// The spool cannot be read or the trace not be written.
pub fn convert(
    spool: &SpoolReader,
    how: How,
    end: ImageEnd,
    log: &[Entry],
    output: &Path,
) -> Result<Converted, RecordError> {
    let partial = partial_path(output);
    let result = write_trace(spool, how, end, log, &partial).and_then(|result| {
        fs::rename(&partial, output).map_err(RecordError::io(output, "create the trace here"))?;
        Ok(result)
    });
    if result.is_err() {
        // The error at hand says more than a failure to tidy up.
        let _ = fs::remove_file(&partial);
    }
    result
}

fn partial_path(output: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(format!(".partial-{}", std::process::id()));
    output.with_file_name(name)
}

fn write_trace(
    spool: &SpoolReader,
    how: How,
    end: ImageEnd,
    log: &[Entry],
    path: &Path,
) -> Result<Converted, RecordError> {
    let origin = Origin::Recorded { command: spool.command(), pid: spool.control.pid, program_version: None };
    // The log has time stamps, so numbered events and it have no common time.
    let (stamps, clock, window, log) = match spool.counters() {
        None => (Stamps::Ticks(how.rate), Clock::Measured, Window::UNLOCKED_STAMPS, log),
        Some(_) => (Stamps::Numbers, Clock::PerEvent, CERTAIN_ORDER, Default::default()),
    };
    let stream = touch_full::open(spool, how.merging)?;
    let pages = PageTouches::open(spool, how.rate)?;
    let header = how.header(origin, touch_of(stream.is_some(), pages.is_some()), clock);
    let sink = Sink::new(TraceWriter::create(path, &header)?);
    let names = MarkNames::default();
    let lanes = spool.lanes(stamps, &names)?;
    // Within one lane the order of calls is certain.
    let hold_ns = if lanes.len() > 1 || pages.is_some() { window.hold_ns } else { 0 };
    let mut outflow = Outflow {
        timeline: Timeline::new(log, spool.control.start_ticks, how.rate),
        names: &names,
        pages,
        sites: SiteReader::new(spool),
        resolver: Resolver::new(Window { hold_ns, ..window }),
        sink,
        last: (0, 0),
    };
    let touches = match stream {
        None => merge(lanes, &mut outflow).map(|()| None)?,
        Some(stream) => {
            let mut interleaved = Interleaved { stream, outflow: &mut outflow };
            merge(lanes, &mut interleaved)?;
            Some(interleaved.stream.finish(&mut |raw| outflow.take(&raw))?)
        }
    };
    let (summary, quality) = outflow.finish(end, spool)?;
    Ok(Converted { summary, quality, touches })
}

impl How {
    /// The header of a trace made this way.
    fn header(&self, origin: Origin, touch: Touch, clock: Clock) -> Header {
        let clock_events = (self.clock_events > 1).then_some(self.clock_events);
        Header { clock_events, ..Header::new(origin, touch, clock) }
    }
}

/// What is known of the program's accesses.
fn touch_of(has_stream: bool, has_pages: bool) -> Touch {
    match (has_stream, has_pages) {
        (true, _) => Touch::FullStream,
        (false, true) => Touch::Sampled,
        (false, false) => Touch::Assumed,
    }
}

/// The accesses between the events.
struct Interleaved<'a, 'b> {
    stream: Interleave,
    outflow: &'b mut Outflow<'a>,
}

impl Taker for Interleaved<'_, '_> {
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        self.stream.event(*raw, &mut |raw| self.outflow.take(&raw))
    }
}
