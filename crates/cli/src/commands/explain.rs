//! `hksim explain`: puts every install of a simulation down to its causes.

mod fit;
mod library;
mod view;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use hksim_designs::DesignWords;
use hksim_explore::causes::{best, largest};
use hksim_explore::described::Described;
use hksim_explore::explained::Subject;
use hksim_explore::explained_time::ExplainedTime;
use hksim_explore::question::Tie;
use hksim_sim::Explained;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::flags::{DesignArgs, PolicyArgs, RunConfig};
use crate::forks::ForkArgs;
use crate::inputs;
use crate::memory;
use crate::output::{OutputArgs, plain, warn};
use crate::runs::OnScreen;
use crate::stack_files::StackFiles;
use crate::system_time::ProfileArgs;
use hksim_explore::marks::Marks;
use hksim_results::Against;
use hksim_results::explain::{CauseRow, Explanation, Names};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  hksim explain app.hkt --preset hakmem
  hksim explain app.hkt --purge-delay 0 --against default
  hksim explain app.hkt --per request --format json -o app.json
  hksim explain app.hkt --on ./mymalloc.so
  hksim explain app.hkt --on glibc --against glibc:mmap_threshold=67108864")]
pub struct Args {
    /// Explain a simulation of this trace
    #[arg(value_name = "TRACE.hkt", required_unless_present = "fit")]
    trace: Option<PathBuf>,
    /// Rank hypotheses for counts measured elsewhere: lines of TRACE.hkt,COUNT
    #[arg(long, value_name = "COUNTS.csv", conflicts_with_all = ["trace", "against", "per", "folded", "pprof", "profile"])]
    fit: Option<PathBuf>,
    /// Accept this deviation from a count as a fit
    #[arg(long, value_name = "PERCENT", default_value = "1%", requires = "fit", hide_short_help = true)]
    tolerance: Tie,
    /// Explain a replay on this malloc library: a name or a file (glibc, ./my.so), with settings if wanted
    /// (jemalloc:dirty_decay_ms=0)
    ///
    /// Names are glibc, mimalloc, jemalloc, gperftools, tbbmalloc, rpmalloc and snmalloc. Without this flag, a simulation is
    /// explained.
    #[arg(long, value_name = "NAME|LIB.so", conflicts_with_all = ["fit", "per", "fork_at", "profile"])]
    on: Option<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    design: DesignArgs,
    /// Explain the difference to another policy, design or library
    ///
    /// It is a preset or policy file, with changes (default+purge=none). With --design, it is another design or other
    /// settings (NAME+FLAG=VALUE); with --on, another library or other settings.
    #[arg(long, value_name = "POLICY|LIB", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    against: Option<String>,
    /// Count the installs from each mark of this name to the next mark of any name (hksim mark)
    #[arg(long, value_name = "MARK")]
    per: Option<String>,
    #[command(flatten)]
    stacks: StackFiles,
    /// Find remedies for this many causes, by simulating policy changes
    #[arg(long, value_name = "N", default_value = "3")]
    causes: usize,
    #[command(flatten)]
    forks: ForkArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Explains a design, or the difference between two.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<()> {
    args.output.check(&args.stacks.paths(), &[args.trace.as_deref(), args.fit.as_deref(), args.profile.path()])?;
    args.stacks.check()?;
    let config = args.policy.config()?;
    if config.memory_limit_bytes.is_some() {
        bail!("--memory-limit: explain says what installs are for, not who survives; leave it out, or use `hksim sim`");
    }
    let path = match (&args.fit, &args.trace) {
        (Some(counts), _) => return fit::run(counts, args.tolerance.0, &config, &args.output),
        (None, Some(path)) => path,
        (None, None) => bail!("name a trace, or --fit COUNTS.csv"),
    };
    if memory::is_recording(path) {
        bail!(
            "{}: a memory recording has no allocator calls to explain; use `hksim sim {0} --by site`",
            path.display()
        );
    }
    if let Some(on) = &args.on {
        if args.design.label(&args.policy)?.is_some() {
            bail!("--on and --design each name an allocator to explain; give one of them");
        }
        return library::run(args, on, &inputs::file(path)?, path, &config);
    }
    match args.design.label(&args.policy)? {
        Some(design) => {
            let against = args.against.as_deref();
            let other = against.map(|word| DesignWords::of_word(word).and_then(|words| words.label(&warn)));
            explained(args, path, &config, (&design, other.transpose().context("--against")?))
        }
        None => {
            let other = args.against.as_deref().map(|word| other_config(word, &config)).transpose()?;
            explained(args, path, &config, (&config.policy, other.map(|other| other.policy)))
        }
    }
}

/// Explains an allocator, or the difference to another one, with the program and the kernel of a run configuration.
fn explained<P: Described>(args: &Args, path: &Path, config: &RunConfig, both: (&P, Option<P>)) -> Result<()> {
    let (allocator, other) = both;
    let trace = inputs::file(path)?;
    let mut reader = TraceReader::open(path)?;
    let footer = reader.footer().clone();
    let mark = args.per.as_deref().map(|name| mark_number(&mut reader, name)).transpose()?;
    let subject = Subject { trace: &trace, mark, forks: args.forks.windows(&trace)?, listener: &OnScreen };
    let profile = args.profile.read(&args.output)?;
    let with_time = |allocator: &P| -> Result<(Explained<P>, Option<ExplainedTime<P>>)> {
        let explained = subject.explain(allocator, config)?;
        let time = profile.as_ref().map(|profile| subject.timed(&explained, config, profile)).transpose()?;
        Ok((explained, time))
    };
    let (explained, time) = with_time(allocator)?;
    let names = Names::of(&footer);
    let against = args.against.as_deref().zip(other).map(|(word, other)| -> Result<Against<P>> {
        // Named by its flags, as in the command that the result states: a file may be elsewhere, or change.
        let name = PolicyArgs::word_without_file(word);
        let (other, other_time) = with_time(&other)?;
        let (own, other) = ((&explained, time.as_ref()), (&other, other_time.as_ref()));
        Ok(Against::new(name.as_deref().unwrap_or(word), own, other, &names))
    });
    let against = against.transpose()?;
    let largest = largest(&explained.breakdown, args.causes);
    let tried = subject.tried(&largest, config, &explained)?;
    let causes = largest.iter().zip(&tried).map(|(cause, tried)| {
        CauseRow::new(cause, best(tried, cause, explained.report.installs.total), &explained.report)
    });
    let causes = causes.collect();
    let explanation = Explanation::new(&explained, time.as_ref(), causes, &names, args.per.as_deref(), against);
    if args.stacks.is_requested() {
        args.stacks.write(&names.profile(&explained.breakdown.site))?;
    }
    names.notes().iter().for_each(|line| warn(line));
    args.output.emit(&explanation, &explanation.rows(), || view::table(&explanation, config))
}

/// The other policy of a comparison, under the same kernel and assumptions.
fn other_config(word: &str, config: &RunConfig) -> Result<RunConfig> {
    let other =
        PolicyArgs::of_word(word).and_then(|policy| policy.config()).with_context(|| format!("--against {word}"))?;
    Ok(RunConfig { policy: other.policy, ..config.clone() })
}

fn mark_number(reader: &mut TraceReader, name: &str) -> Result<u32> {
    let marks = Marks::of(reader)?;
    marks.number(name).ok_or_else(|| anyhow!("--per {}: no such mark; {}", plain(name), marks.known()))
}
