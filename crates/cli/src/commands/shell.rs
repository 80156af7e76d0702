//! `hksim completions` and `hksim man`: what a shell and `man` know of the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

use hksim_explore::figures::Figure;
use hksim_policy::Policy;

use crate::command_line::program;
use crate::commands::replay::MODES;
use crate::flags::table::{FLAGS, Values};
use crate::output::{file, note, print, units};
use crate::question::core_words;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim completions bash\n\nShells read them from these files:\n  bash  ~/.local/share/bash-completion/completions/hksim\n  fish  ~/.config/fish/completions/hksim.fish\n  zsh   _hksim in a folder of $fpath"
)]
pub struct CompletionsArgs {
    /// Print the completions of this shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim man\n  hksim man -o ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write the pages of all commands to this folder, instead of the main page to standard output
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Prints a shell's completion script.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_words(program()), "hksim", &mut script);
    print(&String::from_utf8(script).context("the completions are not text")?)
}

/// The command with the words that its options take. They are not in the command itself: the options also take lists,
/// and words with amounts.
fn with_words(command: Command) -> Command {
    let named: [(&str, Vec<&str>); 4] = [
        ("preset", Policy::PRESETS.to_vec()),
        ("goal", Figure::ALL.map(Figure::word).to_vec()),
        ("tlb", core_words().collect()),
        ("mode", MODES.to_vec()),
    ];
    let of_flag = |argument: &Arg| {
        let flag = FLAGS.iter().find(|flag| argument.get_id() == flag.name);
        flag.filter(|flag| argument.get_value_names().is_some_and(|names| names == [flag.placeholder()]))
    };
    let command = command.mut_args(|argument| {
        let words = match of_flag(&argument).map(|flag| &flag.values) {
            Some(Values::Words(words) | Values::WordsOr(words, _)) => words.clone(),
            // No words, and not the name of a file either.
            Some(_) => return argument.value_hint(ValueHint::Other),
            None => match named.iter().find(|(name, _)| argument.get_id() == name) {
                Some((_, words)) => words.clone(),
                None => return argument,
            },
        };
        argument.value_parser(PossibleValuesParser::new(words))
    });
    command.mut_subcommands(with_words)
}

/// Prints the main page, or writes a page for every command.
///
/// # Errors
/// The output cannot be written.
pub fn man(args: &ManArgs) -> Result<()> {
    let mut command = program();
    // Gives subcommands their whole names: hksim-trace-cut.
    command.build();
    let Some(folder) = &args.output else {
        return print(&String::from_utf8(page(&command)?).context("the page is not text")?);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let pages = write_pages(&command, folder)?;
    note(&format!("{}: {} written", folder.display(), units::of(pages, "page")));
    Ok(())
}

/// Writes the pages of a command and of its subcommands. Returns their number.
fn write_pages(command: &Command, folder: &Path) -> Result<u64> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    file::write(&path, &page(command)?)?;
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    below.map(|below| write_pages(below, folder)).try_fold(1, |sum, pages| Ok(sum + pages?))
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).context("the page cannot be rendered")?;
    Ok(page)
}
