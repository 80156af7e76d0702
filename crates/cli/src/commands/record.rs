//! `hksim record`: records a program's allocator calls.

mod ltrace;
mod summary;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args as _;
use hksim_policy::units::{parse_size, parse_time};
use hksim_record::control::Begin;
use hksim_record::touch_full::TouchFull;
use hksim_record::{
    ClockReads, Functions, Operators, Options, Programs, RecordReport, Touch as Recorded, attach_watched,
    record_functions, record_watched, recover, recover_to, recovered_output,
};
use hksim_text::nearest;
use serde::Serialize;

use crate::memory;
use crate::output::progress::Recording;
use crate::output::{Format, file, note, print_beside_program, render, warn};
use hksim_results::Stamp;

/// Frames of the stack of an allocating call. Each costs time in the program.
const STACK_DEPTH: u32 = 8;
/// Frames of the stack of a memory call: the allocator between it and the program needs some, and they cost the program
/// nothing.
const MEMORY_STACK_DEPTH: u32 = 32;

/// How calls are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// Preload a shared object: complete and fast
    Preload,
    /// Set breakpoints with ltrace: about 10 000 times slower, one process
    Ltrace,
}

/// Which accesses are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Accesses {
    /// Record no accesses
    None,
    /// Record the first touch of each page of sampled objects
    Pages,
    /// Record every access, in valgrind: about 10 times slower
    Full,
}

/// How often the program reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Reads {
    /// Read the clock at every call
    Every,
    /// Read it at every 16th call and every millisecond; at every call while several threads of a process make calls
    #[value(name = "16")]
    Sixteenth,
}

/// Arguments of `record`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim record -o app.hkt ./app --verbose\n  hksim record --accesses pages --stacks -o app.hkt ./app\n  hksim record --memory -o app.hkm ./app\n  hksim record -p 4711 --duration 30s -o app.hkt\n  hksim record --memory -p 4711 --duration 30s -o app.hkm\n  hksim record -p 4711 --functions je_malloc,je_free --duration 30s -o app.hkt\n  hksim record --recover .app.hkt.recording-k3Xz9q"
)]
pub struct Args {
    /// Write the trace to this file, and those of child processes next to it [default: hksim.hkt]
    #[arg(short, long, value_name = "FILE.hkt")]
    output: Option<PathBuf>,
    /// Record page operations instead of allocator calls: memory calls and page faults of any program (as root: all)
    #[arg(long, conflicts_with_all = ["accesses", "backend", "paused", "max_size", "operators", "clock", "recover"])]
    memory: bool,
    /// Record this running process and its children from now on, until --duration, Ctrl-C or its end
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["accesses", "backend", "no_aslr", "recover"])]
    pid: Option<u32>,
    /// With --pid: record these functions by breakpoints of the kernel, for static programs and allocators of their own
    /// (as root): je_malloc,je_free,get=malloc,put=free
    #[arg(long, value_name = "NAMES", requires = "pid", conflicts_with_all = ["memory", "paused", "max_size", "stacks",
        "operators", "only", "no_children", "clock"])]
    functions: Option<Functions>,
    /// With --memory --pid: make the process switch huge pages off meanwhile (prctl), so that each touch is seen; this
    /// changes it
    #[arg(long, requires = "pid", requires = "memory", hide_short_help = true)]
    no_huge_pages: bool,
    /// With --memory: give the program the same addresses in each run
    #[arg(long, requires = "memory", hide_short_help = true)]
    no_aslr: bool,
    /// Record accesses to blocks
    #[arg(long, value_enum, default_value = "none")]
    accesses: Accesses,
    /// With --accesses pages: watch one object in N, and every object of 4 KiB or more
    #[arg(long, value_name = "N", default_value = "100", hide_short_help = true)]
    sample: NonZeroU32,
    /// Select how calls are observed
    #[arg(long, value_enum, default_value = "preload", hide_short_help = true)]
    backend: Backend,
    /// Start paused; resume with `hksim mark PID --start` or SIGUSR2 to hksim
    #[arg(long, hide_short_help = true)]
    paused: bool,
    /// End the recording after this time (30s) and write the traces; the program continues
    #[arg(long, value_name = "TIME", value_parser = parse_time, hide_short_help = true)]
    duration: Option<u64>,
    /// End the recording at this size (2G, at 8 bytes per event) and write the traces; the program continues
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    max_size: Option<u64>,
    /// Record the call stack of each allocation, or with --memory of each call that makes a mapping, up to DEPTH frames
    /// [DEPTH if omitted: 8; 32 with --memory]
    #[arg(long, value_name = "DEPTH", num_args = 0..=1, require_equals = true,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    stacks: Option<Option<u32>>,
    /// Also interpose operator new and delete (automatic if the program's allocator serves them without malloc)
    #[arg(long, hide_short_help = true)]
    operators: bool,
    /// Record only programs with this file or command name (cc1plus); repeatable (not with --memory)
    #[arg(long, value_name = "NAME", value_parser = parse_program)]
    only: Vec<String>,
    /// Record only the started process, not its children (not with --memory)
    #[arg(long)]
    no_children: bool,
    /// Select how often the clock is read [default: 16; every with --accesses and --stacks]
    #[arg(long, value_enum, conflicts_with = "stacks", hide_short_help = true)]
    clock: Option<Reads>,
    /// Print the report on standard error in this format (standard output is the program's)
    #[arg(long, value_enum, default_value = "table", hide_short_help = true)]
    format: Format,
    /// Write the files of an interrupted recording from its directory, to the original path or to --output
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "paused", "duration", "max_size", "stacks", "only", "no_children"], hide_short_help = true)]
    recover: Option<PathBuf>,
    /// Record this program with these arguments; hksim exits 0 and reports the program's exit status
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present_any = ["recover", "pid"],
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

