//! Policy flags as clap sees them, and the choices they span.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hksim_policy::Policy;

use super::choice::Choice;
use super::policy_file;
use super::table::{FLAGS, Flag, Subject};

/// Most designs of one sweep.
const CHOICES_MAX: usize = 100_000;

/// What a bare `--huge` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeList {
    /// In sweep and validate: never, thp, hugetlb.
    All,
    /// Elsewhere: thp.
    Thp,
}

impl HugeList {
    fn words(self) -> &'static str {
        match self {
            HugeList::All => "never,thp,hugetlb",
            HugeList::Thp => "thp",
        }
    }
}

/// Policy flags as they were given.
#[derive(Clone, Debug, Default)]
pub struct PolicyArgs {
    /// Each flag with its words, in the order of the command line.
    given: Vec<(&'static Flag, String)>,
    presets: String,
    file: Option<PathBuf>,
}

impl PolicyArgs {
    /// A policy in one word: a preset, a file or nothing, and then `+FLAG=VALUE` as often as one likes. Where there is nothing before
    /// the first of them, it needs no `+`.
    ///
    /// # Errors
    /// A flag that is none of the policy's.
    pub fn of_word(word: &str) -> Result<PolicyArgs> {
        let is_file = |base: &str| base.ends_with(".toml") || base.ends_with(".json");
        let mut parts = word.split('+').peekable();
        let base = parts.next_if(|base| !base.contains('=') || is_file(base)).unwrap_or_default();
        let file = is_file(base).then(|| PathBuf::from(base));
        let presets = if base.is_empty() || file.is_some() { "default" } else { base };
        let given = parts.map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let flag = FLAGS.iter().find(|flag| flag.subject == Subject::Policy && flag.name == name);
            let flag = flag.ok_or_else(|| anyhow!("`+{part}` sets no flag of a policy; write +FLAG=VALUE"))?;
            Ok((flag, value.to_string()))
        });
        Ok(PolicyArgs { given: given.collect::<Result<_>>()?, presets: presets.to_string(), file })
    }

    /// Every combination of the values given, the first flag varying slowest. At least one.
    ///
    /// # Errors
    /// Values that cannot be, one at a time or together.
    pub fn choices(&self, huge: HugeList) -> Result<Vec<Choice>> {
        let mut choices = self.bases()?;
        for (flag, words) in &self.given {
            let words = if words.is_empty() { huge.words() } else { words };
            choices = spread(&choices, flag, words)?;
        }
        choices.iter().try_for_each(Choice::check)?;
        Ok(choices)
    }

    /// The one choice given.
    ///
    /// # Errors
    /// As for [`PolicyArgs::choices`]; lists.
    pub fn choice(&self) -> Result<Choice> {
        let lists = self.given.iter().map(|(flag, words)| (flag.name, words, flag.separator()));
        for (name, words, separator) in lists.chain([("preset", &self.presets, ',')]) {
            if words.contains(separator) {
                bail!("--{name} {words}: this command takes one design; use `hksim sweep` for lists");
            }
        }
        let choices = self.choices(HugeList::Thp)?;
        choices.into_iter().next().ok_or_else(|| anyhow!("no design"))
    }

    /// The first flag given that is about a simulated kernel.
    pub fn kernel_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Kernel)
    }

    /// The first flag given that is about the allocator.
    pub fn policy_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Policy)
    }

    /// The first flag given that is about the program.
    pub fn program_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Program)
    }

    fn flag_about(&self, subject: Subject) -> Option<&'static str> {
        self.given.iter().find(|(flag, _)| flag.subject == subject).map(|(flag, _)| flag.name)
    }

    /// Presets, each under the policy file.
    fn bases(&self) -> Result<Vec<Choice>> {
        let presets = self.presets.split(',').map(|name| {
            let known = || anyhow!("--preset {name}: unknown; presets are {}", Policy::PRESETS.join(", "));
            let preset = Policy::preset(name).ok_or_else(known)?;
            match &self.file {
                Some(path) => policy_file::read(path, &preset),
                None => Ok(Choice::of(preset)),
            }
        });
        presets.collect()
    }
}

/// Policy flags of a command that runs on the kernel that is there. Those about a simulated kernel are no part of its help,
/// and are refused with a word that says why.
#[derive(Clone, Debug, Default)]
pub struct HostPolicyArgs(PolicyArgs);

impl HostPolicyArgs {
    /// The flags.
    ///
    /// # Errors
    /// One about a simulated kernel was given.
    pub fn checked(&self) -> Result<&PolicyArgs> {
        match self.0.kernel_flag() {
            Some(flag) => {
                bail!("--{flag} is about a simulated kernel; this runs on the one that is there: leave it out")
            }
            None => Ok(&self.0),
        }
    }
}

/// Every choice with every value of a flag.
fn spread(choices: &[Choice], flag: &Flag, words: &str) -> Result<Vec<Choice>> {
    let values = words.split(flag.separator()).count();
    if choices.len().saturating_mul(values) > CHOICES_MAX {
        bail!("--{} {words}: that makes more than {CHOICES_MAX} designs; give shorter lists", flag.name);
    }
    let mut spread = Vec::with_capacity(choices.len() * values);
    for choice in choices {
        for word in words.split(flag.separator()) {
            let mut choice = choice.clone();
            flag.set(&mut choice, word).map_err(|why| anyhow!("--{} {why}", flag.name))?;
            spread.push(choice);
        }
    }
    Ok(spread)
}

impl clap::FromArgMatches for PolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let place = |flag: &&Flag| matches.index_of(flag.name).unwrap_or(usize::MAX);
        let mut flags: Vec<&'static Flag> = FLAGS.iter().filter(|flag| matches.contains_id(flag.name)).collect();
        flags.sort_by_key(place);
        let word = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
        Ok(PolicyArgs {
            given: flags.into_iter().map(|flag| (flag, word(flag.name))).collect(),
            presets: word("preset"),
            file: matches.get_one::<PathBuf>("policy").cloned(),
        })
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
        let heading = "Policy (values, defaults and units: docs/reference/policy-flags.md)";
        let command = command
            .arg(
                Arg::new("preset")
                    .long("preset")
                    .value_name("NAME")
                    .default_value("default")
                    .help_heading(heading)
                    .help("What the other flags start from: default, hakmem"),
            )
            .arg(
                Arg::new("policy")
                    .long("policy")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help_heading(heading)
                    .help("Fields of a design that replace those of the preset (TOML), or a row of a JSON result"),
            );
        FLAGS.iter().fold(command, |command, flag| command.arg(argument(flag).help_heading(heading)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(flag: &Flag) -> Arg {
    let argument = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.placeholder())
        .action(ArgAction::Set)
        // So that `-1` is refused as the value it is, and not as an option.
        .allow_negative_numbers(true)
        .help(format!("{} [{}] [default: {}]", flag.help, flag.values_text(), flag.default_text()));
    // Its value is joined to it before clap sees it: see `argv`.
    if flag.name == "huge" {
        argument.num_args(0..=1).require_equals(true).default_missing_value("")
    } else {
        argument.num_args(1)
    }
}
