//! Converts a log to a trace: merges the thread buffers by time and resolves addresses to objects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_trace::header::{Clock, Header, Origin, Quality, Summary, TouchSource};
use hksim_trace::hkt::ResolvingWriter;
use hksim_trace::resolve::{RawEvent, WaitLimits};

use crate::buffer_reader::Extent;
use crate::children::{self, ChildEnd};
use crate::clock::TickRate;
use crate::control::ControlEntry;
use crate::error::RecordError;
use crate::event_log::ORIGIN_ATTACHED;
use crate::log_reader::LogReader;
use crate::marks::MarkNames;
use crate::merge::{EventSink, Merge};
use crate::missing::Missing;
use crate::pages::PageTouches;
use crate::pipeline::Pipeline;
use crate::report::Touches;
use crate::session::Session;
use crate::signals;
use crate::sites::SiteReader;
use crate::stamps::Stamps;
use crate::thread_events::ThreadEvents;
use crate::timeline::Timeline;
use crate::touch_full::{self, Interleave, Merging};

/// How the recorded image ended, from the point of view of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageEnd {
    /// The process lasted until the end of the session: it is the program itself, or still runs.
    Session,
    /// The process ended before the session.
    Process,
    /// Another image replaced it (exec).
    Exec,
}

/// Inputs of a conversion besides the log.
#[derive(Clone, Copy, Debug)]
pub struct ConversionConfig {
    /// Rate of the session's time stamp counter.
    pub rate: TickRate,
    /// Maximum number of events per reading of the clock.
    pub clock_events: u32,
    /// Whether consecutive touches are merged.
    pub merging: Merging,
    /// What the trace's quality says about programs and processes without a log.
    pub missing: Missing,
}

/// Result of a conversion.
pub struct Converted {
    /// Size of the trace.
    pub summary: Summary,
    /// What was lost, guessed or repaired.
    pub quality: Quality,
    /// The accesses in the trace, if they were recorded.
    pub touches: Option<Touches>,
}

/// Time span of the events converted between two checks of whether to continue, in nanoseconds.
const SLICE_NS: u64 = 20_000_000;

/// Writes the trace of `log`, cut and marked according to `control_log`, to `output`. The file appears there only when
/// it is complete; until then it is at `partial`, on the same file system.
///
/// # Errors
/// The log cannot be read or the trace not be written.
pub fn convert(
    log: &Arc<LogReader>,
    how: ConversionConfig,
    end: ImageEnd,
    control_log: &[ControlEntry],
    partial: &Path,
    output: &Path,
) -> Result<Converted, RecordError> {
    let begun = Conversion::begin(Arc::clone(log), how, partial);
    begun.and_then(|conversion| conversion.finish(end, log, control_log, output)).inspect_err(|_| {
        // The original error matters more than a failure to clean up.
        let _ = fs::remove_file(partial);
    })
}

/// A conversion in progress; its log may still grow.
pub struct Conversion {
    log: Arc<LogReader>,
    rate: TickRate,
    stamps: Stamps,
    names: Arc<MarkNames>,
    merge: Merge,
    /// The program's accesses, if they were recorded.
    stream: Option<Interleave>,
    pipeline: Pipeline,
    free_delay_ns: u64,
    /// Events before this time are converted.
    reached_ns: u64,
    path: PathBuf,
}

impl Conversion {
    /// Starts the trace of `log` at `path`, without events.
    ///
    /// # Errors
    /// The log cannot be read or the trace not be written.
    pub fn begin(log: Arc<LogReader>, how: ConversionConfig, path: &Path) -> Result<Self, RecordError> {
        let attached = log.control.origin == ORIGIN_ATTACHED;
        let (command, pid) = (log.command(), log.control.pid);
        let origin = Origin::Recorded { command, pid, program_version: None, attached };
        let (stamps, clock, window) = match log.counters() {
            None => (Stamps::Ticks(how.rate), Clock::Measured, WaitLimits::UNLOCKED_STAMPS),
            Some(_) => (Stamps::Numbers, Clock::PerEvent, WaitLimits::CERTAIN),
        };
        let stream = touch_full::open(&log, how.merging)?;
        let pages = PageTouches::open(&log, how.rate)?;
        let header = how.header(origin, touch_of(stream.is_some(), pages.is_some()), clock);
        let names = Arc::new(MarkNames::default());
        let mut pipeline = Pipeline {
            timeline: Timeline::new(log.control.start_ticks, how.rate),
            names: Arc::clone(&names),
            pages,
            sites: SiteReader::new(Arc::clone(&log)),
            writer: ResolvingWriter::create(path, &header, WaitLimits { free_delay_ns: 0, ..window })?,
            last: (0, 0),
            forked: Vec::new(),
            missing: how.missing,
        };
        pipeline.inherit(&log.control)?;
        let (merge, free_delay_ns, path) = (Merge::new(), window.free_delay_ns, path.to_path_buf());
        Ok(Self { log, rate: how.rate, stamps, names, merge, stream, pipeline, free_delay_ns, reached_ns: 0, path })
    }

