//! Help screens, wrapped to the width of the terminal.

use std::mem::MaybeUninit;

/// The maximum width, and the width if standard output is not a terminal.
const COLUMNS: usize = 100;
/// The minimum width: a narrower column of explanations is hard to read.
const COLUMNS_MIN: usize = 60;

/// Wraps the long lines of a help screen.
pub fn fitted(text: &str) -> String {
    let columns = terminal_columns().unwrap_or(COLUMNS).clamp(COLUMNS_MIN, COLUMNS);
    text.lines().map(|line| wrapped(line, columns) + "\n").collect()
}

fn terminal_columns() -> Option<usize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: TIOCGWINSZ writes one `winsize`, to the pointer given.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, size.as_mut_ptr()) };
    // SAFETY: the memory is zeroed, and zeros are a valid `winsize`.
    let columns = usize::from(unsafe { size.assume_init() }.ws_col);
    (status == 0 && columns > 0).then_some(columns)
}

/// Wraps one line at spaces. Continuation lines are indented to the column of the explanation.
fn wrapped(line: &str, columns: usize) -> String {
    let indent = hanging(line, columns);
    let mut text = String::new();
    let mut used = 0;
    for word in line.split_inclusive(' ') {
        let width = word.trim_end().chars().count();
        if used > indent && used + width > columns && !text.trim_end().is_empty() {
            text.truncate(text.trim_end().len());
            text += &format!("\n{}", " ".repeat(indent));
            used = indent;
        }
        text += word;
        used += word.chars().count();
    }
    text.truncate(text.trim_end().len());
    text
}

/// The column of the explanation of an option, an argument or a command; for other lines, their indentation.
fn hanging(line: &str, columns: usize) -> usize {
    let own = line.len() - line.trim_start().len();
    let explained = line[own..].find("  ").map(|gap| {
        let rest = &line[own + gap..];
        own + gap + rest.len() - rest.trim_start().len()
    });
    match explained {
        Some(column) if column <= columns / 2 => column,
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_beneath_their_explanation() {
        let line = "      --slab <SIZE>  Size of a slab, which holds blocks [bytes] [default: 64K]";
        let expected = "      --slab <SIZE>  Size of a slab, which\n                     holds blocks [bytes]\n                     [default: 64K]";
        assert_eq!(wrapped(line, 44), expected);
        assert_eq!(wrapped("short", 44), "short");
        assert_eq!(wrapped("", 44), "");
        assert_eq!(wrapped("Some words of prose", 10), "Some words\nof prose");
        assert_eq!(wrapped(&"x".repeat(60), 44), "x".repeat(60), "a word stays whole");
    }

    /// No help screen has a line longer than the width, and wrapping loses no words.
    #[test]
    fn every_screen_fits() {
        use clap::CommandFactory;
        fn check(command: &mut clap::Command) {
            for text in [command.render_help().to_string(), command.render_long_help().to_string()] {
                let shown: String = text.lines().map(|line| wrapped(line, COLUMNS) + "\n").collect();
                assert!(shown.split_whitespace().eq(text.split_whitespace()), "{}: words differ", command.get_name());
                let wide = shown.lines().find(|line| line.chars().count() > COLUMNS);
                assert_eq!(wide, None, "{}", command.get_name());
            }
            command.get_subcommands_mut().for_each(check);
        }
        let mut command = crate::Cli::command();
        command.build();
        check(&mut command);
    }

    /// Every command has examples in `--help`, and all of them parse.
    #[test]
    fn every_command_has_examples_that_parse() {
        use clap::{CommandFactory, Parser};
        fn check(command: &clap::Command) {
            let name = command.get_name();
            if command.has_subcommands() {
                return command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(check);
            }
            let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = text.lines().filter(|line| line.starts_with("  hksim ")).collect();
            assert!(!examples.is_empty(), "{name}: no example");
            for example in examples {
                // Words between quotes are odd-numbered parts.
                let parts = example.trim().split('\'').enumerate();
                let words = parts.flat_map(|(number, part)| match number % 2 {
                    0 => part.split_whitespace().map(Into::into).collect::<Vec<std::ffi::OsString>>(),
                    _ => vec![part.into()],
                });
                let words = crate::flags::argv::join_optional_values(words);
                let parsed = crate::Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{name}: `{example}`: {}", parsed.unwrap_err());
            }
        }
        check(&crate::Cli::command());
    }
}
