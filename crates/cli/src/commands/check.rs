//! `hksim check`: holds designs, allocators and recorded programs to a budget, for CI.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use hksim_budget::annotations::Service;
use hksim_budget::budget::{Budget, Section, Words};
use hksim_budget::checked::{Baseline, CheckedRow};
use hksim_budget::library::Libraries;
use hksim_budget::run::{Design, Machine, Named, Rows, rows};
use hksim_budget::setting;
use hksim_cost_model::Profile;
use hksim_designs::DesignWords;
use hksim_replay::compare::{Allocator, in_folder};
use hksim_reports::tables::checked as text;
use hksim_results::Stamp;
use hksim_results::check::{CheckedBudget, limit_rows, stored, to_store};
use hksim_sim::report::version;
use hksim_trace::named_file;

use crate::allocators;
use crate::flags::{HugeList, PolicyArgs, RunConfig};
use crate::output::{OutputArgs, file, print_beside_program, screen, warn};
use crate::question::parse_core;
use crate::runs::OnScreen;

/// Exit status if a limit is broken.
const BROKEN: u8 = 1;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim check budget.toml\n  hksim check budget.toml --update\n  hksim check budget.toml --annotate github"
)]
pub struct Args {
    /// Check this budget (docs/how-to/budget.md)
    #[arg(value_name = "BUDGET.toml")]
    budget: PathBuf,
    /// Write the stored result that the budget names
    #[arg(long)]
    update: bool,
    /// Also print what broke on standard error, as annotations of this service: github
    #[arg(long, value_name = "SERVICE", value_parser = parse_service)]
    annotate: Option<Service>,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_service(word: &str) -> Result<Service, String> {
    let known = Service::ALL.into_iter().find(|service| service.word() == word);
    known.ok_or_else(|| format!("services are {}", Service::ALL.map(Service::word).join(", ")))
}

/// Checks a budget. The exit status is 1 if a limit is broken.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[Some(&args.budget)])?;
    let name = args.budget.display().to_string();
    let budget_text = named_file::read_text(&args.budget).with_context(|| format!("{name}: cannot read the budget"))?;
    let budget = Budget::parse(&budget_text).with_context(|| name.clone())?;
    let folder = args.budget.parent().unwrap_or(Path::new(""));
    let stored_path = folder.join(&budget.result);
    args.output.check(&[], &[Some(&args.budget), Some(&stored_path)])?;
    let stored = stored(&stored_path)?;
    let designs = budget.design.iter().map(|(name, section)| design(name, section, folder));
    let designs = designs.collect::<Result<Vec<Design>>>()?;
    let core = budget.tlb.as_deref().map(parse_core).transpose();
    let core = core.map_err(|why| anyhow!("tlb = \"{}\": {why}", budget.tlb.as_deref().unwrap_or_default()))?;
    let profile = budget.profile.as_ref().map(|profile| Profile::read(&folder.join(profile))).transpose()?;
    let machine = Machine { core, profile: profile.as_ref() };
    let Rows { rows, consumers } = rows(&budget, folder, &designs, machine, &OnScreen)?;
    let baseline =
        Baseline { stored: stored.as_ref(), is_replaced: args.update, consumers: &consumers, version: version() };
    let checked = rows.into_iter().zip(designs.iter().cycle());
    let mut rows: Vec<CheckedRow> =
        checked.map(|(row, design)| CheckedRow::of(row, &design.limits, &baseline)).collect();
    let is_within = rows.iter().all(CheckedRow::is_within);
    let libraries = Libraries { folder, designs: &designs };
    if let Some(stored) = &stored {
        libraries.add_growth(&mut rows, stored)?;
    }
    if args.update {
        let installs = libraries.installs(&rows)?;
        file::write(&stored_path, to_store(&rows, consumers, installs).context("result as JSON")?.as_bytes())?;
    }
    let annotations = args.annotate.iter().flat_map(|service| service.annotations(&name, &budget_text, &rows));
    annotations.for_each(|line| print_beside_program(&line));
    let result = CheckedBudget { stamp: Stamp::here(), is_within, rows };
    args.output.emit(&result, &limit_rows(&result.rows), || text(&result.rows, args.update, screen::columns()))?;
    Ok(if is_within { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

/// Looks up what a section of the budget names.
fn design(name: &str, section: &Section, folder: &Path) -> Result<Design> {
    let named = match section.words(name)? {
        Words::Policy(word) => {
            let config = PolicyArgs::of_word(word).and_then(|policy| policy.in_folder(folder).configs(HugeList::Thp));
            let config = config.with_context(|| format!("design.{name}: policy = \"{word}\""))?;
            match <[RunConfig; 1]>::try_from(config) {
                Ok([config]) => Named::Policy(Box::new(config)),
                Err(_) => bail!("design.{name}: policy = \"{word}\": a list; name one design each"),
            }
        }
        Words::Design(word) => {
            let label = DesignWords::of_word(word).and_then(|words| words.label(&warn));
            Named::Design(Box::new(label.with_context(|| format!("design.{name}: design = \"{word}\""))?))
        }
        Words::On(word) => {
            let found = allocators::named("on", &in_folder(folder, word)).with_context(|| format!("design.{name}"))?;
            Named::Allocator(Box::new(Allocator { name: word.to_string(), ..found }))
        }
        Words::Setting(words) => Named::Setting(Box::new(setting::of_words(name, words)?), words.to_string()),
    };
    Ok(Design { name: name.to_string(), named, limits: section.limits(name)? })
}
