//! `hksim record`: what a program asks its allocator for.

mod ltrace;
mod summary;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use hksim_policy::units::{parse_size, parse_time};
use hksim_record::control::Begin;
use hksim_record::touch_full::TouchFull;
use hksim_record::{
    ClockReads, Operators, Options, Programs, RecordReport, Touch as Recorded, record_watched, recover, recover_to,
};

use crate::output::progress::Recording;
use crate::output::{Format, file, note, render};

/// How the program is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// A preloaded object: complete and fast
    Preload,
    /// Breakpoints, set by ltrace: some 10 000 times slower, one process
    Ltrace,
}

/// Which accesses are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Touch {
    None,
    Pages,
    Full,
}

/// How often the program reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Reads {
    /// At every call
    Every,
    /// At every 16th call and once a millisecond, while one thread of a process makes calls; at every call as soon as two do
    #[value(name = "16")]
    Sixteenth,
}

/// Arguments of `record`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to write, otherwise hksim.hkt; those of child processes are written beside it
    #[arg(short, long, value_name = "FILE.hkt")]
    output: Option<PathBuf>,
    /// What is recorded of the program's accesses to its blocks; pages: the first touch of each page, of a sample of
    /// objects; full: each access, in valgrind, some 10 times slower
    #[arg(long, value_enum, default_value = "none")]
    touch: Touch,
    /// With --touch pages: watch one object in N, and all of 4 KiB and more
    #[arg(long, value_name = "N", default_value = "100")]
    sample: NonZeroU32,
    /// How the program is watched
    #[arg(long, value_enum, default_value = "preload")]
    backend: Backend,
    /// Begin without recording; `hksim mark PID --start` or SIGUSR2 to hksim starts it
    #[arg(long)]
    paused: bool,
    /// End the recording after this time, and write the traces; the program goes on: 30s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<u64>,
    /// End the recording at this size, at 8 bytes an event, and write the traces; the program goes on: 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// Record the call stack of each call that asks for memory, up to DEPTH frames
    #[arg(long, value_name = "DEPTH", num_args = 0..=1, require_equals = true, default_missing_value = "8",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    stacks: Option<u32>,
    /// Also stand before C++'s new and delete; done by itself where the command's allocator serves them past malloc
    #[arg(long)]
    operators: bool,
    /// Record programs of this name only, by their file's or command's name: cc1plus; may be given several times
    #[arg(long, value_name = "NAME", value_parser = parse_program)]
    only: Vec<String>,
    /// Record the started process only, not the ones it starts
    #[arg(long)]
    no_children: bool,
    /// How often the clock is read [default: 16; every with --touch and --stacks]
    #[arg(long, value_enum, conflicts_with = "stacks")]
    clock: Option<Reads>,
    /// Form of the report, which goes to standard error: standard output is the program's
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Show no progress; it is shown where standard error is a terminal
    #[arg(short, long)]
    quiet: bool,
    /// Write the traces of a recording whose hksim was killed, or had no room, from the session folder it left; to where
    /// they were to go, or to --output
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "paused", "duration", "max_size", "stacks", "only", "no_children"])]
    recover: Option<PathBuf>,
    /// The program and its arguments; how it ended is in the report, hksim itself exits 0
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "recover",
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

impl Args {
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new("hksim.hkt"))
    }
}

/// Runs the program and writes its trace.
///
/// # Errors
/// A program that cannot be recorded.
pub fn run(args: &Args) -> Result<()> {
    args.output.as_deref().map_or(Ok(()), file::refuse_standard_output)?;
    if args.backend == Backend::Ltrace && args.recover.is_none() {
        return record_with_ltrace(args);
    }
    let report = match (&args.recover, &args.output) {
        (Some(session), None) => recover(session)?,
        (Some(session), Some(output)) => recover_to(session, output)?,
        (None, _) => record(args)?,
    };
    let text = render(args.format, &report, &report.traces, || summary::text(&report))?;
    match args.format {
        Format::Table => text.lines().for_each(note),
        Format::Json | Format::Csv => eprint_all(&text),
    }
    Ok(())
}

fn record(args: &Args) -> Result<RecordReport> {
    let output = args.output();
    if output.is_dir() {
        bail!("{}: is a directory; name a file for the trace", output.display());
    }
    if args.clock == Some(Reads::Sixteenth) && args.touch != Touch::None {
        bail!("--clock 16 leaves times too coarse to order accesses by; leave out --touch or --clock");
    }
    let options = Options {
        output: output.to_path_buf(),
        begin: if args.paused { Begin::Stopped } else { Begin::AtOnce },
        duration: args.duration.map(Duration::from_nanos),
        bytes_max: args.max_size,
        stack_depth: args.stacks,
        touch: match args.touch {
            Touch::None => Recorded::None,
            Touch::Pages => Recorded::Pages { sample: args.sample },
            Touch::Full => Recorded::Full(find_touch_full()?),
        },
        programs: Programs { only: args.only.clone(), no_children: args.no_children },
        operators: if args.operators { Operators::Always } else { Operators::Auto },
        clock: match args.clock {
            Some(Reads::Every) => ClockReads::Every,
            Some(Reads::Sixteenth) | None => ClockReads::Sixteenth,
        },
        ..Options::default()
    };
    let line = if args.quiet { Recording::hidden() } else { Recording::shown() };
    Ok(record_watched(&options, &args.command, &mut |progress| line.show(progress))?)
}

fn record_with_ltrace(args: &Args) -> Result<()> {
    let is_plain = args.clock.is_none() && args.touch == Touch::None && !args.paused && args.stacks.is_none();
    if !args.only.is_empty() || args.no_children {
        bail!("--backend ltrace records the started process only; leave out --only and --no-children");
    }
    if !is_plain || args.duration.is_some() || args.max_size.is_some() {
        bail!(
            "--backend ltrace records calls only; leave out --touch, --stacks, --clock, --paused, --duration and --max-size"
        );
    }
    ltrace::record(args.output(), args.format, &args.command)
}

/// The name of a program, without folders.
fn parse_program(name: &str) -> Result<String, String> {
    match name {
        "" => Err("a program's name has at least one letter".to_string()),
        _ if name.contains(['/', '\0']) => Err("name the program alone, without its folder".to_string()),
        _ => Ok(name.to_string()),
    }
}

/// The way to record every access; says so where it is the slow one.
fn find_touch_full() -> Result<TouchFull> {
    let found = TouchFull::find()?;
    if let Some(why) = found.why_lackey() {
        note(&format!("lackey records the accesses, some 60 times slower than hksim's own valgrind tool: {why}"));
    }
    Ok(found)
}

/// Standard error may be closed; the trace is written all the same.
fn eprint_all(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}
