//! Help screens at the width of the terminal.

use std::mem::MaybeUninit;

/// The width where standard output is no terminal, and the most anywhere.
const COLUMNS: usize = 100;
/// Narrower than this a column of explanations is hard to read.
const COLUMNS_MIN: usize = 60;

/// A help screen with its long lines broken, for where it is shown.
pub fn fitted(text: &str) -> String {
    let columns = terminal_columns().unwrap_or(COLUMNS).clamp(COLUMNS_MIN, COLUMNS);
    text.lines().map(|line| wrapped(line, columns) + "\n").collect()
}

fn terminal_columns() -> Option<usize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the call writes to the size alone.
    let told = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, size.as_mut_ptr()) };
    // SAFETY: zeroes are a valid size.
    let columns = usize::from(unsafe { size.assume_init() }.ws_col);
    (told == 0 && columns > 0).then_some(columns)
}

/// One line, broken at spaces; what follows begins where its explanation does.
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

/// The column of the explanation of an option, an argument or a command; of other lines their own begin.
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

    /// No screen of any command has a line beyond the width, and breaking loses no word.
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
}
