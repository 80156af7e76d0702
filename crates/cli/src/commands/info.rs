//! `hksim info`: what a trace holds.

use std::path::PathBuf;

use anyhow::Result;
use hksim_trace::header::{Origin, Quality, Touch};
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;

use crate::output::{OutputArgs, note, units};

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to read
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Counts a trace.
///
/// # Errors
/// Input that is no trace.
pub fn run(args: &Args) -> Result<()> {
    let mut reader = TraceReader::open(&args.trace)?;
    let truncated = reader.tail().map(|tail| tail.to_string());
    if let Some(tail) = &truncated {
        note(&format!("{}: {tail}", args.trace.display()));
    }
    let info = Info::of(&mut reader)?;
    args.output.emit(&info, &[&info], || table(&info, truncated.as_deref()))
}

fn table(info: &Info, truncated: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<22}{value}\n");
    line("origin", origin_text(&info.origin));
    line("touches", touch_text(info.touch).to_string());
    line("complete", truncated.map_or("yes".to_string(), |tail| format!("truncated: {tail}")));
    line("duration", units::time(info.duration_ns));
    let counts = [
        ("events", info.events),
        ("  malloc", info.mallocs),
        ("  calloc", info.callocs),
        ("  realloc", info.reallocs),
        ("  memalign family", info.aligned),
        ("  free", info.frees),
        ("  free(NULL)", info.free_null),
        ("  usable size", info.usable_size_calls),
        ("  touches", info.touches),
        ("  marks", info.marks),
        ("failed calls", info.failed),
        ("threads", u64::from(info.threads)),
        ("cross-thread frees", info.cross_thread_frees),
        ("unknown frees", info.unknown_frees),
        ("live objects, peak", info.live_objects_peak),
        ("live objects, end", info.live_objects_end),
    ];
    for (name, count) in counts {
        line(name, units::count(count));
    }
    line(
        "live bytes, peak",
        format!("{} ({})", units::count(info.live_bytes_peak), units::bytes(info.live_bytes_peak)),
    );
    let sizes = [info.sizes.p50, info.sizes.p90, info.sizes.p99, info.sizes.max].map(units::count);
    line("sizes", format!("50 % up to {}, 90 % {}, 99 % {}, largest {}", sizes[0], sizes[1], sizes[2], sizes[3]));
    text + &quality_lines(&info.quality)
}

/// Where a trace comes from, in words.
pub fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Recorded { command, pid, .. } => format!("recorded: {} (pid {pid})", command.join(" ")),
        Origin::Imported { format, file } => format!("imported: {file} ({format})"),
        Origin::Generated { name, parameters, seed } => {
            let parameters = parameters.iter().map(|(name, value)| format!("{name} {value}"));
            format!("generated: {name}, {}, seed {seed}", parameters.collect::<Vec<_>>().join(", "))
        }
    }
}

/// What is known about accesses, in words.
pub fn touch_text(touch: Touch) -> &'static str {
    match touch {
        Touch::Assumed => "not recorded",
        Touch::FirstTouch => "first access to each page",
        Touch::Sampled => "first accesses of a sample of objects",
        Touch::FullStream => "every access",
    }
}

/// What was left out, guessed or repaired: a line each, none for a trace without.
pub fn quality_lines(quality: &Quality) -> String {
    let notes = [
        (quality.unknown_frees, "frees of addresses never seen allocated"),
        (quality.parked, "events put behind another thread's later one"),
        (quality.reuse_repaired, "frees put in, where an address was allocated again"),
        (quality.uses_dropped, "uses of addresses that were not live, left out"),
        (quality.reallocs_to_zero_kept, "realloc(p, 0) that returned a block"),
        (quality.events_lost, "events lost by the recorder"),
        (quality.nested_calls, "calls inside other calls, left out"),
        (quality.unfinished_calls, "calls that never returned, left out"),
        (quality.addresses_guessed, "blocks of unknown address, tied to the next free of an unknown address"),
        (quality.foreign_lines, "lines that are no call, left out"),
        (quality.other_process_events, "calls of other processes, left out"),
    ];
    let lines = notes.into_iter().filter(|(count, _)| *count > 0);
    let stopped = (quality.stopped_ns > 0)
        .then(|| format!("{:<22}during which recording was switched off\n", units::time(quality.stopped_ns)));
    lines.map(|(count, what)| format!("{:<22}{what}\n", units::count(count))).chain(stopped).collect()
}
