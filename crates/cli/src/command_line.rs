//! The arguments that made a result, as the result states them: `command`.
//!
//! Arguments about the output are left out, and a policy file is replaced by its flags, so that the command gives the
//! same figures wherever its inputs are.

use std::sync::OnceLock;

use anyhow::{Context, Result};
use clap::{ArgAction, ArgMatches, FromArgMatches};
use serde_json::Value;

use crate::flags::{HugeList, PolicyArgs, argv};

/// Commands whose results state their arguments.
const STATED: [&str; 6] = ["sim", "sweep", "explain", "validate", "advise", "check"];

/// Arguments without influence on the figures.
const ABOUT_OUTPUT: [&str; 15] = [
    "columns",
    "format",
    "output",
    "quiet",
    "verbose",
    "wide",
    "plot",
    "jobs",
    "shard",
    "resume",
    "dump_pages",
    "at",
    "folded",
    "pprof",
    "update",
];

/// Arguments that name files to read.
const FILES: [&str; 6] = ["trace", "traces", "budget", "profile", "fit", "policy"];

/// An argument, as the words of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Whether its last word names a file to read.
    pub is_file: bool,
    pub words: Vec<String>,
}

/// What becomes of policy files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyFiles {
    /// They are read and replaced by their flags, as a result states them.
    Replaced,
    /// They stay and are not read: the words come from a file.
    Kept,
}

/// The whole program's arguments. `main` sets it, because they contain those of every command.
static PROGRAM: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Names the whole program's arguments. Only the first call has an effect.
pub fn define(program: fn() -> clap::Command) {
    let _ = PROGRAM.set(program);
}

/// The whole program's arguments; those of no command before [`define`].
pub fn program() -> clap::Command {
    PROGRAM.get().map_or_else(|| clap::Command::new("hksim"), |program| program())
}

/// The words that results state for these matches of the whole program; none for other commands.
pub fn words_of(matches: &ArgMatches) -> Vec<String> {
    let stated = stated_by(matches, PolicyFiles::Replaced);
    stated.map(|(name, arguments)| words(name, &arguments)).unwrap_or_default()
}

fn words(name: &str, arguments: &[Argument]) -> Vec<String> {
    std::iter::once(name)
        .chain(arguments.iter().flat_map(|argument| argument.words.iter().map(String::as_str)))
        .map(str::to_string)
        .collect()
}

/// The command and the arguments that results state; `None` for other commands.
fn stated_by(matches: &ArgMatches, files: PolicyFiles) -> Option<(&str, Vec<Argument>)> {
    let (name, arguments) = matches.subcommand().filter(|(name, _)| STATED.contains(name))?;
    Some((name, arguments_of(name, arguments, files)))
}

/// Reads stated words back. No file that they name is read.
///
/// # Errors
/// They are not what a result states: another command, an argument about the output, or a policy file within a word.
pub fn parsed(words: &[String]) -> Result<Vec<Argument>> {
    let line = std::iter::once("hksim".to_string()).chain(words.iter().cloned());
    let line = argv::join_optional_values(line.map(Into::into));
    let matches = program().try_get_matches_from(line);
    let names_policy_file = |matches: &ArgMatches| {
        let against =
            matches.subcommand().and_then(|(_, given)| given.try_get_one::<String>("against").ok().flatten().cloned());
        against.is_some_and(|word| PolicyArgs::of_word(&word).is_ok_and(|policy| policy.file().is_some()))
    };
    let matches = matches.ok().filter(|matches| !names_policy_file(matches));
    let stated = matches.as_ref().and_then(|matches| stated_by(matches, PolicyFiles::Kept));
    let stated = stated.filter(|(name, arguments)| self::words(name, arguments) == words);
    let (_, arguments) =
        stated.with_context(|| format!("`command` is not one that this hksim writes: {}", words.join(" ")))?;
    Ok(arguments)
}

/// The arguments that a result states.
pub fn stated(result: &Value) -> Option<Vec<String>> {
    let words = result.get("command")?.as_array()?;
    words.iter().map(|word| word.as_str().map(str::to_string)).collect()
}

/// The arguments: first those without a flag, then flags in their order on the command line.
fn arguments_of(name: &str, matches: &ArgMatches, files: PolicyFiles) -> Vec<Argument> {
    let program = program();
    let Some(command) = program.find_subcommand(name) else { return Vec::new() };
    let policy = (files == PolicyFiles::Replaced).then(|| resolved_policy(name, matches)).flatten();
    let is_given = |id: &str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    let mut given: Vec<&clap::Arg> = command
        .get_arguments()
        .filter(|argument| is_given(argument.get_id().as_str()))
        .filter(|argument| !ABOUT_OUTPUT.contains(&argument.get_id().as_str()))
        .filter(|argument| policy.is_none() || !PolicyArgs::has(argument.get_id().as_str()))
        .collect();
    given.sort_by_key(|argument| (!argument.is_positional(), matches.index_of(argument.get_id().as_str())));
    let given = given.into_iter().flat_map(|argument| of_argument(argument, matches));
    let flags = policy.into_iter().flatten().map(|(flag, value)| flag_with(&flag, &value, false));
    given.chain(flags).collect()
}

