//! `--design` and the settings of designs as clap arguments, from the list of designs.

use anyhow::{Result, bail};
use clap::{Arg, ArgMatches, Command};
use hksim_designs::{About, DesignWords, Label, Setting, all};

use super::PolicyArgs;
use crate::output::warn;

const HEADING: &str = "Other designs (docs/reference/designs.md)";

/// The design and its settings as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct DesignArgs(DesignWords);

impl DesignArgs {
    /// The designs given; none without `--design`.
    ///
    /// # Errors
    /// Words are no designs, or flags of SuperSlab are given with them.
    pub fn labels(&self, policy: &PolicyArgs) -> Result<Vec<Label>> {
        Ok(if self.is_given(policy)? { self.0.labels(&warn)? } else { Vec::new() })
    }

    /// The only design given, if one is.
    ///
    /// # Errors
    /// As of [`DesignArgs::labels`], or there are several.
    pub fn label(&self, policy: &PolicyArgs) -> Result<Option<Label>> {
        Ok(if self.is_given(policy)? { Some(self.0.label(&warn)?) } else { None })
    }

    /// Refuses a command's flag that is about SuperSlab, if it is given together with a design.
    ///
    /// # Errors
    /// Both are given.
    pub fn refuse(&self, flag: &str, is_given: bool, why: &str) -> Result<()> {
        if is_given && !self.0.names.is_empty() {
            bail!("--{flag} with --design: {why}");
        }
        Ok(())
    }

    /// Checks that no design was given.
    ///
    /// # Errors
    /// One was: the input has an allocator of its own.
    pub fn refuse_for_recording(&self) -> Result<()> {
        if self.0 != DesignWords::default() {
            bail!(
                "--design is about traces (.hkt): a memory recording and a real library have allocators of their own"
            );
        }
        Ok(())
    }

    fn is_given(&self, policy: &PolicyArgs) -> Result<bool> {
        let is_given = self.0.is_given()?;
        match policy.allocator_flag() {
            Some(flag) if is_given => {
                bail!("--{flag} is about SuperSlab, and not a setting of --design {}; leave it out", self.0.names)
            }
            _ => Ok(is_given),
        }
    }
}

/// The settings of all designs by their flags, each with the designs that have it.
fn settings() -> Vec<(&'static Setting, Vec<About>)> {
    let mut settings: Vec<(&'static Setting, Vec<About>)> = Vec::new();
    for about in all() {
        for setting in about.settings {
            match settings.iter_mut().find(|(known, _)| known.flag == setting.flag) {
                Some((_, designs)) => designs.push(about.clone()),
                None => settings.push((setting, vec![about.clone()])),
            }
        }
    }
    settings
}

/// What a setting does in each design that has it.
fn help(flag: &str, designs: &[About]) -> String {
    let of = |about: &About| {
        let setting = about.setting(flag)?;
        let (values, default) = (setting.values.text(), setting.show(&about.default));
        Some(format!("{}: {} [{values}] [default: {default}]", about.name, setting.help))
    };
    designs.iter().filter_map(of).collect::<Vec<_>>().join("; ")
}

impl clap::Args for DesignArgs {
    fn augment_args(command: Command) -> Command {
        let designs: Vec<String> = all().iter().map(|about| format!("{} ({})", about.name, about.summary)).collect();
        let design = Arg::new("design")
            .long("design")
            .value_name("NAME")
            .help_heading(HEADING)
            .help("Take this allocator instead of SuperSlab")
            .long_help(format!("Take this allocator instead of SuperSlab: {}", designs.join(", ")));
        settings().into_iter().fold(command.arg(design), |command, (setting, designs)| {
            command.arg(
                Arg::new(setting.flag)
                    .long(setting.flag)
                    .value_name(setting.values.placeholder())
                    .allow_negative_numbers(true)
                    .hide_short_help(true)
                    .help_heading(HEADING)
                    .help(help(setting.flag, &designs)),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for DesignArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let word = |flag: &str| matches.get_one::<String>(flag).cloned();
        let given =
            settings().into_iter().filter_map(|(setting, _)| Some((setting.flag.to_string(), word(setting.flag)?)));
        let mut given: Vec<(String, String)> = given.collect();
        given.sort_by_key(|(flag, _)| matches.index_of(flag));
        Ok(DesignArgs(DesignWords { names: word("design").unwrap_or_default(), given }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
