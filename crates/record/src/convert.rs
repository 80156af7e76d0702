//! From a spool to a trace: the lanes merged by time, addresses resolved to objects.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_trace::error::TraceError;
use hksim_trace::event::Event;
use hksim_trace::header::{Clock, Footer, Header, Origin, Quality, Summary, Touch};
use hksim_trace::hkt::TraceWriter;
use hksim_trace::resolve::{RawEvent, RawOp, Resolver, Window};

use crate::clock::TickRate;
use crate::control::Entry;
use crate::error::RecordError;
use crate::marks::MarkNames;
use crate::merge::merge;
use crate::sites::SiteReader;
use crate::spool_reader::SpoolReader;
use crate::timeline::Timeline;

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

/// Writes the trace of `spool`, cut and marked as `log` says, to `output`, which appears only when it is complete.
///
/// # Errors
/// The spool cannot be read or the trace not be written.
pub fn convert(
    spool: &SpoolReader,
    rate: TickRate,
    end: ImageEnd,
    log: &[Entry],
    output: &Path,
) -> Result<(Summary, Quality), RecordError> {
    let partial = partial_path(output);
    let result = write_trace(spool, rate, end, log, &partial).and_then(|result| {
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
    rate: TickRate,
    end: ImageEnd,
    log: &[Entry],
    path: &Path,
) -> Result<(Summary, Quality), RecordError> {
    let origin = Origin::Recorded { command: spool.command(), pid: spool.control.pid, program_version: None };
    let header = Header::new(origin, Touch::Assumed, Clock::Measured);
    let mut sink = Sink { writer: TraceWriter::create(path, &header)?, failed: None };
    let mut resolver = Resolver::new(Window::UNLOCKED_STAMPS);
    let names = MarkNames::default();
    let mut timeline = Timeline::new(log, spool.control.start_ticks, rate);
    let mut last = (0, 0);
    let mut sites = SiteReader::new(spool);
    merge(spool.lanes(rate, &names)?, |mut raw| {
        while let Some((time_ns, mark)) = timeline.mark_up_to(raw.time_ns, &names) {
            resolver.push(RawEvent::new(time_ns, raw.thread, mark), &mut |event| sink.take(&event))?;
        }
        last = (raw.time_ns, raw.thread);
        if timeline.keeps(&raw.op) {
            raw.site = sites.site_at(raw.site)?;
            resolver.push(raw, &mut |event| sink.take(&event))?;
        }
        sink.check()
    })?;
    let (time_ns, thread) = last;
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
    quality.events_lost = spool.control.events_lost;
    quality.stopped_ns = timeline.off_ns(time_ns);
    let footer = Footer { mark_names: names.into_names(), quality, sites: sites.finish(), ..Footer::default() };
    Ok((sink.writer.finish(&footer)?, quality))
}

/// The writer behind the resolver's callback, which cannot return an error itself.
struct Sink {
    writer: TraceWriter,
    failed: Option<TraceError>,
}

impl Sink {
    fn take(&mut self, event: &Event) {
        if self.failed.is_none() {
            self.failed = self.writer.push(event).err();
        }
    }

    fn check(&mut self) -> Result<(), RecordError> {
        self.failed.take().map_or(Ok(()), |why| Err(why.into()))
    }
}