impl Args {
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new("hksim.hkt"))
    }

    /// The depth of call stacks: as given, or the usual one; `None` without --stacks.
    fn stack_depth(&self, usual: u32) -> Option<u32> {
        self.stacks.map(|depth| depth.unwrap_or(usual))
    }
}

/// The report, with the stamp of every JSON result.
#[derive(Serialize)]
struct StampedReport<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde(flatten)]
    report: &'a RecordReport,
}

/// Runs the program and writes its trace.
///
/// # Errors
/// The program cannot be recorded.
pub fn run(args: &Args) -> Result<()> {
    args.output.as_deref().map_or(Ok(()), file::refuse_standard_output)?;
    refuse_flag_as_program(&args.command)?;
    if args.pid.is_some() && !args.command.is_empty() {
        bail!("--pid records a process that runs already; leave out the program, or --pid");
    }
    if args.memory {
        if !args.only.is_empty() || args.no_children {
            bail!(
                "--memory records all processes of the program, since a forked child shares its memory; leave out \
                 --only and --no-children, and use the files of the processes you want"
            );
        }
        return memory::record::run(&memory::record::Request {
            output: args.output.as_deref().unwrap_or(Path::new("hksim.hkm")),
            subject: match args.pid {
                None => memory::record::Subject::Program { command: &args.command, no_aslr: args.no_aslr },
                Some(pid) => memory::record::Subject::Running { pid, no_huge_pages: args.no_huge_pages },
            },
            duration: args.duration.map(Duration::from_nanos),
            stack_depth: args.stack_depth(MEMORY_STACK_DEPTH),
            format: args.format,
        });
    }
    if let Some(directory) = args.recover.as_deref().filter(|directory| memory::record::is_interrupted(directory)) {
        return memory::record::recover(directory, args.output.as_deref(), args.format);
    }
    if args.backend == Backend::Ltrace && args.recover.is_none() {
        return record_with_ltrace(args);
    }
    let report = match &args.recover {
        Some(session) => recovered(session, args)?,
        None => record(args)?,
    };
    let stamped = StampedReport { stamp: Stamp::here(), report: &report };
    let text = render(args.format, &stamped, &report.traces, || summary::text(&report))?;
    match args.format {
        Format::Table => text.lines().for_each(if summary::is_as_expected(&report) { note } else { warn }),
        Format::Json | Format::Csv => print_beside_program(&text),
    }
    Ok(())
}

