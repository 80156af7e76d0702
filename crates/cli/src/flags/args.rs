//! Policy flags as clap arguments, and the run configurations they span.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hksim_explore::flags::table::{FLAGS, Flag, Subject};
use hksim_explore::flags::{BaseKernel, RunConfig, range};
pub use hksim_results::policy_words::HugeList;
use hksim_results::policy_words::PolicyWords;

use crate::host;
use crate::output::warn;

/// The flag whose value can be left out.
const HUGE: &str = "huge";

/// Flags that `-h` lists; `--help` lists all.
const IN_SHORT_HELP: [&str; 5] = ["superslab", "slab", "huge", "purge", "touch"];

/// Maximum number of characters of the values in `-h`.
const SHORT_VALUES: usize = 30;

/// Policy flags as given on the command line. Notes about their words are printed.
#[derive(Clone, Debug, Default)]
pub struct PolicyArgs(PolicyWords);

impl Deref for PolicyArgs {
    type Target = PolicyWords;

    fn deref(&self) -> &PolicyWords {
        &self.0
    }
}

impl PolicyArgs {
    /// Parses a policy written as one word, as [`PolicyWords::of_word`] does.
    ///
    /// # Errors
    /// The word names a flag that is not a policy flag.
    pub fn of_word(word: &str) -> Result<PolicyArgs> {
        Ok(PolicyArgs(PolicyWords::of_word(word)?))
    }

    /// The same, with a policy file that is relative to this folder.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> PolicyArgs {
        PolicyArgs(self.0.in_folder(folder))
    }

    /// Whether an argument is one of these.
    pub fn has(name: &str) -> bool {
        PolicyWords::has(name)
    }

    /// The same policy in one word without its policy file; `None` if it names none.
    pub fn word_without_file(word: &str) -> Option<String> {
        PolicyWords::word_without_file(word, &warn)
    }

    /// Flags with values that give the same run configurations without the policy file, as
    /// [`PolicyWords::without_file`] has them.
    pub fn without_file(&self, huge: HugeList) -> Option<Vec<(String, String)>> {
        self.0.without_file(huge, &warn)
    }

    /// Every combination of the values given, at least one. Prints a note if this machine's kernel has no rules of its own.
    ///
    /// # Errors
    /// A value is invalid, or values exclude each other.
    pub fn configs(&self, huge: HugeList) -> Result<Vec<RunConfig>> {
        noted(self.0.configs(huge, &warn)?)
    }

    /// The flags given, each with its words, in the order of the command line.
    ///
    /// # Errors
    /// A word is not a value of its flag.
    pub fn lists(&self, huge: HugeList, base: &RunConfig) -> Result<Vec<(&'static Flag, Vec<String>)>> {
        Ok(self.0.lists(huge, base, &warn)?)
    }

    /// The run configuration that the flags modify: the preset with the policy file applied.
    ///
    /// # Errors
    /// There are several presets, or the file is invalid.
    pub fn base(&self) -> Result<RunConfig> {
        Ok(self.0.base()?)
    }

    /// The only run configuration given.
    ///
    /// # Errors
    /// As for [`PolicyArgs::configs`]; a flag has a list of values.
    pub fn config(&self) -> Result<RunConfig> {
        let config = self.0.config(&warn)?;
        noted(vec![config.clone()])?;
        Ok(config)
    }
}

/// Prints a note, once, if the machine's kernel is simulated and has no rules of its own.
fn noted(configs: Vec<RunConfig>) -> Result<Vec<RunConfig>> {
    if configs.iter().any(|config| config.base == Some(BaseKernel::Host)) {
        host::version()?;
    }
    Ok(configs)
}

/// Policy flags of a command that runs on the real kernel. Flags of the simulated kernel are hidden from its help and
/// refused with an explanation.
#[derive(Clone, Debug, Default)]
pub struct HostPolicyArgs(PolicyArgs);

impl HostPolicyArgs {
    /// The flags.
    ///
    /// # Errors
    /// A flag of the simulated kernel was given.
    pub fn checked(&self) -> Result<&PolicyArgs> {
        self.checked_besides("")
    }

    /// The flags, for a command that applies this flag of the simulated kernel to the real one.
    ///
    /// # Errors
    /// Another flag of the simulated kernel was given.
    pub fn checked_besides(&self, applied: &str) -> Result<&PolicyArgs> {
        match self.0.kernel_flag_besides(applied) {
            Some(flag) => {
                bail!("--{flag} is about a simulated kernel, but this command runs on the real one; leave it out")
            }
            None => Ok(&self.0),
        }
    }

    /// The flags, with those of the simulated kernel: for commands that set the real one to match.
    pub fn with_kernel_flags(&self) -> &PolicyArgs {
        &self.0
    }
}

impl clap::FromArgMatches for PolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let place = |flag: &&Flag| matches.index_of(flag.name).unwrap_or(usize::MAX);
        let mut flags: Vec<&'static Flag> = FLAGS.iter().filter(|flag| matches.contains_id(flag.name)).collect();
        flags.sort_by_key(place);
        let word = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
        Ok(PolicyArgs(PolicyWords {
            given: flags.into_iter().map(|flag| (flag, word(flag.name))).collect(),
            presets: word("preset"),
            file: matches.get_one::<PathBuf>("policy").cloned(),
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::FromArgMatches for HostPolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        PolicyArgs::from_arg_matches(matches).map(HostPolicyArgs)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl clap::Args for HostPolicyArgs {
    fn augment_args(command: Command) -> Command {
        let kernel = FLAGS.iter().filter(|flag| flag.subject == Subject::Kernel);
        kernel.fold(PolicyArgs::augment_args(command), |command, flag| {
            command.mut_arg(flag.name, |argument| argument.hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::Args for PolicyArgs {
    fn augment_args(command: Command) -> Command {
        let heading = "Policy (all flags: --help; values, defaults and units: docs/reference/policy-flags.md)";
        let command = command
            .arg(
                Arg::new("preset")
                    .long("preset")
                    .value_name("NAME")
                    .default_value("default")
                    .help_heading(heading)
                    .help("Start from this preset: default, hakmem, lean"),
            )
            .arg(
                Arg::new("policy")
                    .long("policy")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help_heading(heading)
                    .help(
                        "Read policy fields from a TOML file, or a whole run configuration from a row of a JSON result (FILE#3, FILE#winner)",
                    ),
            );
        FLAGS.iter().fold(command, |command, flag| command.arg(argument(flag).help_heading(heading)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// What the flag does, without its values if they are many.
fn short_help(flag: &Flag) -> String {
    let what = flag.help.split([':', ';']).next().unwrap_or_default();
    let values = flag.values_text();
    let values = if values.len() <= SHORT_VALUES { format!(" [{values}]") } else { String::new() };
    format!("{what}{values} [default: {}]", flag.default_text())
}

fn argument(flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.name)
        .hide_short_help(!IN_SHORT_HELP.contains(&flag.name))
        .long(flag.name)
        .value_name(flag.placeholder())
        .action(ArgAction::Set)
        .value_parser(move |words: &str| range::expanded(flag, words))
        // `-1` is then refused as a value, not as an unknown option.
        .allow_negative_numbers(true)
        .help(short_help(flag))
        .long_help(format!("{} [{}] [default: {}]", flag.help, flag.values_text(), flag.default_text()));
    // `argv` joins the value to the flag before clap sees it.
    if flag.name == HUGE {
        argument.num_args(0..=1).require_equals(true).default_missing_value("")
    } else {
        argument.num_args(1)
    }
}
