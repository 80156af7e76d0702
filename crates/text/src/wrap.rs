//! Wraps lines at spaces.

/// Wraps the lines of a text that are longer than `columns`, except the rows of tables.
pub fn text(text: &str, columns: usize) -> String {
    let mut out = String::new();
    // No row of a table is longer than the rule below its head.
    let mut table_columns = 0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_some_and(|next| is_rule(next)) {
            table_columns = lines.peek().map_or(0, |rule| rule.len());
        } else if line.is_empty() {
            table_columns = 0;
        }
        out += &wrapped(line, columns.max(table_columns));
        out.push('\n');
    }
    out
}

/// Whether a line is the rule below the head of a table.
fn is_rule(line: &str) -> bool {
    line.starts_with('-') && line.chars().all(|character| matches!(character, '-' | ' '))
}

/// Wraps one line. Continuation lines are indented to the column of the explanation.
pub fn wrapped(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.trim_end().to_string();
    }
    let indent = hanging(line, columns);
    let mut text = String::new();
    let mut used = 0;
    for word in words(line) {
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

/// The words of a line, each with the spaces after it. The groups of digits of a number are one word: `1 344 212`.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    for (space, _) in line.match_indices(' ') {
        let (before, after) = (&line[..space], &line[space + 1..]);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if !(before.ends_with(|last: char| last.is_ascii_digit()) && digits == 3) {
            words.push(&line[start..=space]);
            start = space + 1;
        }
    }
    words.push(&line[start..]);
    words
}

/// The column of the explanation of an option, an argument, a figure or a command; for other lines, their indentation.
fn hanging(line: &str, columns: usize) -> usize {
    let width = |text: &str| text.chars().count();
    let own = width(line) - width(line.trim_start());
    let rest = line.trim_start();
    let explained =
        rest.find("  ").map(|gap| own + width(&rest[..gap]) + width(&rest[gap..]) - width(rest[gap..].trim_start()));
    match explained {
        Some(column) if column <= columns / 2 => column,
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tables_stay_whole() {
        let table = "a wide head\n-----------\n1 2 3 4 5 6\na line of prose below\n\n1 2 3 4 5 6\n";
        let expected = "a wide head\n-----------\n1 2 3 4 5 6\na line of\nprose below\n\n1 2 3\n4 5 6\n";
        assert_eq!(text(table, 5), expected);
    }

    #[test]
    fn long_lines_are_broken_beneath_their_explanation() {
        let line = "      --slab <SIZE>  Size of a slab, which holds blocks [bytes] [default: 64K]";
        let expected = "      --slab <SIZE>  Size of a slab, which\n                     holds blocks [bytes]\n                     [default: 64K]";
        assert_eq!(wrapped(line, 44), expected);
        assert_eq!(wrapped("short", 44), "short");
        assert_eq!(wrapped("", 44), "");
        assert_eq!(wrapped("Some words of prose", 10), "Some words\nof prose");
        assert_eq!(wrapped("words and 1 344 212 events", 13), "words and\n1 344 212\nevents", "a number stays whole");
        assert_eq!(wrapped(&"x".repeat(60), 44), "x".repeat(60), "a word stays whole");
        assert_eq!(wrapped("größe  ä ö ü ß é", 14), "größe  ä ö ü ß\n       é", "characters count, not bytes");
    }
}