fn record(args: &Args) -> Result<RecordReport> {
    let output = args.output();
    if output.is_dir() {
        bail!("{}: is a directory; name a file for the trace", output.display());
    }
    if args.clock == Some(Reads::Sixteenth) && args.accesses != Accesses::None {
        bail!("--clock 16 is too coarse to order accesses; leave out --accesses or --clock");
    }
    let options = Options {
        output: output.to_path_buf(),
        begin: if args.paused { Begin::Stopped } else { Begin::AtOnce },
        duration: args.duration.map(Duration::from_nanos),
        bytes_max: args.max_size,
        stack_depth: args.stack_depth(STACK_DEPTH),
        touch: match args.accesses {
            Accesses::None => Recorded::None,
            Accesses::Pages => Recorded::Pages { sample: args.sample },
            Accesses::Full => Recorded::Full(find_touch_full()?),
        },
        programs: Programs { only: args.only.clone(), no_children: args.no_children },
        operators: if args.operators { Operators::Always } else { Operators::Auto },
        clock: match args.clock {
            Some(Reads::Every) => ClockReads::Every,
            Some(Reads::Sixteenth) | None => ClockReads::Sixteenth,
        },
        ..Options::default()
    };
    if let Some(name) = args.functions.as_ref().and_then(Functions::throwing) {
        warn(&format!(
            "{name} throws when it fails, and an exception through a recorded function ends the program; if it calls malloc, \
             name that instead"
        ));
    }
    let earlier = file::set_aside(output)?;
    let line = Recording::new();
    let mut show = |progress: &_| line.show(progress);
    let report = match (args.pid, &args.functions) {
        (Some(pid), Some(functions)) => record_functions(output, options.duration, functions, pid, &mut show)?,
        (Some(pid), None) => attach_watched(&options, pid, &mut show)?,
        (None, _) => record_watched(&options, &args.command, &mut show)?,
    };
    drop(line);
    file::keep_earlier(earlier, args.format);
    Ok(report)
}

/// Writes the traces of an interrupted recording. An earlier recording of the same name is kept.
fn recovered(session: &Path, args: &Args) -> Result<RecordReport> {
    let earlier = file::set_aside(args.output.as_deref().unwrap_or(&recovered_output(session)?))?;
    let report = match &args.output {
        None => recover(session)?,
        Some(output) => recover_to(session, output)?,
    };
    file::keep_earlier(earlier, args.format);
    Ok(report)
}

fn record_with_ltrace(args: &Args) -> Result<()> {
    let is_plain = args.clock.is_none() && args.accesses == Accesses::None && !args.paused && args.stacks.is_none();
    if !args.only.is_empty() || args.no_children {
        bail!("--backend ltrace records the started process only; leave out --only and --no-children");
    }
    if !is_plain || args.duration.is_some() || args.max_size.is_some() {
        bail!(
            "--backend ltrace records calls only; leave out --accesses, --stacks, --clock, --paused, --duration and --max-size"
        );
    }
    ltrace::record(args.output(), args.format, &args.command)
}

/// Refuses a mistyped flag, which would otherwise be run as the program. After `--` a program may have any name.
fn refuse_flag_as_program(command: &[OsString]) -> Result<()> {
    let Some(flag) = command.first().and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) else {
        return Ok(());
    };
    let words: Vec<OsString> = std::env::args_os().collect();
    let before = words.len().checked_sub(command.len() + 1).and_then(|at| words.get(at));
    if before.is_some_and(|word| word == "--") {
        return Ok(());
    }
    let record = Args::augment_args(clap::Command::new("record"));
    let known: Vec<String> =
        record.get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect();
    let name = flag.split('=').next().unwrap_or(flag);
    let question = nearest::question(name, known.iter().map(String::as_str));
    bail!("{flag}: record has no such flag{question}; write `--` before a program with this name")
}

/// Parses the name of a program, without directories.
fn parse_program(name: &str) -> Result<String, String> {
    match name {
        "" => Err("the name of a program is not empty".to_string()),
        _ if name.contains(['/', '\0']) => Err("give the name of the program without its directory".to_string()),
        _ => Ok(name.to_string()),
    }
}

/// The tool that records every access. Prints a note if it is the slow tool.
fn find_touch_full() -> Result<TouchFull> {
    let found = TouchFull::find()?;
    if let Some(why) = found.why_lackey() {
        warn(&format!("using lackey to record accesses, about 60 times slower than hksim's own valgrind tool: {why}"));
    }
    Ok(found)
}
