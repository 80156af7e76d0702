//! Whether glibc serves a trace better with one arena or two: `which_arena_max TRACE.hkt`.

use std::error::Error;
use std::process::ExitCode;

use hksim_choose::{Predictions, Replays, Request, TraceFile, choose, families};
use hksim_engine::TouchRule;
use hksim_explore::figures::Figure;
use hksim_explore::question::{Goal, Question, Tie, Weights};
use hksim_replay::compare::{Allocator, lookup};
use hksim_replay::{CHILD_ARGUMENT, HarnessMemory, Mode, child_main};
use hksim_timing::Effort;
use hksim_trial::Machine;

#[global_allocator]
static MEMORY: HarnessMemory = HarnessMemory;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let argument = std::env::args().nth(1).ok_or("give a trace")?;
    // Each replay is a child process of this program.
    if argument == CHILD_ARGUMENT {
        return Ok(child_main());
    }
    let question = Question { goal: Goal(Figure::Time), tie: Tie(0.01), weights: Weights::default() };
    let request = Request {
        question: &question,
        limits: &["rss+10%".parse()?],
        present: "glibc",
        families: &families(&["glibc:arena_max=1,2".to_string()])?,
        modes: &[],
        candidates_max: 10,
        effort: Effort { rounds_max: 11, ..Effort::default() },
    };
    let find = |word: &str| -> Result<Allocator, String> {
        let (name, settings) = word.split_once(':').unwrap_or((word, ""));
        let found = lookup(name, settings).map_err(|why| why.to_string())?;
        Ok(Allocator { name: word.to_string(), own: None, found })
    };
    let (machine, modes_refused) = Machine::with(&[], &());
    let touch = TouchRule::All;
    let traces = vec![TraceFile { path: argument.clone().into(), name: argument, weight: 1.0, touch }];
    let predictions = Predictions::default();
    let mut bench = Replays {
        traces,
        mode: Mode::Ordered,
        lookup: &find,
        machine,
        modes_refused,
        seed: 1,
        done: &|| (),
        predictions,
    };
    choose(&mut bench, &request)?.text.iter().for_each(|line| println!("{line}"));
    Ok(ExitCode::SUCCESS)
}
