//! Policy flags as clap arguments, and the run configurations they span.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hksim_explore::flags::table::{FLAGS, Flag, Subject};
use hksim_explore::flags::{BaseKernel, RunConfig, range};
use hksim_policy::Policy;
use hksim_text::nearest;

use crate::host;
use crate::output::{units, warn};
use hksim_results::policy_file;

/// The flag whose value can be left out.
const HUGE: &str = "huge";

/// Maximum number of designs of one sweep.
const CONFIGS_MAX: usize = 100_000;

/// Flags that `-h` lists; `--help` lists all.
const IN_SHORT_HELP: [&str; 5] = ["superslab", "slab", "huge", "purge", "touch"];

/// Maximum number of characters of the values in `-h`.
const SHORT_VALUES: usize = 30;

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

/// Policy flags as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct PolicyArgs {
    /// Each flag with its words, in the order of the command line.
    given: Vec<(&'static Flag, String)>,
    presets: String,
    file: Option<PathBuf>,
}

impl PolicyArgs {
    /// Parses a policy written as one word: an optional preset or file, followed by any number of `+FLAG=VALUE`. The
    /// first `+` is omitted if there is no preset or file.
    ///
    /// # Errors
    /// The word names a flag that is not a policy flag.
    pub fn of_word(word: &str) -> Result<PolicyArgs> {
        let is_file = |base: &str| {
            let file = base.rsplit_once('#').map_or(base, |(file, _)| file);
            file.ends_with(".toml") || file.ends_with(".json")
        };
        let mut parts = word.split('+').peekable();
        let base = parts.next_if(|base| !base.contains('=') || is_file(base)).unwrap_or_default();
        let file = is_file(base).then(|| PathBuf::from(base));
        let presets = if base.is_empty() || file.is_some() { "default" } else { base };
        let given = parts.map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let flag = FLAGS.iter().find(|flag| flag.subject == Subject::Policy && flag.name == name);
            let flag = flag.filter(|flag| !value.is_empty() || (flag.name == HUGE && part == HUGE));
            let flag = flag.ok_or_else(|| anyhow!("`+{part}` is not a policy flag; write +FLAG=VALUE"))?;
            Ok((flag, value.to_string()))
        });
        Ok(PolicyArgs { given: given.collect::<Result<_>>()?, presets: presets.to_string(), file })
    }

    /// The same, with a policy file that is relative to this folder.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> PolicyArgs {
        PolicyArgs { file: self.file.map(|file| folder.join(file)), ..self }
    }

    /// The policy file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether an argument is one of these.
    pub fn has(name: &str) -> bool {
        ["preset", "policy"].contains(&name) || FLAGS.iter().any(|flag| flag.name == name)
    }

    /// Flags with values that give the same run configurations without the policy file; `None` if there is no file, or
    /// no lists of values span the configurations.
    pub fn without_file(&self, huge: HugeList) -> Option<Vec<(String, String)>> {
        self.file.as_ref()?;
        let (configs, default) = (self.configs(huge).ok()?, RunConfig::of(Policy::DEFAULT));
        let mut rows = 1;
        let mut given = Vec::new();
        for flag in FLAGS.iter() {
            let mut values: Vec<String> = Vec::new();
            for value in configs.iter().map(|config| flag.show(config)) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            rows *= values.len();
            if values != [flag.show(&default)] {
                given.push((flag.name.to_string(), values.join(&flag.separator().to_string())));
            }
        }
        // The first flag given varies slowest.
        let place = |name: &String| self.given.iter().position(|(flag, _)| flag.name == *name);
        given.sort_by_key(|(name, _)| place(name));
        (rows == configs.len()).then_some(given)
    }

    /// The same policy in one word, as of [`PolicyArgs::of_word`], without its policy file; `None` if it names none.
    pub fn word_without_file(word: &str) -> Option<String> {
        let flags = PolicyArgs::of_word(word).ok()?.without_file(HugeList::Thp)?;
        let flags: Vec<String> = flags.into_iter().map(|(flag, value)| format!("+{flag}={value}")).collect();
        Some(format!("default{}", flags.concat()))
    }

    /// Every combination of the values given, the first flag varying slowest. At least one.
    ///
    /// # Errors
    /// A value is invalid, or values exclude each other.
    pub fn configs(&self, huge: HugeList) -> Result<Vec<RunConfig>> {
        let mut configs = self.bases()?;
        for (flag, words) in &self.given {
            let words = if words.is_empty() { huge.words() } else { words };
            configs = spread(&configs, flag, words)?;
        }
        configs.iter().try_for_each(RunConfig::check)?;
        Ok(configs)
    }

    /// The flags given, each with its words, in the order of the command line.
    ///
    /// # Errors
    /// A word is not a value of its flag.
    pub fn lists(&self, huge: HugeList, base: &RunConfig) -> Result<Vec<(&'static Flag, Vec<String>)>> {
        let list = |&(flag, ref words): &(&'static Flag, String)| {
            let words = if words.is_empty() { huge.words() } else { words };
            Ok((flag, distinct(flag, words, base)?.into_iter().map(str::to_string).collect()))
        };
        self.given.iter().map(list).collect()
    }

    /// The run configuration that the flags modify: the preset with the policy file applied.
    ///
    /// # Errors
    /// There are several presets, or the file is invalid.
    pub fn base(&self) -> Result<RunConfig> {
        match self.bases()?.as_slice() {
            [base] => Ok(base.clone()),
            _ => bail!("--preset {}: this command starts from one preset", self.presets),
        }
    }

    /// The only run configuration given.
    ///
    /// # Errors
    /// As for [`PolicyArgs::configs`]; a flag has a list of values.
    pub fn config(&self) -> Result<RunConfig> {
        let lists = self.given.iter().map(|(flag, words)| (flag.name, words, flag.separator()));
        for (name, words, separator) in lists.chain([("preset", &self.presets, ',')]) {
            if words.contains(separator) {
                bail!("--{name} {words}: this command takes one design; use `hksim sweep` for lists");
            }
        }
        let configs = self.configs(HugeList::Thp)?;
        configs.into_iter().next().ok_or_else(|| anyhow!("no design"))
    }

    /// The first flag given that configures the simulated kernel.
    pub fn kernel_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Kernel)
    }

    /// The first flag given that configures the allocator.
    pub fn policy_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Policy)
    }

    /// The first flag given that configures the program.
    pub fn program_flag(&self) -> Option<&'static str> {
        self.flag_about(Subject::Program)
    }

    fn flag_about(&self, subject: Subject) -> Option<&'static str> {
        self.given.iter().find(|(flag, _)| flag.subject == subject).map(|(flag, _)| flag.name)
    }

    /// The presets, each with the policy file applied.
    fn bases(&self) -> Result<Vec<RunConfig>> {
        let presets = self.presets.split(',').map(|name| {
            let known = || {
                let question = nearest::question(name, Policy::PRESETS.iter().copied());
                anyhow!("--preset {name}: unknown; presets are {}{question}", Policy::PRESETS.join(", "))
            };
            let preset = Policy::preset(name).ok_or_else(known)?;
            match &self.file {
                Some(path) => Ok(policy_file::read(path, &preset)?),
                None => Ok(RunConfig::of(preset)),
            }
        });
        presets.collect()
    }
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
        match self.0.kernel_flag() {
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

/// Combines every run configuration with every value of a flag.
fn spread(configs: &[RunConfig], flag: &Flag, words: &str) -> Result<Vec<RunConfig>> {
    let values = words.split(flag.separator()).count();
    if configs.len().saturating_mul(values) > CONFIGS_MAX {
        bail!(
            "--{}: with its {} the lists span more than {} designs; shorten them",
            flag.name,
            units::of(values as u64, "value"),
            units::count(CONFIGS_MAX as u64)
        );
    }
    let mut spread = Vec::with_capacity(configs.len() * values);
    let base = configs.first().cloned().unwrap_or_else(|| RunConfig::of(Policy::DEFAULT));
    let distinct = distinct(flag, words, &base)?;
    for config in configs {
        for word in &distinct {
            let mut config = config.clone();
            set(flag, &mut config, word)?;
            spread.push(config);
        }
    }
    Ok(spread)
}

/// Sets the value of a flag. Prints a note, once, if this machine's kernel has no rules of its own.
fn set(flag: &Flag, config: &mut RunConfig, word: &str) -> Result<()> {
    flag.set(config, word).map_err(|why| anyhow!("--{} {why}", flag.name))?;
    if config.base == Some(BaseKernel::Host) {
        host::version()?;
    }
    Ok(())
}

/// The words of a list without those that mean the same as an earlier one (1M, 1024K), which are dropped with a note.
fn distinct<'a>(flag: &Flag, words: &'a str, base: &RunConfig) -> Result<Vec<&'a str>> {
    let (mut seen, mut kept): (HashSet<String>, Vec<&str>) = (HashSet::new(), Vec::new());
    for word in words.split(flag.separator()) {
        let mut config = base.clone();
        set(flag, &mut config, word)?;
        if seen.insert(flag.show(&config)) {
            kept.push(word);
        } else {
            warn(&format!("--{}: {word} is in the list twice; the second is left out", flag.name));
        }
    }
    Ok(kept)
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
