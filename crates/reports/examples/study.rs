//! Sweeps eight designs over a trace, validates the one with the fewest installs on this machine, and writes a report.
//!
//!     cargo run --release -p hksim-reports --example study -- TRACE.hkt FOLDER

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hksim_explore::flags::table::find;
use hksim_explore::flags::{BaseKernel, ModesFrom, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::priced::Priced;
use hksim_explore::question::{Asked, Tie, Weights};
use hksim_explore::runs::{setup, simulate_all};
use hksim_policy::Policy;
use hksim_reports::report::{Input, document};
use hksim_results::sweep::{Head, PricedSweep};
use hksim_results::validate::Validation;
use hksim_validate::validate;
use serde::Serialize;

// In the children of a replay, Rust's own allocations come from separate mappings.
#[global_allocator]
static MEMORY: hksim_replay::HarnessMemory = hksim_replay::HarnessMemory;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        // A replay runs in a child of this program.
        [word, ..] if word == hksim_replay::CHILD_ARGUMENT => hksim_replay::child_main(),
        [trace, folder] => match study(Path::new(trace), Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("study: {why}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("study: name a trace and a folder");
            ExitCode::FAILURE
        }
    }
}

/// Every combination of these words of flags.
fn designs() -> Result<Vec<RunConfig>, String> {
    let mut designs = vec![RunConfig::of(Policy::DEFAULT)];
    for (name, words) in [("superslab", ["1M", "2M"]), ("huge", ["never", "thp"]), ("purge", ["none", "dontneed"])] {
        let flag = find(name).ok_or_else(|| format!("{name}: no such flag"))?;
        let with = |design: &RunConfig, word| {
            let mut design = design.clone();
            flag.set(&mut design, word).map(|()| design)
        };
        designs = designs.iter().flat_map(|design| words.map(|word| with(design, word))).collect::<Result<_, _>>()?;
    }
    Ok(designs)
}

fn study(path: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let (trace, designs) = (Trace::file(path)?, designs()?);
    let setups = designs.iter().map(|design| setup(design, &trace, BaseKernel::AsItComes)).collect::<Result<_, _>>()?;
    let reports = simulate_all(&[(trace, setups)], &())?;
    let rows = reports.into_iter().map(|report| Priced::new(report, None)).collect();
    let question = Asked { goal: Some("installs".parse()?), tie: Tie::default(), weights: Weights::default() };
    let head = Head { rows_per_trace: designs.len(), question, modes: ModesFrom::of(&designs) };
    let sweep = PricedSweep::new(rows, &head)?;
    let best =
        sweep.answers.per_trace.first().and_then(|answer| answer.winner).ok_or("no design serves every request")?;
    println!("{} designs; {}", designs.len(), sweep.answers.per_trace[0].text.join(" "));

    let here = setup(&designs[best], &Trace::file(path)?, BaseKernel::Host)?;
    let validation = Validation::new(vec![validate(path, &path.display().to_string(), &here)?]);
    println!("validated: {}", validation.verdict.word());

    std::fs::create_dir_all(folder)?;
    let inputs = [written(folder.join("sweep.json"), &sweep)?, written(folder.join("validate.json"), &validation)?];
    std::fs::write(folder.join("report.html"), document(&inputs)?)?;
    Ok(())
}

/// Writes a result to a file, as the command does, and has it reported.
fn written(path: PathBuf, result: &impl Serialize) -> Result<Input, Box<dyn Error>> {
    let result = serde_json::to_value(result)?;
    std::fs::write(&path, serde_json::to_string_pretty(&result)? + "\n")?;
    Ok(Input { name: path.display().to_string(), result, written: None, command: None })
}