    /// Converts the events before `until_ticks` of a process that still runs. `control_log` must have all control
    /// events before `until_ticks`, and the process must have written all its events before that time. One exception:
    /// if a thread has been in the same call since before `until_ticks`, its event is placed at the time at which it
    /// arrives. Stops early if `go_on` returns false. Not for traces with accesses.
    ///
    /// # Errors
    /// The log cannot be read or the trace not be written.
    pub fn advance(
        &mut self,
        until_ticks: u64,
        control_log: &[ControlEntry],
        go_on: &impl Fn() -> bool,
    ) -> Result<(), RecordError> {
        let until_ns = self.rate.ns(until_ticks.saturating_sub(self.log.control.start_ticks));
        // Entries at or after `until_ticks` may not be complete or in order yet.
        let control_log =
            control_log.get(..control_log.partition_point(|entry| entry.ticks < until_ticks)).unwrap_or_default();
        self.look(true, Some(until_ticks), control_log)?;
        while self.reached_ns < until_ns && go_on() {
            self.reached_ns = until_ns.min(self.reached_ns + SLICE_NS);
            self.merge.run(self.reached_ns, &mut self.pipeline)?;
        }
        self.pipeline.settle()
    }

    /// Events converted so far.
    pub fn events(&self) -> u64 {
        self.pipeline.events()
    }

    /// Sets what the trace's quality says about programs and processes without a log.
    pub fn lacking(mut self, missing: Missing) -> Self {
        self.pipeline.missing = missing;
        self
    }

    /// Converts the remaining events and moves the complete trace to `output`. `log` is the same log, reopened after
    /// the process has ended, or when the recording is over.
    ///
    /// # Errors
    /// The log cannot be read or the trace not be written.
    pub fn finish(
        mut self,
        end: ImageEnd,
        log: &LogReader,
        control_log: &[ControlEntry],
        output: &Path,
    ) -> Result<Converted, RecordError> {
        self.look(log.is_live(), None, control_log)?;
        let Self { mut merge, stream, mut pipeline, path, .. } = self;
        let touches = match stream {
            None => run_to_end(&mut merge, &mut pipeline).map(|()| None)?,
            Some(stream) => {
                let mut interleaved = Interleaved { stream, pipeline: &mut pipeline };
                run_to_end(&mut merge, &mut interleaved)?;
                Some(interleaved.stream.finish(&mut |raw| pipeline.take(&raw))?)
            }
        };
        let (summary, quality) = pipeline.finish(end, log)?;
        fs::rename(path, output).map_err(RecordError::io(output, "create the trace here"))?;
        Ok(Converted { summary, quality, touches })
    }

    /// Reads the present state of the log and of the control log; for a process that still runs, up to `until_ticks`.
    fn look(&mut self, live: bool, until_ticks: Option<u64>, control_log: &[ControlEntry]) -> Result<(), RecordError> {
        let until_ns = |ticks: u64| self.rate.ns(ticks.saturating_sub(self.log.control.start_ticks));
        let extent = until_ticks.map_or(Extent::Whole, |ticks| Extent::Until(until_ns(ticks)));
        let buffers = self.log.look(live)?;
        self.merge.extend(buffers, extent, |buffer| {
            ThreadEvents::new(Arc::clone(&self.log), buffer, extent, self.stamps, Arc::clone(&self.names))
        })?;
        // With a single thread buffer the order of calls is certain, and frees need no delay.
        if self.merge.buffers() > 1 || self.pipeline.pages.is_some() {
            self.pipeline.writer.delay_frees(self.free_delay_ns);
        }
        // The control log has times, so numbered events cannot be ordered with it.
        if matches!(self.stamps, Stamps::Ticks(_)) {
            let ends = children::ends_of(self.log.path());
            let is_due = |end: &ChildEnd| until_ticks.is_none_or(|until| end.ticks < until);
            let due = ends.partition_point(is_due);
            self.pipeline.timeline.extend(control_log, &ends[..due]);
        }
        Ok(())
    }
}

/// Converts all remaining events.
fn run_to_end(merge: &mut Merge, taker: &mut impl EventSink) -> Result<(), RecordError> {
    while let Some(next_ns) = merge.next_ns() {
        signals::check()?;
        merge.run(next_ns.saturating_add(SLICE_NS), taker)?;
    }
    Ok(())
}

impl ConversionConfig {
    /// The configuration for writing the traces of a session, with the clock rate measured up to now.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn of(session: &Session, merging: Merging) -> Result<Self, RecordError> {
        let clock_events = session.control.page()?.untimed_events.saturating_add(1);
        Ok(Self { rate: session.tick_rate()?, merging, clock_events, missing: Missing::default() })
    }

    /// The header of a trace written this way.
    fn header(&self, origin: Origin, touch: TouchSource, clock: Clock) -> Header {
        let clock_events = (self.clock_events > 1).then_some(self.clock_events);
        Header { clock_events, ..Header::new(origin, touch, clock) }
    }
}

/// What a trace contains about the program's accesses.
fn touch_of(has_stream: bool, has_pages: bool) -> TouchSource {
    match (has_stream, has_pages) {
        (true, _) => TouchSource::FullStream,
        (false, true) => TouchSource::Sampled,
        (false, false) => TouchSource::Assumed,
    }
}

/// Inserts the accesses between the events.
struct Interleaved<'a> {
    stream: Interleave,
    pipeline: &'a mut Pipeline,
}

impl EventSink for Interleaved<'_> {
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        self.stream.event(*raw, &mut |raw| self.pipeline.take(&raw))
    }
}
