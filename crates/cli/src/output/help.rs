//! Help screens, wrapped to the width of the terminal.

use super::screen::{COLUMNS, terminal_columns};
use hksim_text::wrap;

/// Wraps the long lines of a help screen.
pub fn fitted(text: &str) -> String {
    let columns = terminal_columns().unwrap_or(COLUMNS);
    wrap::text(text, columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wrap::wrapped;

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

    /// `-h` fits one screen of a usual terminal; `--help` has everything.
    #[test]
    fn every_short_screen_is_one_screen() {
        use clap::CommandFactory;
        const LINES: usize = 42;
        fn check(command: &mut clap::Command) {
            let lines = fitted(&command.render_help().to_string()).lines().count();
            assert!(lines <= LINES, "{}: {lines} lines", command.get_name());
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
            command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(check);
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
