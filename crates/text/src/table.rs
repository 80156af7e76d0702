//! Text tables.

use std::ops::Range;

use crate::plain::plain;
use crate::wrap::wrapped;

/// The minimum width of a column of words that is wrapped.
const WORDS_MIN: usize = 24;
/// Between two columns.
const GAP: usize = 2;

/// A table whose first row is the head. It is fitted to a screen: optional columns are left out, then columns of words
/// are wrapped.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Left-aligned columns of words; all others are figures and right-aligned.
    words: Vec<usize>,
    /// Groups of columns to leave out together, the least important first.
    optional: Vec<Vec<usize>>,
    /// Columns that become one column of words, named by this word, if the table is too wide otherwise.
    joined: Option<(Range<usize>, &'static str)>,
}

impl Table {
    /// A table with this head; `words` are the left-aligned columns.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>, words: &[usize]) -> Table {
        let rows = vec![head.into_iter().map(Into::into).collect()];
        Table { rows, words: words.to_vec(), optional: Vec::new(), joined: None }
    }

    /// Names the groups of columns that may be left out, the least important first.
    pub fn with_optional(self, optional: Vec<Vec<usize>>) -> Table {
        Table { optional, ..self }
    }

    /// Names the columns that may become one column of words (`superslab 1M, huge never`), and its head.
    pub fn with_joined(self, columns: Range<usize>, head: &'static str) -> Table {
        Table { joined: Some((columns, head)), ..self }
    }

    /// Appends a row.
    pub fn push<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        // A name may contain line breaks, which would look like further rows.
        self.rows.push(row.into_iter().map(|cell| plain(&cell.into()).into_owned()).collect());
    }

    /// The head and the rows, each with the cells of all columns that it has.
    pub fn rows(&self) -> impl Iterator<Item = &[String]> {
        self.rows.iter().map(Vec::as_slice)
    }

    /// The names of the columns.
    pub fn head(&self) -> &[String] {
        self.rows.first().map_or(&[], Vec::as_slice)
    }

    /// The table with these columns, in this order; none of them is optional. A column without a name gets the name
    /// `unnamed`.
    pub fn with_columns(&self, columns: &[usize], unnamed: &str) -> Table {
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let chosen = |row: &Vec<String>| columns.iter().map(|&column| cell(row, column)).collect();
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(chosen).collect();
        for name in rows.first_mut().into_iter().flatten().filter(|name| name.is_empty()) {
            *name = unnamed.to_string();
        }
        let words = (0..columns.len()).filter(|&at| self.is_words(columns[at])).collect();
        Table { rows, words, ..Table::default() }
    }

    /// Whether a column has words, which are left-aligned.
    pub fn is_words(&self, column: usize) -> bool {
        self.words.contains(&column)
    }

    /// The lines for a screen of this many columns, with a rule below the head and without trailing spaces; then the
    /// columns left out, if there are any. `usize::MAX`: in full.
    pub fn fitted(&self, screen: usize) -> Vec<String> {
        let mut shown: Vec<(usize, usize)> = self.widths().into_iter().enumerate().collect();
        let mut left_out = Vec::new();
        let mut optional = self.optional.iter();
        while total(&shown) > screen
            && let Some(least) = optional.next()
        {
            shown.retain(|(column, _)| !least.contains(column));
            left_out.extend(least.iter().filter_map(|&column| self.rows[0].get(column)).map(String::as_str));
        }
        self.narrow_words(&mut shown, screen, |column| self.longest_word(column).max(WORDS_MIN));
        if total(&shown) > screen
            && let Some((columns, head)) = self.joined.as_ref().filter(|(columns, _)| columns.len() > 1)
        {
            return self.with_one(columns, head).fitted(screen);
        }
        // At last words are broken: names of files can be long.
        self.narrow_words(&mut shown, screen, |_| WORDS_MIN);
        let mut lines: Vec<String> = self.rows.iter().flat_map(|row| self.row_lines(row, &shown)).collect();
        let rule: Vec<String> = shown.iter().map(|&(_, width)| "-".repeat(width)).collect();
        let head_lines = self.rows.first().map_or(0, |head| self.row_lines(head, &shown).len());
        lines.insert(head_lines, rule.join(&" ".repeat(GAP)));
        if !left_out.is_empty() {
            lines.push(format!("left out: {} (--wide)", left_out.join(", ")));
        }
        lines
    }

    /// The table with one column of words in place of several columns.
    fn with_one(&self, columns: &Range<usize>, head: &str) -> Table {
        let names = self.rows.first().map_or(&[][..], |row| row.get(columns.clone()).unwrap_or_default());
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let cells = row.get(columns.clone()).unwrap_or_default();
            let pairs = names.iter().zip(cells).map(|(name, cell)| format!("{name} {cell}"));
            let one = if number == 0 { head.to_string() } else { pairs.collect::<Vec<_>>().join(", ") };
            let before = row.iter().take(columns.start).cloned();
            before.chain([one]).chain(row.iter().skip(columns.end).cloned()).collect()
        });
        let moved = |&column: &usize| match column {
            column if column < columns.end => column.min(columns.start),
            column => column + 1 - columns.len(),
        };
        let mut words: Vec<usize> = self.words.iter().map(moved).chain([columns.start]).collect();
        words.dedup();
        let optional = self.optional.iter().map(|group| group.iter().map(moved).collect());
        Table { rows: rows.collect(), words, optional: optional.collect(), joined: None }
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        (0..columns).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect()
    }

    /// Narrows the widest columns of words until the table fits, if they can be: each down to `width_min`.
    fn narrow_words(&self, shown: &mut [(usize, usize)], screen: usize, width_min: impl Fn(usize) -> usize) {
        loop {
            let excess = total(shown).saturating_sub(screen);
            let can_be_wrapped =
                |&&mut (column, width): &&mut (usize, usize)| self.words.contains(&column) && width > width_min(column);
            let widest = shown.iter_mut().filter(can_be_wrapped).max_by_key(|column| column.1);
            match widest {
                Some(widest) if excess > 0 => {
                    widest.1 = widest.1.saturating_sub(excess).max(width_min(widest.0));
                }
                _ => return,
            }
        }
    }

    /// The length of the longest word of a column.
    fn longest_word(&self, column: usize) -> usize {
        let words = self.rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| cell.split(' '));
        words.map(|word| word.chars().count()).max().unwrap_or(0)
    }

    /// A row; cells of words may need several lines.
    fn row_lines(&self, row: &[String], shown: &[(usize, usize)]) -> Vec<String> {
        let cells: Vec<Vec<String>> = shown
            .iter()
            .map(|&(column, width)| {
                let cell = row.get(column).map_or("", String::as_str);
                if self.is_words(column) {
                    wrapped(&broken(cell, width), width).lines().map(str::to_string).collect()
                } else {
                    vec![cell.to_string()]
                }
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1).max(1);
        (0..height).map(|line| self.line(&cells, shown, line)).collect()
    }

    fn line(&self, cells: &[Vec<String>], shown: &[(usize, usize)], line: usize) -> String {
        let cells = cells.iter().zip(shown).map(|(cell, &(column, width))| {
            let cell = cell.get(line).map_or("", String::as_str);
            if self.is_words(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_string()
    }
}

/// The text with spaces in words that are longer than a column.
fn broken(text: &str, width: usize) -> String {
    let parts = |word: &str| {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(width.max(1)).map(String::from_iter).collect::<Vec<String>>().join(" ")
    };
    text.split(' ').map(parts).collect::<Vec<String>>().join(" ")
}

/// The width of a table with these columns.
fn total(shown: &[(usize, usize)]) -> usize {
    shown.iter().map(|column| column.1 + GAP).sum::<usize>().saturating_sub(GAP)
}

/// Two blocks of lines, side by side.
pub fn beside(left: &[String], right: &[String]) -> Vec<String> {
    let width = left.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let line = |index: usize| {
        let cell = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
        format!("{:<width$}     {}", cell(left), cell(right)).trim_end().to_string()
    };
    (0..left.len().max(right.len())).map(line).collect()
}

/// Lines as text.
pub fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_figures_right() {
        let mut table = Table::new(["name", "figure"], &[0]);
        table.push(["a", "1"]);
        table.push(["long name", "1 000 000"]);
        let expected = "name          figure\n---------  ---------\na                  1\nlong name  1 000 000\n";
        assert_eq!(text(&table.fitted(usize::MAX)), expected);
    }

    #[test]
    fn a_wide_table_leaves_out_columns_then_wraps_words() {
        let mut table = Table::new(["design", "a", "b", "c"], &[0]).with_optional(vec![vec![2], vec![1]]);
        table.push(["--superslab 1M --huge never --purge none", "100 000", "200 000", "7"]);
        assert_eq!(table.fitted(80).len(), 3, "it fits");
        let shorter = [
            "design                                          a  c",
            "----------------------------------------  -------  -",
            "--superslab 1M --huge never --purge none  100 000  7",
            "left out: b (--wide)",
        ];
        assert_eq!(table.fitted(55), shorter);
        let wrapped = [
            "design                       c",
            "---------------------------  -",
            "--superslab 1M --huge never  7",
            "--purge none",
            "left out: b, a (--wide)",
        ];
        assert_eq!(table.fitted(30), wrapped);
        assert!(table.fitted(10).iter().all(|line| line.chars().count() <= WORDS_MIN + GAP + 1));
    }

    #[test]
    fn many_columns_of_settings_become_one() {
        let head = ["#", "huge", "superslab", "purge-delay", "slab-choice", "installs", "RSS"];
        let mut table = Table::new(head, &[1, 2, 3, 4]).with_optional(vec![vec![6]]).with_joined(1..5, "design");
        table.push(["0", "never", "1M", "100ms", "oldest", "1 000", "9"]);
        assert_eq!(table.fitted(70).len(), 3, "it fits");
        let joined = [
            "#  design                         installs",
            "-  -----------------------------  --------",
            "0  huge never, superslab 1M,         1 000",
            "   purge-delay 100ms,",
            "   slab-choice oldest",
            "left out: RSS (--wide)",
        ];
        assert_eq!(table.fitted(42), joined);
    }

    #[test]
    fn a_name_that_does_not_fit_is_broken() {
        let mut table = Table::new(["trace", "huge", "installs"], &[0, 1]).with_joined(0..2, "design");
        table.push(["a-recording-of-a-server-with-a-long-name.hkt", "thp", "7"]);
        let broken = [
            "design                    installs",
            "------------------------  --------",
            "trace                            7",
            "a-recording-of-a-server-",
            "with-a-long-name.hkt,",
            "huge thp",
        ];
        assert_eq!(table.fitted(34), broken);
    }

    #[test]
    fn blocks_of_different_length_stand_beside() {
        let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(beside(&lines("ab\nc"), &lines("x\ny\nz")), lines("ab     x\nc      y\n       z"));
    }
}
