//! `hksim trace cut`: extracts part of a trace.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Result, bail};
use hksim_policy::units::{parse_count, parse_time};
use hksim_trace::error::TraceError;
use hksim_trace::source::EventSource;
use hksim_trace::tools::{Cut, LiveAtStart, Part, named_part, rewrite};

use super::{ToolReport, count_lines, open};
use crate::memory;
use crate::output::trace::TraceOut;

/// Arguments of `trace cut`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "All conditions must hold. Objects that are live where the part begins are allocated first, at time \
                       0, so that the part runs on the same heap. Frees and resizes by removed threads are done by the \
                       thread that allocated the object; if that thread is removed too, they become calls on unknown \
                       pointers.\n\nA memory recording (.hkm) can only be cut at its end: --to TIME, --events ..B.\n\nExamples:\n  hksim trace cut app.hkt --from 2s --to 5s -o part.hkt\n  hksim trace cut app.hkt --mark loaded..shutdown -o part.hkt"
)]
pub struct Args {
    /// Extract from this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Start at this time of the trace
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<u64>,
    /// End at this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<u64>,
    /// Keep events with these numbers, counted from 0: A..B, A.. or ..B
    #[arg(long, value_name = "A..B", value_parser = parse_events)]
    events: Option<Range<u64>>,
    /// Start at the first mark of this name; end at the next mark of the second name, or at the end
    #[arg(long, value_name = "NAME[..NAME]")]
    mark: Option<String>,
    /// Keep only these threads
    #[arg(long, value_name = "N,N...", value_delimiter = ',')]
    thread: Option<Vec<u32>>,
    /// Drop objects that are live at the start; calls on them become calls on unknown pointers
    #[arg(long)]
    drop_live: bool,
    #[command(flatten)]
    out: TraceOut,
}

impl Args {
    /// The part to keep, if only its end is given.
    fn end_only(&self) -> Option<hksim_memory_trace::Cut> {
        let events = self.events.clone().unwrap_or(0..u64::MAX);
        let has_other = self.from.is_some() || self.mark.is_some() || self.thread.is_some() || self.drop_live;
        let until_ns = self.to.unwrap_or(u64::MAX);
        (events.start == 0 && !has_other).then_some(hksim_memory_trace::Cut { until_ns, events: events.end })
    }
}

fn parse_events(word: &str) -> Result<Range<u64>, String> {
    let (from, to) = word.split_once("..").ok_or_else(|| format!("`{word}` is not a range; write A..B, A.. or ..B"))?;
    let refuse = |part| move |why| format!("`{part}` {why}");
    let from = if from.is_empty() { 0 } else { parse_count(from).map_err(refuse(from))? };
    let to = if to.is_empty() { u64::MAX } else { parse_count(to).map_err(refuse(to))? };
    if from < to { Ok(from..to) } else { Err(format!("`{word}` is empty; the first number must be below the second")) }
}

/// Extracts the part.
///
/// # Errors
/// The input is not a trace, a mark is missing, the part has no events, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    if memory::is_recording(&args.trace) {
        return memory::tools::cut(&args.trace, args.end_only(), &args.out);
    }
    let mut reader = open(&args.trace)?;
    let mut events = args.events.clone().unwrap_or(0..u64::MAX);
    if let Some(mark) = &args.mark {
        let (from, to) = mark.split_once("..").map_or((mark.as_str(), None), |(from, to)| (from, Some(to)));
        let between = named_part(&mut reader, from, to)?;
        events = events.start.max(between.start)..events.end.min(between.end);
    }
    let time_ns = args.from.unwrap_or(0)..args.to.unwrap_or(u64::MAX);
    if events.is_empty() || time_ns.is_empty() {
        bail!("{}: this part is empty; its end must be after its start", args.trace.display());
    }
    let live_at_start = if args.drop_live { LiveAtStart::LeaveOut } else { LiveAtStart::Allocate };
    let mut cut = Cut::new(Part { events, time_ns, threads: args.thread.clone() }, live_at_start);
    let whole = *reader.summary();
    let summary = args.out.write(&[&args.trace], |path| match rewrite(&mut reader, &mut cut, path)? {
        part if part.events == 0 && whole.events > 0 => {
            Err(TraceError::EmptyPart { path: args.trace.clone(), summary: whole })
        }
        part => Ok(part),
    })?;
    let counts = cut.counts;
    let lines = count_lines([
        (counts.live_at_start, "objects allocated first, because they were live at the start"),
        (counts.unknown_pointer_calls, "frees and reallocs of removed objects, now of unknown pointers"),
        (counts.reassigned_calls, "frees and reallocs by removed threads, now by the object's own thread"),
        (counts.dropped_events, "touches and other calls removed with their object or thread"),
    ]);
    ToolReport::print("cut", &args.out, summary, counts, &lines)
}
