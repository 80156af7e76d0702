//! `hksim run`: a program on the native allocator.
//!
//! The program takes hksim's place in its process, so its exit status, its signals and its terminal are its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use hksim_embedded::{ALLOCATOR, PRELOAD_VARIABLE, cached, preload_with};
use hksim_native::config::{NativeConfig, POLICY_VARIABLE};
use hksim_native::process::{Form, STATISTICS_VARIABLE};
use hksim_record::Obstacle;

use crate::flags::table::{FLAGS, Subject};
use crate::flags::{Choice, HostPolicyArgs};
use crate::{host, output};

/// What follows where the program frees or resizes what is no live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Misuse {
    /// One line on standard error, and the end; most double frees are noticed
    Abort,
    /// The same, and every free and realloc is looked at closely: slower
    Check,
    /// Every one is looked at closely; such calls are ignored, and counted in the statistics
    Count,
}

impl Misuse {
    /// As the native allocator reads it.
    fn word(self) -> &'static str {
        match self {
            Misuse::Abort => "misuse=abort",
            Misuse::Check => "misuse=check",
            Misuse::Count => "misuse=count",
        }
    }
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: HostPolicyArgs,
    /// Write statistics of the allocator when the program ends, to standard error or appended to a file
    #[arg(long, value_name = "text|json[:FILE]")]
    stats: Option<String>,
    /// What follows where the program frees or resizes what is no live block
    #[arg(long, value_enum, default_value = "abort")]
    misuse: Misuse,
    /// The program and its arguments; it runs in hksim's process, and its exit status is its own
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Becomes the program; returns only where that is impossible.
///
/// # Errors
/// A policy that no program can run on, no place for the allocator, no such program.
pub fn run(args: &Args) -> Result<()> {
    let policy = args.policy.checked()?;
    if let Some(flag) = policy.program_flag() {
        bail!("--{flag} is about a replayed program; a real one touches what it touches: leave it out");
    }
    let choice = policy.choice()?;
    host::can_serve(&choice)?;
    let words = format!("{} {}", words(&choice), args.misuse.word());
    NativeConfig::read(&words).map_err(|why| anyhow!("{why}"))?;
    let object = cached("native", ALLOCATOR)?;
    let statistics = args.stats.as_deref().map(statistics).transpose()?;
    let (program, arguments) = args.command.split_first().context("no command")?;
    if let Some(Obstacle { path, why }) = hksim_record::obstacle(program) {
        let what = "so it runs on its own allocator, without statistics; programs that it starts may run on this one";
        output::note(&format!("{} {why}, {what}", path.display()));
    }
    let why = Command::new(program)
        .args(arguments)
        .env(PRELOAD_VARIABLE, preload_with(&object))
        .env(OsStr::from_bytes(POLICY_VARIABLE.to_bytes()), words)
        .envs(statistics.map(|request| (OsStr::from_bytes(STATISTICS_VARIABLE.to_bytes()), request)))
        .exec();
    Err(why).with_context(|| format!("{}: cannot be run", program.to_string_lossy()))
}

/// A request for statistics as the native allocator reads it. The program may change its folder before it ends, so a file
/// is named from the root.
fn statistics(request: &str) -> Result<OsString> {
    let Some((form, file)) = Form::read(request) else {
        bail!("--stats {request}: write text or json, and :FILE behind it for a file");
    };
    let form = match form {
        Form::Text => "text",
        Form::Json => "json",
    };
    let mut words = OsString::from(form);
    if let Some(file) = file {
        // As the program will open it. What it cannot say any more is said now.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.with_context(|| format!("--stats: {file}: cannot be written"))?;
        words.push(":");
        words.push(std::path::absolute(file).with_context(|| format!("{file}: cannot be found"))?);
    }
    Ok(words)
}

/// A choice as the native allocator reads it: every policy flag with its value.
fn words(choice: &Choice) -> String {
    let flags = FLAGS.iter().filter(|flag| flag.subject == Subject::Policy);
    let words: Vec<String> = flags.map(|flag| format!("{}={}", flag.name, flag.show(choice))).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {

    use hksim_policy::Policy;

    use super::*;
    use crate::flags::table::Values;

    /// What the native allocator reads is the policy that was written down.
    fn agree(choice: &Choice) {
        let words = words(choice);
        let read = NativeConfig::read(&words).unwrap_or_else(|why| panic!("{words}: {why}"));
        assert_eq!(read.policy, choice.policy, "{words}");
    }

    #[test]
    fn the_native_allocator_reads_every_flag_as_it_was_written() {
        let wide = || Choice::of(Policy { header_bytes: 16, ..Policy::default() });
        agree(&wide());
        agree(&Choice::of(Policy { header_bytes: 16, ..Policy::hakmem() }));
        for flag in FLAGS.iter().filter(|flag| flag.subject == Subject::Policy) {
            let values = match &flag.values {
                // The others are refused.
                Values::Words(_) if flag.name == "align" => vec!["arena"],
                Values::Words(words) => words.clone(),
                Values::Size(_) => vec!["1M"],
                Values::Count(_) => vec!["16"],
                Values::Time(_) => vec!["1500us", "0", "7ns", "2s"],
                Values::Modes(_) => vec!["64K=always"],
            };
            for value in values {
                let value = if flag.name == "arena" { "1G" } else { value };
                let mut choice = wide();
                flag.set(&mut choice, value).unwrap_or_else(|why| panic!("--{} {value}: {why}", flag.name));
                agree(&choice);
            }
        }
    }

    #[test]
    fn presets_by_name_are_the_same_as_their_flags() {
        for name in Policy::PRESETS {
            let policy = Policy { header_bytes: 16, ..Policy::preset(name).expect("a preset") };
            let named = format!("preset={name} header-bytes=16");
            assert_eq!(NativeConfig::read(&named), NativeConfig::read(&words(&Choice::of(policy))), "{name}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused_with_the_reason() {
        let why = |words| NativeConfig::read(words).expect_err(words).to_string();
        assert!(why("preset=hakmem").contains("header-bytes=16"));
        assert!(["align=trim", "align=kernel"].into_iter().all(|words| why(words).contains("use align=arena")));
        assert!(why("touch=all").contains("leave it out"));
        assert!(why("thp=never").contains("leave it out"));
        assert!(why("superslab=3M").contains("powers of two"));
        assert!(why("superslab").contains("FLAG=VALUE"));
        assert!(why("prewarm=99M arena=64M").contains("quarter"));
        assert!(why("purge-delay=100").contains("unit"));
        assert!(why("colour=red").starts_with("colour=red: no such policy flag"));
    }
}