/// The policy flags that give the designs of a policy file; `None` without a file, or if no flags give them.
fn resolved_policy(name: &str, matches: &ArgMatches) -> Option<Vec<(String, String)>> {
    if !matches!(matches.try_contains_id("policy"), Ok(true)) {
        return None;
    }
    let huge = if matches!(name, "sweep" | "validate" | "advise") { HugeList::All } else { HugeList::Thp };
    PolicyArgs::from_arg_matches(matches).ok()?.without_file(huge)
}

/// An argument as often as it was given.
fn of_argument(argument: &clap::Arg, matches: &ArgMatches) -> Vec<Argument> {
    let id = argument.get_id().as_str();
    let is_file = FILES.contains(&id);
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        return vec![Argument { is_file, words: vec![format!("--{}", argument.get_long().unwrap_or(id))] }];
    }
    let occurrences = matches.get_raw_occurrences(id).into_iter().flatten();
    let values = occurrences.map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>());
    if argument.is_last_set() {
        let words = std::iter::once("--".to_string()).chain(values.flatten());
        return vec![Argument { is_file, words: words.collect() }];
    }
    if argument.is_positional() {
        return values.flatten().map(|word| Argument { is_file, words: vec![word] }).collect();
    }
    let separator = argument.get_value_delimiter().map(String::from).unwrap_or_default();
    let flag = argument.get_long().unwrap_or(id);
    values
        .map(|values| match (id, values.join(&separator)) {
            ("against", policy) => flag_with(flag, &PolicyArgs::word_without_file(&policy).unwrap_or(policy), false),
            (_, value) if value.is_empty() && argument.is_require_equals_set() => {
                Argument { is_file, words: vec![format!("--{flag}")] }
            }
            (_, value) if argument.is_require_equals_set() || value.starts_with('-') => {
                Argument { is_file, words: vec![format!("--{flag}={value}")] }
            }
            (_, value) => flag_with(flag, &value, is_file),
        })
        .collect()
}

fn flag_with(flag: &str, value: &str, is_file: bool) -> Argument {
    // clap takes the value of these flags only after `=`.
    let words = match flag {
        "huge" => vec![format!("--{flag}={value}")],
        _ => vec![format!("--{flag}"), value.to_string()],
    };
    Argument { is_file, words }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn stated_line(line: &str) -> String {
        define(Cli::command);
        let words = argv::join_optional_values(line.split(' ').map(Into::into));
        words_of(&Cli::command().try_get_matches_from(words).expect("a command line")).join(" ")
    }

    #[test]
    fn words_about_the_output_are_left_out_and_others_keep_their_meaning() {
        for (line, expected) in [
            ("hksim sim --huge thp -q a.hkt --format json -o r.json", "sim a.hkt --huge=thp"),
            (
                "hksim sweep a.hkt b.hkt --slab 64K,128K --huge --jobs 2 --plot",
                "sweep a.hkt b.hkt --slab 64K,128K --huge",
            ),
            (
                "hksim sim a.hkt --fork-at 100,save --fork-for 2ms --tlb zen4",
                "sim a.hkt --fork-at 100,save --fork-for 2ms --tlb zen4",
            ),
            ("hksim explain a.hkt --causes 1 --against hakmem --folded x", "explain a.hkt --causes 1 --against hakmem"),
            ("hksim advise a.hkt --limit rss+10% --limit vmas+0%", "advise a.hkt --limit rss+10% --limit vmas+0%"),
            ("hksim sweep --shard 1/2 --huge never,thp a.hkt", "sweep a.hkt --huge=never,thp"),
            ("hksim check b.toml --update", "check b.toml"),
            ("hksim info a.hkt", ""),
        ] {
            let words = stated_line(line);
            assert_eq!(words, expected);
            if !words.is_empty() {
                let again: Vec<String> = words.split(' ').map(str::to_string).collect();
                assert!(parsed(&again).is_ok(), "{words}");
            }
        }
    }

    #[test]
    fn what_no_result_states_is_refused() {
        define(Cli::command);
        for line in ["run -- rm x", "sim a.hkt -o other.hkt", "sim", "sim a.hkt --tlb none", "explain a.hkt --folded x"]
        {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            assert!(parsed(&words).is_err(), "{line}");
        }
    }
}
