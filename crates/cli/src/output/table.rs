//! Text tables.

/// A table whose first row is the head.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Left-aligned columns of words; all others are figures and right-aligned.
    words: Vec<usize>,
}

impl Table {
    /// A table with this head; `words` are the left-aligned columns.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>, words: &[usize]) -> Table {
        Table { rows: vec![head.into_iter().map(Into::into).collect()], words: words.to_vec() }
    }

    /// Appends a row.
    pub fn push<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// The lines, with a rule below the head and without trailing spaces.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut lines: Vec<String> = self.rows.iter().map(|row| self.line(row, &widths)).collect();
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        lines.insert(1, rule.join("  "));
        lines
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, &width))| {
            if self.words.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    }
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
        assert_eq!(text(&table.lines()), expected);
    }

    #[test]
    fn blocks_of_different_length_stand_beside() {
        let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(beside(&lines("ab\nc"), &lines("x\ny\nz")), lines("ab     x\nc      y\n       z"));
    }
}
