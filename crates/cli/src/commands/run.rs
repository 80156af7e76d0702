//! `hksim run`: runs a program on the native allocator.
//!
//! The program replaces hksim by exec, so its exit status, signals and terminal are as if it had been started directly.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use hksim_embedded::{ALLOCATOR, PRELOAD_VARIABLE, cached, preload_with};
use hksim_native::config::{NativeConfig, POLICY_VARIABLE};
use hksim_native::process::{Form, STATISTICS_VARIABLE, VERSION_VARIABLE};
use hksim_record::Obstacle;
use hksim_sim::report::version;

use crate::flags::HostPolicyArgs;
use crate::{host, memory, output};

/// What to do when the program frees or resizes something that is not a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum InvalidFree {
    /// Print one line on standard error and abort; most double frees are detected
    Abort,
    /// Check every free and realloc, and abort in the same way: slower
    Check,
    /// Check every free and realloc; ignore invalid ones and count them in the statistics
    Count,
}

impl InvalidFree {
    /// The setting in the form that the native allocator reads.
    fn word(self) -> &'static str {
        match self {
            InvalidFree::Abort => "misuse=abort",
            InvalidFree::Check => "misuse=check",
            InvalidFree::Count => "misuse=count",
        }
    }
}

/// Arguments of `run`.
///
/// Programs start from the preset `lean`, so that small heaps and blocks of half a SuperSlab do not fill huge pages.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("preset", |preset| preset.default_value("lean")),
    after_long_help = "Examples:\n  hksim run -- ./server\n  hksim run --huge=never --stats json:stats.json --invalid-free check -- ./server --port 80"
)]
pub struct Args {
    #[command(flatten)]
    policy: HostPolicyArgs,
    /// Write the allocator's statistics when the program ends, to standard error or appended to a file
    #[arg(long, value_name = "text|json[:FILE]")]
    stats: Option<String>,
    /// Select what to do at a free or resize of something that is not a live block
    #[arg(long, value_name = "ACTION", value_enum, default_value = "abort")]
    invalid_free: InvalidFree,
    /// Run this program with these arguments, in hksim's process and with the program's own exit status
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Executes the program; returns only on failure.
///
/// # Errors
/// No program can run on the policy, the allocator's object cannot be stored, or the program does not exist.
pub fn run(args: &Args) -> Result<()> {
    let policy = args.policy.checked()?;
    if let Some(flag) = policy.program_flag() {
        bail!("--{flag} applies to replayed programs, and this one is real; leave it out");
    }
    let config = policy.config()?;
    host::can_serve(&config)?;
    let words = format!("{} {}", config.native_words(), args.invalid_free.word());
    NativeConfig::read(&words).map_err(|why| anyhow!("{why}"))?;
    let object = cached("native", ALLOCATOR)?;
    let statistics = args.stats.as_deref().map(statistics).transpose()?;
    let (program, arguments) = args.command.split_first().context("no command")?;
    memory::refuse(Path::new(program))?;
    if let Some(Obstacle { path, why }) = hksim_record::obstacle(program) {
        let what =
            "so it runs on its own allocator, without statistics; programs that it starts may use the native one";
        output::warn(&format!("{} {why}, {what}", path.display()));
    }
    let why = Command::new(program)
        .args(arguments)
        .env(PRELOAD_VARIABLE, preload_with(&object))
        .env(OsStr::from_bytes(POLICY_VARIABLE.to_bytes()), words)
        .envs(statistics.into_iter().flat_map(|request| {
            [(STATISTICS_VARIABLE, request), (VERSION_VARIABLE, version().into())]
                .map(|(name, value)| (OsStr::from_bytes(name.to_bytes()), value))
        }))
        .exec();
    Err(why).with_context(|| format!("{}: cannot run", program.to_string_lossy()))
}

/// A request for statistics in the form that the native allocator reads. The file name becomes absolute, because the
/// program may change its working directory.
fn statistics(request: &str) -> Result<OsString> {
    let Some((form, file)) = Form::read(request) else {
        bail!("--stats {request}: write text or json, optionally followed by :FILE");
    };
    let form = match form {
        Form::Text => "text",
        Form::Json => "json",
    };
    let mut words = OsString::from(form);
    if let Some(file) = file {
        hksim_output_files::refuse_planted(Path::new(file))?;
        // Open the file as the program will: the program cannot report an error any more.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.with_context(|| format!("--stats: {file}: cannot write"))?;
        words.push(":");
        words.push(std::path::absolute(file).with_context(|| format!("{file}: cannot find"))?);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {

    use hksim_policy::Policy;

    use super::*;
    use crate::flags::RunConfig;
    use crate::flags::table::{FLAGS, Subject, Values};

    /// Checks that the native allocator parses the flag string of a configuration back into the same policy.
    fn agree(config: &RunConfig) {
        let words = config.native_words();
        let read = NativeConfig::read(&words).unwrap_or_else(|why| panic!("{words}: {why}"));
        assert_eq!(read.policy, config.policy, "{words}");
    }

    #[test]
    fn the_native_allocator_reads_every_flag_as_it_was_written() {
        let wide = || RunConfig::of(Policy { header_bytes: 16, ..Policy::default() });
        agree(&wide());
        agree(&RunConfig::of(Policy { header_bytes: 16, ..Policy::hakmem() }));
        for flag in FLAGS.iter().filter(|flag| flag.subject == Subject::Policy) {
            let values = match &flag.values {
                // The other values of `--align` are refused.
                Values::Words(_) if flag.name == "align" => vec!["arena"],
                Values::Words(words) => words.clone(),
                Values::WordsOr(words, _) => words.iter().copied().chain(["16/48/96"]).collect(),
                Values::Size(_) => vec!["1M"],
                Values::Count(_) => vec!["16"],
                Values::Time(_) => vec!["1500us", "0", "7ns", "2s"],
                Values::Modes(_) => vec!["64K=always"],
            };
            for value in values {
                let value = if flag.name == "arena" { "1G" } else { value };
                let mut config = wide();
                flag.set(&mut config, value).unwrap_or_else(|why| panic!("--{} {value}: {why}", flag.name));
                agree(&config);
            }
        }
    }

    #[test]
    fn presets_by_name_are_the_same_as_their_flags() {
        for name in Policy::PRESETS {
            let policy = Policy { header_bytes: 16, ..Policy::preset(name).expect("a preset") };
            let named = format!("preset={name} header-bytes=16");
            assert_eq!(NativeConfig::read(&named), NativeConfig::read(&RunConfig::of(policy).native_words()), "{name}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused_with_the_reason() {
        let why = |words| NativeConfig::read(words).expect_err(words).to_string();
        assert!(why("preset=hakmem").contains("header-bytes=16"));
        assert!(why("classes=8/16/24").contains("use multiples of 16"));
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
