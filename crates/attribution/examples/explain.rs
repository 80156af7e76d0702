//! Explains the page faults of a trace on a malloc library.
//!
//! Usage: `explain TRACE.hkt glibc|LIB.so`.

use std::process::ExitCode;

use hksim_attribution::{explain, sentences};
use hksim_engine::TouchRule;
use hksim_replay::{CHILD_ARGUMENT, HarnessMemory, HugePages, ReplaySpec, Target, child_main};

#[global_allocator]
static MEMORY: HarnessMemory = HarnessMemory;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD_ARGUMENT) {
        return child_main();
    }
    match arguments.as_slice() {
        [trace, library] => match perform(trace, library) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("error: {why}");
                ExitCode::from(2)
            }
        },
        _ => {
            eprintln!("usage: explain TRACE.hkt glibc|LIB.so");
            ExitCode::from(2)
        }
    }
}

fn perform(trace: &str, library: &str) -> Result<(), Box<dyn std::error::Error>> {
    let preload = if library == "glibc" { None } else { Some(std::fs::canonicalize(library)?) };
    let spec = ReplaySpec::ordered(trace, Target::Malloc { preload, variables: Vec::new() }, TouchRule::All);
    let explained = explain(&spec, HugePages::AsTheyAre)?;
    println!("{} installs, {} not seen", explained.breakdown.total, explained.faults_unseen());
    for (key, counts) in explained.breakdown.largest_causes() {
        println!("{}", sentences::cause(&explained, key, counts));
    }
    Ok(())
}
