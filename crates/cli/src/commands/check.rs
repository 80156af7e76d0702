//! `hksim check`: holds named designs to a budget, for CI.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use hksim_explore::budget::{Allowed, Budget, CheckedRow, Difference, Metric, Row, Stored};
use hksim_explore::digest::Digest;
use hksim_explore::sentences::budget as sentences;
use hksim_sim::report::{SCHEMA, version};
use hksim_sim::tlb::Geometry;
use hksim_sim::{SimConfig, SimReport};
use hksim_trace::header::TouchSource;
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::flags::{BaseKernel, HugeList, PolicyArgs, RunConfig};
use crate::inputs;
use crate::output::progress::Progress;
use crate::output::table::{Lines, text};
use crate::output::{OutputArgs, file};
use crate::question::parse_core;
use crate::runs::setup;
use hksim_explore::inputs::Trace;
use hksim_explore::plan::Plan;
use hksim_explore::priced;
use hksim_explore::priced::Priced;
use hksim_reports::tables::limits;
use hksim_results::check::{CheckedBudget, limit_rows};
use hksim_results::stamp::refuse_other_schema;
use hksim_results::{Stamp, result_numbers};
use hksim_trace::named_file;

/// Exit status if a limit is broken.
const BROKEN: u8 = 1;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim check budget.toml\n  hksim check budget.toml --update")]
pub struct Args {
    /// Check this budget (docs/how-to/budget.md)
    #[arg(value_name = "BUDGET.toml")]
    budget: PathBuf,
    /// Write the stored result that the budget names
    #[arg(long)]
    update: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Checks a budget. The exit status is 1 if a limit is broken.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[Some(&args.budget)])?;
    let name = args.budget.display();
    let text = named_file::read_text(&args.budget).with_context(|| format!("{name}: cannot read the budget"))?;
    let budget = Budget::parse(&text).with_context(|| name.to_string())?;
    let folder = args.budget.parent().unwrap_or(Path::new(""));
    let stored_path = folder.join(&budget.result);
    args.output.check(&[], &[Some(&args.budget), Some(&stored_path)])?;
    let stored = read_stored(&stored_path)?;
    let designs = designs(&budget, folder)?;
    let rows = simulate(&budget, folder, &designs)?;
    let checked = rows.into_iter().enumerate().map(|(index, row)| {
        let (_, _, allowed) = &designs[index % designs.len()];
        CheckedRow::of(row, allowed, stored.as_ref(), version())
    });
    let rows: Vec<CheckedRow> = checked.collect();
    let is_within = rows.iter().all(CheckedRow::is_within);
    if args.update {
        update(&stored_path, &rows)?;
    }
    let result = CheckedBudget { stamp: Stamp::here(), is_within, rows };
    args.output.emit(&result, &limit_rows(&result.rows), || table(&result, args.update))?;
    Ok(if is_within { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

/// A design of the budget: its name, its configuration and its limits.
type Named = (String, RunConfig, Vec<Allowed>);

fn designs(budget: &Budget, folder: &Path) -> Result<Vec<Named>> {
    let design = |(name, allowance): (&String, &hksim_explore::budget::Allowance)| {
        let policy = PolicyArgs::of_word(&allowance.policy);
        let config = policy.and_then(|policy| policy.in_folder(folder).configs(HugeList::Thp));
        let config = config.with_context(|| format!("design.{name}: policy = \"{}\"", allowance.policy))?;
        match <[RunConfig; 1]>::try_from(config) {
            Ok([config]) => Ok((name.clone(), config, allowance.limits(name)?)),
            Err(_) => bail!("design.{name}: policy = \"{}\": a list; name one design each", allowance.policy),
        }
    };
    budget.design.iter().map(design).collect()
}

/// The stored result; `None` if there is no file yet.
fn read_stored(path: &Path) -> Result<Option<Stored>> {
    if !path.exists() {
        return Ok(None);
    }
    let name = path.display();
    let text = named_file::read_regular_text(path).with_context(|| format!("{name}: cannot read the stored result"))?;
    let other =
        || format!("{name}: not a result of `hksim check --update`; remove it, or name another file as `result`");
    // What the parser expected does not help: the file is another one, or was damaged.
    let value: Value = serde_json::from_str(&text).map_err(|_| anyhow!(other()))?;
    refuse_other_schema(path, &value)?;
    result_numbers::check(&value).with_context(|| name.to_string())?;
    Stored::deserialize(value).map(Some).map_err(|_| anyhow!(other()))
}

fn update(path: &Path, rows: &[CheckedRow]) -> Result<()> {
    let rows = rows.iter().map(|checked| checked.row.clone()).collect();
    let stored = Stored { schema: SCHEMA, hksim_version: version().into(), rows };
    let text = serde_json::to_string_pretty(&stored).context("result as JSON")? + "\n";
    file::write(path, text.as_bytes())
}

/// Simulates every design on every trace. Rows are ordered by trace, then by design.
fn simulate(budget: &Budget, folder: &Path, designs: &[Named]) -> Result<Vec<Row>> {
    let core = budget.tlb.as_deref().map(parse_core).transpose();
    let core = core.map_err(|why| anyhow::anyhow!("tlb = \"{}\": {why}", budget.tlb.as_deref().unwrap_or_default()))?;
    let paths: Vec<PathBuf> = budget.traces.iter().map(|trace| folder.join(trace)).collect();
    let traces = paths.iter().map(|path| inputs::file(path)).collect::<Result<Vec<Trace>>>()?;
    if let Some(trace) = traces.iter().find(|trace| trace.tail.is_some()) {
        bail!("{}: the trace is incomplete, so a budget cannot be checked with it; record it again", trace.name());
    }
    check_misses(&traces, core, designs)?;
    let allocations = paths.iter().map(|path| allocations(path)).collect::<Result<Vec<u64>>>()?;
    let checksums: Vec<Option<String>> = traces.iter().map(|trace| trace.label().checksum).collect();
    let configs: Vec<RunConfig> = designs.iter().map(|(_, config, _)| config.clone()).collect();
    let plan = Plan::new(traces, &configs, |trace, config| {
        anyhow::Ok(SimConfig { tlb: core, ..setup(config, trace, BaseKernel::AsItComes)? })
    })?;
    let all: Vec<usize> = (0..plan.rows()).collect();
    let reports = plan.simulate(&all, None, &Progress::events(0))?;
    let row = |(index, report): (usize, SimReport)| {
        let (trace, design) = (index / designs.len(), index % designs.len());
        Row {
            trace: budget.traces[trace].display().to_string(),
            checksum: checksums[trace].clone(),
            design: designs[design].0.clone(),
            policy: report.policy,
            inputs: inputs(&report, core),
            allocations: allocations[trace],
            figures: priced::figures(&Priced::new(report, None)),
        }
    };
    Ok(reports.into_iter().enumerate().map(row).collect())
}

/// The digest of the inputs that a row does not show: the program's assumptions, the kernel and the TLB.
fn inputs(report: &SimReport, core: Option<&'static Geometry>) -> Digest {
    let (touch, memory_policy) = (report.touch, report.memory_policy.rule);
    let core = core.map(|core| core.name);
    Digest::of(&json!({"touch": touch, "memory_policy": memory_policy, "kernel": report.kernel, "tlb": core}))
}

/// Checks, before the work starts, that limited TLB misses will be known.
fn check_misses(traces: &[Trace], core: Option<&'static Geometry>, designs: &[Named]) -> Result<()> {
    let limits_misses = |allowed: &Vec<Allowed>| allowed.iter().any(|allowed| allowed.metric == Metric::TlbMisses);
    let Some((name, _, _)) = designs.iter().find(|(_, _, allowed)| limits_misses(allowed)) else { return Ok(()) };
    if core.is_none() {
        bail!("design.{name}: tlb_misses: needs `tlb`, the core to model");
    }
    match traces.iter().find(|trace| trace.header.touch != TouchSource::FullStream) {
        Some(trace) => bail!(
            "{}: tlb_misses: the trace does not have every access of the program; record it with --accesses full",
            trace.name()
        ),
        None => Ok(()),
    }
}

/// Calls that allocate.
fn allocations(path: &Path) -> Result<u64> {
    let info = Info::of(&mut TraceReader::open(path)?)?;
    Ok(info.mallocs + info.callocs + info.reallocs + info.aligned_allocs)
}

fn table(result: &CheckedBudget, is_stored: bool) -> String {
    let mut lines = limits(&result.rows).lines();
    lines.push(String::new());
    lines.extend(result.rows.iter().filter_map(sentences::broken));
    let is_new = |checked: &CheckedRow| checked.differences.contains(&Difference::NotStored);
    if !is_stored && result.rows.iter().any(is_new) {
        lines.push("Some rows have no stored result to compare with; add --update to store this one.".into());
    }
    lines.push(format!("budget: {}", if result.is_within { "ok" } else { "broken" }));
    text(&lines)
}
