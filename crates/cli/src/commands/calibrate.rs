//! `hksim calibrate`: times page operations on this machine, and keeps the profile for the commands that print time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use hksim_cost_model::measure::{Effort, measure};
use hksim_cost_model::{CodeCosts, Cost, Profile};
use hksim_results::Stamp;
use hksim_timing::TOLD_SHARE;
use hksim_validate::call_time::code_costs::{code_costs, designs};
use serde::Serialize;

use crate::allocators;
use crate::flags::between::between;
use crate::output::table::{Lines, Table, text};
use crate::output::{Format, file, note, print, render, warn};
use crate::system_time::store;

/// Arguments of `calibrate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim calibrate\n  hksim calibrate --thorough -o machine.toml")]
pub struct Args {
    /// Write the profile to this file, for --profile, instead of keeping it for this machine, kernel and build
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// Take 45 seconds for smaller errors, and rest until the host of a virtual machine has taken back free memory
    #[arg(long)]
    thorough: bool,
    /// Run at most this many rounds; each times every operation once
    #[arg(long, value_name = "N", default_value = "60", value_parser = between(1u32, 10_000))]
    rounds: u32,
    /// End the rounds after this many seconds [default: 10, or 45 with --thorough]
    #[arg(long, value_name = "S", value_parser = between(1u64, 3600))]
    seconds: Option<u64>,
    /// Print the table on standard output in this format
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Times to rest, one after the other, until the host has taken back memory. It did so after 2 to 5 s.
const RESTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];

/// The profile with the stamp of every JSON result.
#[derive(Serialize)]
struct CalibrationReport<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde(flatten)]
    profile: &'a Profile,
}

/// A row of the table.
#[derive(Debug, Serialize)]
struct Line {
    operation: String,
    low_ns: f64,
    median_ns: f64,
    high_ns: f64,
    rounds: u32,
}

/// Measures the operations and writes the profile.
///
/// # Errors
/// Memory cannot be mapped, or the profile cannot be written.
pub fn run(args: &Args) -> Result<()> {
    args.output.as_deref().map_or(Ok(()), file::check)?;
    let (seconds, rests) = if args.thorough { (45, &RESTS[..]) } else { (10, &[][..]) };
    let time_max = Duration::from_secs(args.seconds.unwrap_or(seconds));
    let mut profile = measure(Effort { rounds: args.rounds, time_max, rests })?;
    let rounds = args.rounds.min(if args.thorough { 15 } else { 7 });
    match code_costs_here(&profile, rounds) {
        Ok(code) => profile.code = Some(code),
        Err(why) => warn(&format!("the time of the allocator's instructions is that of another processor: {why:#}")),
    }
    match &args.output {
        Some(path) => {
            file::write(path, profile.text().as_bytes())?;
            note(&format!("wrote {}", path.display()));
        }
        None => keep(&profile)?,
    }
    if profile.kernel_share.is_none() {
        warn(
            "sampling processor time is not permitted, so all of it counts as kernel time and `validate` will judge no time \
             by this profile; calibrate as root, or set kernel.perf_event_paranoid to 1 or less",
        );
    }
    let line = |(operation, cost): (&hksim_cost_model::Operation, &hksim_cost_model::Cost)| Line {
        operation: operation.word(),
        low_ns: cost.low_ns,
        median_ns: cost.median_ns,
        high_ns: cost.high_ns,
        rounds: cost.rounds,
    };
    let lines: Vec<Line> = profile.costs.iter().map(line).collect();
    let report = CalibrationReport { stamp: Stamp::here(), profile: &profile };
    print(&render(args.format, &report, &lines, || table(&profile, &lines))?)
}

/// The time of the allocator's code, by replays on it.
fn code_costs_here(profile: &Profile, rounds: u32) -> Result<CodeCosts> {
    let as_programs_have_it = |policy| allocators::as_programs_have_it(allocators::native("native", policy)?);
    let found = designs().into_iter().map(as_programs_have_it).collect::<Result<Vec<_>>>()?;
    Ok(code_costs(&found, profile, rounds)?)
}

/// Keeps the profile for the commands that print time.
fn keep(profile: &Profile) -> Result<()> {
    let Some(store) = store() else {
        warn("the profile is not kept, because there is no cache folder: set XDG_CACHE_HOME or HOME, or use -o FILE");
        return Ok(());
    };
    let place = store.path().display();
    store.write(profile).with_context(|| format!("{place}: cannot keep the profile"))?;
    note(&format!("kept for this machine, kernel and build: sim, sweep, validate and advise use it ({place})"));
    Ok(())
}

fn table(profile: &Profile, lines: &[Line]) -> String {
    let ratio_to = lines.iter().find(|line| line.operation == "write_fault").map_or(1.0, |line| line.median_ns);
    let mut table = Table::new(["operation", "low ns", "median ns", "high ns", "high/low", "write faults"], &[0]);
    for line in lines {
        let spread = if line.low_ns > 0.0 { format!("{:.2}", line.high_ns / line.low_ns) } else { "-".into() };
        let [low, median, high] = [line.low_ns, line.median_ns, line.high_ns].map(|ns| format!("{ns:.0}"));
        table.push([line.operation.clone(), low, median, high, spread, format!("{:.2}", line.median_ns / ratio_to)]);
    }
    let mut all = vec![format!(
        "{}, {} processors, Linux {}; {} rounds in {:.1} s",
        profile.machine,
        profile.processors,
        profile.kernel,
        profile.rounds_min(),
        profile.elapsed_s
    )];
    all.push(String::new());
    all.extend(table.lines());
    all.push(String::new());
    all.push("per 4K page, 2M huge page, or call; low and high are the quartiles of the rounds".into());
    all.extend(profile.code.iter().map(|CodeCosts { instruction, call }| {
        let ns = |cost: &Cost| format!("{:.3} ns ({:.3} to {:.3})", cost.median_ns, cost.low_ns, cost.high_ns);
        format!("an instruction of the allocator takes {}, and a call besides {}", ns(instruction), ns(call))
    }));
    all.extend(profile.core.filter(|core| core.shared_share >= TOLD_SHARE).map(|core| {
        format!(
            "other work shared the processor's core in {:.0} % of the looks; code and short accesses to memory were timed in its \
             pauses, if there were any, page operations beside it: their costs are too high against those of code",
            core.shared_share * 100.0
        )
    }));
    all.extend(
        profile.skipped.iter().map(|skipped| format!("skipped: {}: {}", skipped.operation.word(), skipped.reason)),
    );
    text(&all)
}
