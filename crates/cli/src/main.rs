//! The `hksim` command.
//!
//! - [`commands`]: one file a command; [`flags`]: from words to designs; [`inputs`]: traces.
//! - [`mod@validate`]: where prediction meets replay; [`mod@shrink`]: the search for a smaller trace.
//! - [`point`]: places in a trace; [`system_time`]: counts into seconds;
//! - [`output`]: tables, JSON, CSV, files; [`chart`]: pictures; [`host`]: this machine's kernel.

mod chart;
mod commands;
mod flags;
mod forks;
mod host;
mod inputs;
mod output;
mod point;
mod runs;
mod shrink;
mod symbols;
mod system_time;
mod validate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use hksim_record::RecordError;

use commands::Command;

/// In the children of a replay, mappings of their own: the `malloc` that is measured holds the trace's blocks alone.
#[global_allocator]
static MEMORY: hksim_replay::HarnessMemory = hksim_replay::HarnessMemory;

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;

/// Simulate allocator designs on allocation traces, and check the predictions on this machine.
#[derive(Debug, Parser)]
#[command(name = "hksim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    match words.get(1).and_then(|word| word.to_str()) {
        Some(hksim_replay::CHILD_ARGUMENT) => return hksim_replay::child_main(),
        Some(hksim_conformance::CHILD_ARGUMENT) => return hksim_conformance::child_main(),
        Some(hksim_conformance::GUARD_ARGUMENT) => return hksim_conformance::guard_main(),
        _ => {}
    }
    hksim_linux_probe::file_size::ignore_sigxfsz();
    match Cli::try_parse_from(flags::argv::join_optional_values(words)) {
        Ok(cli) => cli.command.run().unwrap_or_else(|why| failed(&why)),
        Err(why) => usage(&why),
    }
}

/// Says what went wrong. Where that is a signal, it ends the process, so that a shell that waits knows.
fn failed(why: &anyhow::Error) -> ExitCode {
    output::note(&told(why));
    if let Some(signal) = why.downcast_ref().and_then(RecordError::signal) {
        // SAFETY: no memory is touched; its handler is as it was before the recording.
        unsafe { libc::raise(signal) };
    }
    ExitCode::from(BAD_INPUT)
}

/// Help goes to standard output as it is; everything else is one line with the mend.
fn usage(why: &clap::Error) -> ExitCode {
    let text = why.to_string();
    if matches!(why.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match output::print(&output::help::fitted(&text)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(BAD_INPUT),
        };
    }
    if why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::note("no command; see `hksim --help`");
        return ExitCode::from(BAD_INPUT);
    }
    output::note(&one_line(&text));
    ExitCode::from(BAD_INPUT)
}

/// The error with its causes, each said once: several name their cause themselves.
fn told(why: &anyhow::Error) -> String {
    why.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        before if before.contains(&cause) => told,
        before => format!("{before}: {cause}"),
    })
}

/// The error and its tip; the usage behind them is what `--help` shows.
fn one_line(text: &str) -> String {
    let told = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let told = told.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let told: Vec<&str> = told.map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect();
    format!("{}; see `--help`", told.join("; ").replace(":; ", ": "))
}
