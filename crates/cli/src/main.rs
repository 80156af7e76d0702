//! The `hksim` command.
//!
//! It has the flags, text views, files and the terminal; what it prints is computed by libraries.
//!
//! - [`commands`]: one file per command; [`memory`]: what they do with memory recordings.
//! - [`flags`]: parses policy flags; [`mod@question`], [`forks`], [`system_time`]: other flags of several commands.
//! - [`inputs`], [`runs`], [`host`]: traces, simulations and this machine's kernel, with notes; [`mod@read_result`]: results.
//! - [`command_line`]: the arguments that made a result; [`repeat_command`]: the command that makes it again.
//! - [`output`]: tables, JSON, CSV, files; [`pictures`], [`stack_files`]: charts and flame graphs as files;
//!   [`bundle`]: results as a folder; [`mod@allocators`]: allocators by name;
//!   [`replays`]: replays on them.
//!
//! Modules use those of their own layer and of lower ones; `crates/testkit/tests/project/command_files.rs` lists the
//! layers.

mod allocators;
mod bundle;
mod command_line;
mod commands;
mod flags;
mod forks;
mod host;
mod inputs;
mod memory;
mod output;
mod pictures;
mod question;
mod read_result;
mod repeat_command;
mod replays;
mod runs;
mod stack_files;
mod system_time;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use hksim_record::RecordError;
use hksim_text::nearest;

use commands::Command;

/// In the children of a replay, Rust allocations come from separate mappings, so that the measured `malloc` holds only
/// the trace's blocks.
#[global_allocator]
static MEMORY: hksim_replay::HarnessMemory = hksim_replay::HarnessMemory;

/// The version that results state, with the commit of the sources: `0.2.0+COMMIT` (`build.rs`).
const VERSION: &str = env!("HKSIM_VERSION");

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;

/// Simulate allocator designs on allocation traces, and check the predictions on this machine
#[derive(Debug, Parser)]
#[command(
    name = "hksim",
    version = VERSION,
    after_long_help = "\
Examples:
  hksim record -o app.hkt ./app
  hksim sim app.hkt --huge never
  hksim explain app.hkt --huge never
  hksim sweep app.hkt --huge never,thp --superslab 1M,2M
  hksim validate app.hkt"
)]
struct Cli {
    #[command(flatten)]
    screen: output::screen::ScreenArgs,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    match words.get(1).and_then(|word| word.to_str()) {
        Some(hksim_replay::CHILD_ARGUMENT) => {
            return hksim_replay::child_main_with(&hksim_validate::known_designs());
        }
        Some(hksim_trial::KEEPER_ARGUMENT) => return hksim_trial::keeper_main(),
        Some(hksim_conformance::CHILD_ARGUMENT) => return hksim_conformance::child_main(),
        Some(hksim_conformance::GUARD_ARGUMENT) => return hksim_conformance::guard_main(),
        _ => {}
    }
    hksim_sim::report::set_version(VERSION);
    hksim_linux_probe::file_size::ignore_sigxfsz();
    command_line::define(Cli::command);
    let matches = Cli::command().try_get_matches_from(flags::argv::join_optional_values(words));
    match matches.and_then(parsed) {
        Ok((cli, words)) => {
            cli.screen.apply();
            output::stated::set(words);
            let code = cli.command.run().unwrap_or_else(|why| failed(&why));
            output::screen::report_cost();
            code
        }
        Err(why) => usage(&why),
    }
}

/// The command, and the words that its result states.
fn parsed(matches: ArgMatches) -> Result<(Cli, Vec<String>), clap::Error> {
    let cli = Cli::from_arg_matches(&matches).map_err(|why| why.format(&mut Cli::command()))?;
    Ok((cli, command_line::words_of(&matches)))
}

/// Prints the error. If the cause is a signal, raises it, so that a waiting shell sees it.
fn failed(why: &anyhow::Error) -> ExitCode {
    output::error(&message(why));
    if let Some(signal) = why.downcast_ref().and_then(RecordError::signal) {
        // SAFETY: `raise` accesses no memory of ours; the signal's handler is the one from before the recording.
        unsafe { libc::raise(signal) };
    }
    ExitCode::from(BAD_INPUT)
}

/// Prints help on standard output; any other usage error becomes one line with a suggestion.
fn usage(why: &clap::Error) -> ExitCode {
    let text = why.to_string();
    if matches!(why.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match output::print(&output::help::fitted(&text)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(BAD_INPUT),
        };
    }
    if why.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::error("no command; see `hksim --help`");
        return ExitCode::from(BAD_INPUT);
    }
    output::error(&(one_line(&text, &meant(why))));
    ExitCode::from(BAD_INPUT)
}

/// The error with its causes. A cause that the message already contains is not repeated.
fn message(why: &anyhow::Error) -> String {
    why.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        before if before.contains(&cause) => text,
        before => format!("{before}: {cause}"),
    })
}

/// Asks whether a word was meant, for the value of a list in which clap finds nothing similar.
fn meant(why: &clap::Error) -> String {
    match (why.get(ContextKind::InvalidValue), why.get(ContextKind::ValidValue)) {
        (Some(ContextValue::String(word)), Some(ContextValue::Strings(known)))
            if why.get(ContextKind::SuggestedValue).is_none() =>
        {
            nearest::question(word, known.iter().map(String::as_str))
        }
        _ => String::new(),
    }
}

/// The error and its tip, without the usage that clap appends.
fn one_line(text: &str, question: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect();
    format!("{}{question}; see `--help`", lines.join("; ").replace(":; ", ": "))
}
