//! From a spool to a trace: the lanes merged by time, addresses resolved to objects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_trace::header::{Clock, Header, Origin, Quality, Summary, TouchKnowledge};
use hksim_trace::hkt::ResolvingWriter;
use hksim_trace::resolve::{RawEvent, WaitLimits};

use crate::children::{self, ChildEnd};
use crate::clock::TickRate;
use crate::control::Entry;
use crate::error::RecordError;
use crate::lane_events::{Extent, LaneEvents, Stamps};
use crate::marks::MarkNames;
use crate::merge::{Merge, Taker};
use crate::outflow::Outflow;
use crate::pages::PageTouches;
use crate::report::Touches;
use crate::session::Session;
use crate::signals;
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
const CERTAIN_ORDER: WaitLimits = WaitLimits { events: 0, alloc_wait_ns: 0, free_wait_ns: 0, free_delay_ns: 0 };

/// Nanoseconds of events taken over before somebody is asked whether to go on.
const SLICE_NS: u64 = 20_000_000;

/// Writes the trace of `spool`, cut and marked as `log` says, to `output`, which appears only when it is complete. Until then
/// it stands at `partial`, on the same file system.
///
/// # Errors
/// The spool cannot be read or the trace not be written.
pub fn convert(
    spool: &Arc<SpoolReader>,
    how: How,
    end: ImageEnd,
    log: &[Entry],
    partial: &Path,
    output: &Path,
) -> Result<Converted, RecordError> {
    let begun = Conversion::begin(Arc::clone(spool), how, partial);
    begun.and_then(|conversion| conversion.finish(end, spool, log, output)).inspect_err(|_| {
        // The error at hand says more than a failure to tidy up.
        let _ = fs::remove_file(partial);
    })
}

/// A trace on its way out of a spool, which may still grow.
pub struct Conversion {
    spool: Arc<SpoolReader>,
    rate: TickRate,
    stamps: Stamps,
    names: Arc<MarkNames>,
    merge: Merge,
    /// The program's accesses, where there is a stream of them.
    stream: Option<Interleave>,
    outflow: Outflow,
    free_delay_ns: u64,
    /// Events before this time are taken over.
    reached_ns: u64,
    path: PathBuf,
}

impl Conversion {
    /// Begins the trace of `spool` at `path`, with no event so far.
    ///
    /// # Errors
    /// The spool cannot be read or the trace not be written.
    pub fn begin(spool: Arc<SpoolReader>, how: How, path: &Path) -> Result<Self, RecordError> {
        let origin = Origin::Recorded { command: spool.command(), pid: spool.control.pid, program_version: None };
        let (stamps, clock, window) = match spool.counters() {
            None => (Stamps::Ticks(how.rate), Clock::Measured, WaitLimits::UNLOCKED_STAMPS),
            Some(_) => (Stamps::Numbers, Clock::PerEvent, CERTAIN_ORDER),
        };
        let stream = touch_full::open(&spool, how.merging)?;
        let pages = PageTouches::open(&spool, how.rate)?;
        let header = how.header(origin, touch_of(stream.is_some(), pages.is_some()), clock);
        let names = Arc::new(MarkNames::default());
        let mut outflow = Outflow {
            timeline: Timeline::new(spool.control.start_ticks, how.rate),
            names: Arc::clone(&names),
            pages,
            sites: SiteReader::new(Arc::clone(&spool)),
            writer: ResolvingWriter::create(path, &header, WaitLimits { free_delay_ns: 0, ..window })?,
            last: (0, 0),
            forked: Vec::new(),
        };
        outflow.inherit(&spool.control)?;
        let (merge, free_delay_ns, path) = (Merge::new(), window.free_delay_ns, path.to_path_buf());
        Ok(Self { spool, rate: how.rate, stamps, names, merge, stream, outflow, free_delay_ns, reached_ns: 0, path })
    }

    /// Takes over the events before `until_ticks` of a process that still runs; `log` is what was done up to then. The
    /// process must have written them all, but for a thread that has been in the same call since before then: its
    /// event counts as if it came at that time. Stops early where `go_on` says so. Not for traces with accesses.
    ///
    /// # Errors
    /// The spool cannot be read or the trace not be written.
    pub fn advance(&mut self, until_ticks: u64, log: &[Entry], go_on: &impl Fn() -> bool) -> Result<(), RecordError> {
        let until_ns = self.rate.ns(until_ticks.saturating_sub(self.spool.control.start_ticks));
        // What is done later may still come to stand before the last entries.
        let log = log.get(..log.partition_point(|entry| entry.ticks < until_ticks)).unwrap_or_default();
        self.look(true, Some(until_ticks), log)?;
        while self.reached_ns < until_ns && go_on() {
            self.reached_ns = until_ns.min(self.reached_ns + SLICE_NS);
            self.merge.run(self.reached_ns, &mut self.outflow)?;
        }
        self.outflow.settle()
    }

