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
use crate::error::RecordError;
use crate::merge::merge;
use crate::spool_reader::SpoolReader;

/// How the recorded image ended, as far as its trace can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageEnd {
    /// The process ended, or still runs.
    Process,
    /// Another image took its place.
    Exec,
}

/// Writes the trace of `spool` to `output`, which appears only when it is complete.
///
/// # Errors
/// The spool cannot be read or the trace not be written.
pub fn convert(
    spool: &SpoolReader,
    rate: TickRate,
    end: ImageEnd,
    output: &Path,
) -> Result<(Summary, Quality), RecordError> {
    let partial = partial_path(output);
    let result = write_trace(spool, rate, end, &partial).and_then(|result| {
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
    path: &Path,
) -> Result<(Summary, Quality), RecordError> {
    let origin = Origin::Recorded { command: spool.command(), pid: spool.control.pid, program_version: None };
    let header = Header::new(origin, Touch::Assumed, Clock::Measured);
    let mut sink = Sink { writer: TraceWriter::create(path, &header)?, failed: None };
    let mut resolver = Resolver::new(Window::UNLOCKED_STAMPS);
    let mut last = None;
    merge(spool.lanes(rate)?, |raw| {
        last = Some((raw.time_ns, raw.thread));
        resolver.push(raw, &mut |event| sink.take(&event))?;
        sink.check()
    })?;
    if let (Some((time_ns, thread)), ImageEnd::Exec) = (last, end) {
        resolver.push(RawEvent::new(time_ns, thread, RawOp::Exec), &mut |event| sink.take(&event))?;
    }
    let mut quality = resolver.finish(&mut |event| sink.take(&event))?;
    sink.check()?;
    quality.events_lost = spool.control.events_lost;
    let footer = Footer { quality, ..Footer::default() };
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
