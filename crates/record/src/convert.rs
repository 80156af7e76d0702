//! From a spool to a trace: the lanes merged by time, addresses resolved to objects.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, SiteId};
use hksim_trace::header::{Clock, Footer, Header, Origin, Quality, Summary, Touch};
use hksim_trace::hkt::TraceWriter;
use hksim_trace::resolve::{RawEvent, RawOp, Resolver, Window};

use crate::clock::TickRate;
use crate::control::Entry;
use crate::error::RecordError;
use crate::lane_events::Stamps;
use crate::marks::MarkNames;
use crate::merge::merge;
use crate::pages::PageTouches;
use crate::report::Touches;
use crate::sites::SiteReader;
use crate::spool_reader::SpoolReader;
use crate::timeline::Timeline;
use crate::touch_full::{self, Merging};

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
    let mut pages = PageTouches::open(spool, how.rate)?;
    let header = how.header(origin, touch_of(stream.is_some(), pages.is_some()), clock);
    let mut sink = Sink { writer: TraceWriter::create(path, &header)?, failed: None };
    let names = MarkNames::default();
    let lanes = spool.lanes(stamps, &names)?;
    // Within one lane the order of calls is certain.
    let hold_ns = if lanes.len() > 1 || pages.is_some() { window.hold_ns } else { 0 };
    let mut resolver = Resolver::new(Window { hold_ns, ..window });
    let mut timeline = Timeline::new(log, spool.control.start_ticks, how.rate);
    let mut last = (0, 0);
    let mut sites = SiteReader::new(spool);
    let mut push = |raw: &RawEvent| {
        while let Some((time_ns, mark)) = timeline.mark_up_to(raw.time_ns, &names) {
            resolver.push(RawEvent::new(time_ns, raw.thread, mark), &mut |event| sink.take(&event))?;
        }
        last = (raw.time_ns, raw.thread);
        if timeline.keeps(&raw.op) {
            if raw.site == SiteId::UNKNOWN && pages.is_none() {
                resolver.take(raw, &mut |event| sink.take(&event))?;
                return sink.check();
            }
            let raw = RawEvent { site: sites.site_at(raw.site)?, ..*raw };
            let mut push = |raw| Ok(resolver.push(raw, &mut |event| sink.take(&event))?);
            match &mut pages {
                Some(pages) => pages.pass(raw, push)?,
                None => push(raw)?,
            }
        }
        sink.check()
    };
    let touches = match stream {
        None => merge(lanes, push).map(|()| None)?,
        Some(mut stream) => {
            let mut push = |raw: RawEvent| push(&raw);
            merge(lanes, |raw| stream.event(*raw, &mut push))?;
            Some(stream.finish(&mut push)?)
        }
    };
    let pages = pages.map(|pages| pages.finish(|raw| Ok(resolver.push(raw, &mut |event| sink.take(&event))?)));
    let ((profiles, watched), (time_ns, thread)) = (pages.transpose()?.unwrap_or_default(), last);
    if end == ImageEnd::Session {
        while let Some((time_ns, mark)) = timeline.mark_up_to(u64::MAX, &names) {
            resolver.push(RawEvent::new(time_ns, thread, mark), &mut |event| sink.take(&event))?;
        }
    }
    if end == ImageEnd::Exec {
        resolver.push(RawEvent::new(time_ns, thread, RawOp::Exec), &mut |event| sink.take(&event))?;
    }
    let mut quality = resolver.finish(&mut |event| sink.take(&event))?;
    sink.check()?;
    (quality.events_lost, quality.sites_lost) = (spool.control.events_lost, spool.control.sites_lost);
    quality.watched = watched;
    quality.stopped_ns = timeline.off_ns(time_ns);
    let footer = Footer { mark_names: names.into_names(), quality, sites: sites.finish(), profiles };
    Ok(Converted { summary: sink.writer.finish(&footer)?, quality, touches })
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

/// The writer behind the resolver's callback, which cannot return an error itself.
struct Sink {
    writer: TraceWriter,
    failed: Option<TraceError>,
}

impl Sink {
    fn take(&mut self, event: &Event) {
        if self.failed.is_none()
            && let Err(why) = self.writer.push(event)
        {
            self.failed = Some(why);
        }
    }

    fn check(&mut self) -> Result<(), RecordError> {
        if self.failed.is_none() {
            return Ok(()); // without moving what would be an error
        }
        self.failed.take().map_or(Ok(()), |why| Err(why.into()))
    }
}