    /// Events taken over so far.
    pub fn events(&self) -> u64 {
        self.outflow.events()
    }

    /// Takes over the rest and completes the trace, which then stands at `output`. `spool` is the same, opened when the
    /// process had ended, or for a last look at it.
    ///
    /// # Errors
    /// The spool cannot be read or the trace not be written.
    pub fn finish(
        mut self,
        end: ImageEnd,
        spool: &SpoolReader,
        log: &[Entry],
        output: &Path,
    ) -> Result<Converted, RecordError> {
        self.look(spool.is_live(), None, log)?;
        let Self { mut merge, stream, mut outflow, path, .. } = self;
        let touches = match stream {
            None => run_to_end(&mut merge, &mut outflow).map(|()| None)?,
            Some(stream) => {
                let mut interleaved = Interleaved { stream, outflow: &mut outflow };
                run_to_end(&mut merge, &mut interleaved)?;
                Some(interleaved.stream.finish(&mut |raw| outflow.take(&raw))?)
            }
        };
        let (summary, quality) = outflow.finish(end, spool)?;
        fs::rename(path, output).map_err(RecordError::io(output, "create the trace here"))?;
        Ok(Converted { summary, quality, touches })
    }

    /// Takes the spool and the log as they are now; of a process that still runs, up to that time.
    fn look(&mut self, live: bool, until_ticks: Option<u64>, log: &[Entry]) -> Result<(), RecordError> {
        let until_ns = |ticks: u64| self.rate.ns(ticks.saturating_sub(self.spool.control.start_ticks));
        let extent = until_ticks.map_or(Extent::Whole, |ticks| Extent::Until(until_ns(ticks)));
        let lanes = self.spool.look(live)?;
        self.merge.extend(lanes, extent, |lane| {
            LaneEvents::new(Arc::clone(&self.spool), lane, extent, self.stamps, Arc::clone(&self.names))
        })?;
        // Within one lane the order of calls is certain.
        if self.merge.lanes() > 1 || self.outflow.pages.is_some() {
            self.outflow.writer.delay_frees(self.free_delay_ns);
        }
        // The log has time stamps, so numbered events and it have no common time.
        if matches!(self.stamps, Stamps::Ticks(_)) {
            let ends = children::ends_of(self.spool.path());
            let is_due = |end: &ChildEnd| until_ticks.is_none_or(|until| end.ticks < until);
            let due = ends.partition_point(is_due);
            self.outflow.timeline.extend(log, &ends[..due]);
        }
        Ok(())
    }
}

/// Takes over all events that are left.
fn run_to_end(merge: &mut Merge, taker: &mut impl Taker) -> Result<(), RecordError> {
    while let Some(next_ns) = merge.next_ns() {
        signals::check()?;
        merge.run(next_ns.saturating_add(SLICE_NS), taker)?;
    }
    Ok(())
}

impl How {
    /// How the traces of a session are made, by the clock as it is now.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn of(session: &Session, merging: Merging) -> Result<Self, RecordError> {
        let clock_events = session.control.page()?.untimed_events.saturating_add(1);
        Ok(Self { rate: session.tick_rate()?, merging, clock_events })
    }

    /// The header of a trace made this way.
    fn header(&self, origin: Origin, touch: TouchKnowledge, clock: Clock) -> Header {
        let clock_events = (self.clock_events > 1).then_some(self.clock_events);
        Header { clock_events, ..Header::new(origin, touch, clock) }
    }
}

/// What is known of the program's accesses.
fn touch_of(has_stream: bool, has_pages: bool) -> TouchKnowledge {
    match (has_stream, has_pages) {
        (true, _) => TouchKnowledge::FullStream,
        (false, true) => TouchKnowledge::Sampled,
        (false, false) => TouchKnowledge::Assumed,
    }
}

/// The accesses between the events.
struct Interleaved<'a> {
    stream: Interleave,
    outflow: &'a mut Outflow,
}

impl Taker for Interleaved<'_> {
    fn take(&mut self, raw: &RawEvent) -> Result<(), RecordError> {
        self.stream.event(*raw, &mut |raw| self.outflow.take(&raw))
    }
}
