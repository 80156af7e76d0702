//! `hksim check`: holds named designs to a budget, for CI.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use hksim_cost_model::Profile;
use hksim_explore::budget::{Budget, CheckedRow, Difference, Row};
use hksim_explore::held::{self, Named};
use hksim_explore::inputs::Trace;
use hksim_explore::sentences::budget as sentences;
use hksim_reports::tables::limits;
use hksim_results::Stamp;
use hksim_results::check::{CheckedBudget, limit_rows, stored, to_store};
use hksim_sim::report::version;
use hksim_trace::named_file;

use crate::flags::{HugeList, PolicyArgs, RunConfig};
use crate::inputs;
use crate::output::table::{Lines, text};
use crate::output::{OutputArgs, file};
use crate::question::parse_core;
use crate::runs::OnScreen;

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
    let stored = stored(&stored_path)?;
    let designs = designs(&budget, folder)?;
    let rows = simulate(&budget, folder, &designs)?;
    let checked = rows.into_iter().enumerate().map(|(index, row)| {
        let (_, _, allowed) = &designs[index % designs.len()];
        CheckedRow::of(row, allowed, stored.as_ref(), version())
    });
    let rows: Vec<CheckedRow> = checked.collect();
    let is_within = rows.iter().all(CheckedRow::is_within);
    if args.update {
        file::write(&stored_path, to_store(&rows).context("result as JSON")?.as_bytes())?;
    }
    let result = CheckedBudget { stamp: Stamp::here(), is_within, rows };
    args.output.emit(&result, &limit_rows(&result.rows), || table(&result, args.update))?;
    Ok(if is_within { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

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

/// Simulates every design on every trace. Rows are ordered by trace, then by design.
fn simulate(budget: &Budget, folder: &Path, designs: &[Named]) -> Result<Vec<Row>> {
    let core = budget.tlb.as_deref().map(parse_core).transpose();
    let core = core.map_err(|why| anyhow!("tlb = \"{}\": {why}", budget.tlb.as_deref().unwrap_or_default()))?;
    let paths: Vec<PathBuf> = budget.traces.iter().map(|trace| folder.join(trace)).collect();
    let traces = paths.iter().map(|path| inputs::file(path)).collect::<Result<Vec<Trace>>>()?;
    let profile = budget.profile.as_ref().map(|profile| Profile::read(&folder.join(profile))).transpose()?;
    Ok(held::rows(budget, traces, designs, (core, profile.as_ref()), &OnScreen)?)
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
