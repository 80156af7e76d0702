//! The commands, one file each.

mod advise;
mod bundle;
mod calibrate;
pub mod check;
mod compare;
mod explain;
mod export;
mod generate;
mod import;
pub mod info;
mod inspect;
mod mark;
mod merge;
mod plot;
mod record;
mod repeat;
mod replay;
mod report;
mod rules;
mod run;
mod shell;
pub mod sim;
mod sweep;
mod trace;
mod trial;
pub mod validate;

use std::process::ExitCode;

use anyhow::Result;

/// A command with its arguments.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Record a program's allocator calls, or its page operations
    Record(record::Args),
    /// Mark a moment of a running recording or trial, or pause and restart a recording
    Mark(mark::Args),
    /// Convert another tool's trace to a .hkt trace
    Import(import::Args),
    /// Write a .hkt trace in another format
    Export(export::Args),
    /// Generate a trace of a synthetic workload
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  hksim gen random-mixed --cycles 100k --ws 4k -o rm.hkt
  hksim gen server --live 64M --threads 8 -o server.hkt"
    )]
    Gen(generate::Generator),
    /// Summarise a trace or a memory recording
    Info(info::Args),
    /// Show the memory of a running process, and why it is not in huge pages
    Inspect(inspect::Args),
    /// Edit, merge, shrink and check traces
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  hksim trace cut app.hkt --from 2s --to 5s -o part.hkt
  hksim trace verify app.hkt"
    )]
    Trace(trace::Tool),
    /// Predict page faults and memory of one design on a trace
    Sim(sim::Args),
    /// Explain where a design's page faults come from, and what removes them
    Explain(explain::Args),
    /// Predict many designs side by side
    Sweep(sweep::Args),
    /// Hold designs, allocators and recorded programs to a budget, for CI
    Check(check::Args),
    /// Put the shards of a sweep together
    Merge(merge::Args),
    /// Choose a design for traces, within limits
    Advise(advise::Args),
    /// Replay a trace on a real allocator and measure it
    Replay(replay::Args),
    /// Replay a trace on several allocators and compare them
    Compare(compare::Args),
    /// Replay a trace on the native allocator and check the prediction
    Validate(validate::Args),
    /// Check the kernel model against the running kernel
    Rules(rules::Args),
    /// Time page operations on this machine for --profile
    Calibrate(calibrate::Args),
    /// Run a program on the native allocator
    Run(run::Args),
    /// Run a program under several allocators and huge-page modes, and compare them
    Trial(trial::Args),
    /// Write results as one HTML file, with figures
    Report(report::Args),
    /// Draw a figure of a result
    Plot(plot::Args),
    /// Write results, with everything that repeats them, into a folder
    Bundle(bundle::Args),
    /// Make the results of a bundle again, and compare them
    Repeat(repeat::Args),
    /// Print the completions of a shell
    Completions(shell::CompletionsArgs),
    /// Print or write man pages
    Man(shell::ManArgs),
}

impl Command {
    /// Runs the command. The exit code is 1 if a check failed.
    ///
    /// # Errors
    /// Bad usage or input: exit code 2.
    pub fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self {
            Command::Record(args) => record::run(&args).map(done),
            Command::Mark(args) => mark::run(&args).map(done),
            Command::Import(args) => import::run(&args).map(done),
            Command::Export(args) => export::run(&args).map(done),
            Command::Gen(generator) => generate::run(&generator).map(done),
            Command::Info(args) => info::run(&args).map(done),
            Command::Inspect(args) => inspect::run(&args).map(done),
            Command::Trace(tool) => tool.run(),
            Command::Sim(args) => sim::run(&args).map(done),
            Command::Explain(args) => explain::run(&args).map(done),
            Command::Sweep(args) => sweep::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Merge(args) => merge::run(&args).map(done),
            Command::Advise(args) => advise::run(&args),
            Command::Replay(args) => replay::run(&args).map(done),
            Command::Compare(args) => compare::run(&args),
            Command::Validate(args) => validate::run(&args),
            Command::Rules(args) => rules::run(&args),
            Command::Calibrate(args) => calibrate::run(&args).map(done),
            Command::Run(args) => run::run(&args).map(done),
            Command::Trial(args) => trial::run(&args),
            Command::Report(args) => report::run(&args).map(done),
            Command::Plot(args) => plot::run(&args).map(done),
            Command::Bundle(args) => bundle::run(&args).map(done),
            Command::Repeat(args) => repeat::run(&args),
            Command::Completions(args) => shell::completions(&args).map(done),
            Command::Man(args) => shell::man(&args).map(done),
        }
    }
}
