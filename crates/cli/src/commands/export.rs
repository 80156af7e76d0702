//! `hksim export`: writes a trace in another format, the addresses at which a policy places its objects, or the page
//! accesses that follow.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_sim::SimConfig;
use hksim_trace::error::TraceError;
use hksim_trace::export::{ExportReport, Kind, export};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::flags::{BaseKernel, PolicyArgs};
use crate::forks::ForkArgs;
use crate::inputs;
use crate::output::file::{self, Staged};
use crate::output::{PlainLines, note, units, warn};
use crate::runs::setup;
use hksim_explore::exports::{Broken, accesses, addresses};

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim export app.hkt --to csv -o app.csv\n  hksim export app.hkt --to addresses --huge=never\n  hksim export app.hkt --to accesses --superslab 2M --huge=thp"
)]
pub struct Args {
    /// Export this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Write this format; addresses: where the policy places each object, as CSV; accesses: every page access under the
    /// policy and kernel, as CSV
    #[arg(long, value_name = "KIND", value_enum)]
    to: To,
    /// Write to this file instead of standard output (-)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    forks: ForkArgs,
}

impl Args {
    /// The output file; `None` is standard output.
    fn output(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !file::is_standard(path))
    }
}

/// The formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    Android,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
    Rep,
    Addresses,
    Accesses,
}

/// Writes the trace in another format, and notes on standard error what that format cannot represent.
///
/// # Errors
/// Bad input, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    if args.forks.are_asked() && args.to != To::Accesses {
        bail!("--fork-at: only `--to accesses` simulates forks; leave it out");
    }
    let kind = match args.to {
        To::Android => Kind::Android,
        To::Csv => Kind::Csv,
        #[cfg(feature = "parquet")]
        To::Parquet => Kind::Parquet,
        To::Rep => Kind::Rep,
        To::Addresses => return addresses(args),
        To::Accesses => return accesses(args),
    };
    let policy = &args.policy;
    if let Some(flag) = policy.policy_flag().or(policy.kernel_flag()).or(policy.program_flag()) {
        bail!("--{flag}: only `--to addresses` and `--to accesses` depend on the policy; leave it out");
    }
    let mut source = open(&args.trace)?;
    if kind.is_binary() && args.output().is_none() && std::io::stdout().is_terminal() {
        bail!("--to {}: the format is binary and standard output is a terminal; name a file with -o", kind.name());
    }
    let report = to_output(args.output(), |name, out| Ok(export(&mut source, kind, name, out)?))?;
    report.map_or(Ok(()), |report| {
        print_notes(&args.trace, &report);
        Ok(())
    })
}

fn addresses(args: &Args) -> Result<()> {
    let config = args.policy.config()?;
    if let Some(flag) = args.policy.kernel_flag().or(args.policy.program_flag()) {
        bail!("--{flag}: addresses depend on the allocator only; leave it out");
    }
    let mut source = open(&args.trace)?;
    let written = to_output(args.output(), |name, out| {
        addresses::write(&mut source, &config.policy, out).map_err(|why| at(why, name))
    });
    written.map(drop)
}

fn accesses(args: &Args) -> Result<()> {
    let config = args.policy.config()?;
    let trace = inputs::file(&args.trace)?;
    let setup = SimConfig { forks: args.forks.windows(&trace)?, ..setup(&config, &trace, BaseKernel::AsItComes)? };
    let mut source = (trace.input.open)()?;
    let written = to_output(args.output(), |name, out| {
        accesses::write(source.as_mut(), &setup, out).map_err(|why| at(why, name))
    });
    written.map(drop)
}

fn open(path: &Path) -> Result<TraceReader> {
    let source = TraceReader::open(path)?;
    if let Some(tail) = source.tail() {
        warn(&format!("{}: {tail}; exporting the {} events before it", path.display(), source.summary().events));
    }
    Ok(source)
}

/// Runs `write` on the file or on standard output. A file is written completely or not at all. `None` if the reader of
/// standard output closed the pipe.
fn to_output<T>(
    output: Option<&Path>,
    write: impl FnOnce(&Path, &mut (dyn Write + Send)) -> Result<T>,
) -> Result<Option<T>> {
    let Some(path) = output else {
        let stdout = std::io::stdout();
        let mut out: Box<dyn Write + Send> =
            if stdout.is_terminal() { Box::new(PlainLines::new(stdout)) } else { Box::new(BufWriter::new(stdout)) };
        return match write(Path::new("standard output"), &mut out) {
            Err(why) if is_broken_pipe(&why) => Ok(None),
            result => result.map(Some),
        };
    };
    let staged = Staged::result(path)?;
    let file = File::create(staged.path()).with_context(|| format!("{}: cannot write", path.display()))?;
    let done = write(path, &mut BufWriter::new(file))?;
    staged.keep()?;
    Ok(Some(done))
}

fn is_broken_pipe(why: &anyhow::Error) -> bool {
    matches!(why.downcast_ref(), Some(TraceError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe)
}

fn print_notes(path: &Path, report: &ExportReport) {
    let [events, rows] = [report.events, report.rows].map(units::count);
    note(&format!("{}: {events} events exported as {rows} lines or rows of {}", path.display(), report.format.name()));
    for (what, &events) in &report.losses {
        warn(&format!("not represented in {}: {what}: {}", report.format.name(), units::count(events)));
    }
}

/// The error, with the name of the output.
fn at(why: Broken, name: &Path) -> anyhow::Error {
    match why {
        Broken::Sim(why) => why.into(),
        Broken::Write(source) => TraceError::Io { path: name.to_path_buf(), action: "write", source }.into(),
    }
}
