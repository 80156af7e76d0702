//! Whether a program is faster with the C library's allocator of one arena: `two_allocators PROGRAM ARGUMENT...`.

use std::error::Error;
use std::process::ExitCode;

use hksim_replay::compare::{Allocator, lookup};
use hksim_timing::Effort;
use hksim_trial::{KEEPER_ARGUMENT, Plan, Program, keeper_main, trial};
use hksim_validate::memory::{Stop, Supervision};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1).peekable();
    // Each run of the program has this program as its keeper.
    if words.peek().is_some_and(|word| word == KEEPER_ARGUMENT) {
        return Ok(keeper_main());
    }
    let program = Program { words: words.collect(), input: None };
    let one_arena = Allocator { name: "glibc:arena_max=1".into(), own: None, found: lookup("glibc", "arena_max=1")? };
    let supervision = Supervision { load: None, ready: None, stop: Stop::default(), time_limit: None };
    let effort = Effort { rounds_max: 11, ..Effort::default() };
    let plan = Plan { thp: &[], effort, seed: 1, supervision: &supervision, listener: &() };
    for row in trial(&program, &[one_arena], &plan, &|| ())?.rows {
        println!("{}: {:?} s, ratio {:?}", row.allocator, row.cpu_s, row.ratio_to_first);
    }
    Ok(ExitCode::SUCCESS)
}
