//! Which columns of a table are printed: `--columns`.

use anyhow::{Result, bail};
use hksim_text::nearest::nearest;

use super::table::{Table, text};
use super::{OutputArgs, ResultFormat, screen};

/// Stands for every column.
const ALL: &str = "all";

/// The name of the column of marks, which has no head in a full table.
pub const FRONT: &str = "front";

/// The columns to print, of commands whose result is a table.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ColumnsArgs {
    /// Print the table alone, with these columns in this order, by their names in the table (- may replace a space):
    /// huge,installs,RSS-peak; all: every column
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse, help_heading = screen::HEADING, hide_short_help = true)]
    columns: Vec<String>,
}

fn parse(name: &str) -> Result<String, String> {
    if name.trim().is_empty() { Err("a column's name is missing".into()) } else { Ok(name.to_string()) }
}

/// Whether `name` names the column `known`. Case matters: `thp` is a flag, and `THP` counts huge pages.
fn names(name: &str, known: &str) -> bool {
    let spaced = |name: &str| name.trim().replace('-', " ");
    spaced(name) == spaced(known)
}

/// The name that was probably meant, as a question.
fn question<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let lower: Vec<String> = known.clone().map(str::to_lowercase).collect();
    let meant = nearest(&name.to_lowercase().replace('-', " "), lower.iter().map(String::as_str));
    let meant = meant.and_then(|meant| known.zip(&lower).find(|(_, lower)| *lower == meant));
    meant.map_or(String::new(), |(known, _)| format!("; did you mean {known}?"))
}

impl ColumnsArgs {
    /// Whether the table is to be printed alone.
    pub fn is_given(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Whether this column is to be printed because it was named: a table shows it although it distinguishes no rows.
    pub fn names(&self, column: &str) -> bool {
        self.columns.iter().any(|name| names(name, column))
    }

    /// Checks the names, before the work starts. The table may have columns of these figures, and of these flags.
    ///
    /// # Errors
    /// No column has the name, or the result is not printed as a table.
    pub fn check(&self, output: &OutputArgs, figures: &[&str], flags: &[&str]) -> Result<()> {
        if !self.is_given() {
            return Ok(());
        }
        if output.format != ResultFormat::Table {
            bail!("--columns: chooses columns of the table; leave out --format, or choose fields of the file");
        }
        for name in self.columns.iter().filter(|name| *name != ALL) {
            let known = || figures.iter().chain(flags).copied();
            if !known().any(|known| names(name, known)) {
                let meant = question(name, known());
                let flags = if flags.is_empty() { "" } else { ", the name of a flag that sets a design or a kernel" };
                bail!("--columns {name}: no such column{meant}; columns are {}{flags}, or {ALL}", figures.join(", "));
            }
        }
        Ok(())
    }

    /// The lines of a table that has all named columns: those columns alone.
    pub fn lines(&self, table: &Table) -> Vec<String> {
        let head: Vec<&str> = table.head().iter().map(|name| if name.is_empty() { FRONT } else { name }).collect();
        let with = |name: &String| {
            let columns = 0..head.len();
            columns.filter(|&column| name == ALL || names(name, head[column])).collect::<Vec<usize>>()
        };
        let chosen: Vec<usize> = self.columns.iter().flat_map(with).collect();
        table.with_columns(&chosen, FRONT).fitted(usize::MAX)
    }

    /// Tables, each with a heading if there are several.
    pub fn text(&self, tables: &[(String, Table)]) -> String {
        let one = |(heading, table): &(String, Table)| {
            let heading = (tables.len() > 1).then(|| heading.clone());
            text(&heading.into_iter().chain(self.lines(table)).collect::<Vec<_>>())
        };
        tables.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn columns(names: &[&str]) -> ColumnsArgs {
        ColumnsArgs { columns: names.iter().map(|name| name.to_string()).collect() }
    }

    fn table() -> Table {
        let mut table = Table::new(["#", "purge-delay", "installs", "RSS peak", ""], &[1]);
        table.push(["0", "100ms", "1 000", "*9 KiB", "P"]);
        table.push(["1", "off", "7", "10 KiB", ""]);
        table
    }

    #[test]
    fn columns_come_in_the_order_of_their_names() {
        let text = |names: &[&str]| text(&columns(names).lines(&table()));
        assert_eq!(text(&["RSS peak", "#"]), "RSS peak  #\n--------  -\n  *9 KiB  0\n  10 KiB  1\n");
        assert_eq!(text(&["RSS-peak", "purge delay"]), text(&["RSS peak", "purge-delay"]));
        assert_eq!(
            text(&["front", "installs"]),
            "front  installs\n-----  --------\n    P     1 000\n              7\n"
        );
        assert_eq!(text(&["all"]).lines().next(), Some("#  purge-delay  installs  RSS peak  front"));
    }

    #[test]
    fn several_tables_get_headings() {
        let tables = [("a.hkt".to_string(), table()), ("b.hkt".to_string(), table())];
        let chosen = columns(&["#"]);
        assert_eq!(chosen.text(&tables[..1]), "#\n-\n0\n1\n");
        assert_eq!(chosen.text(&tables), "a.hkt\n#\n-\n0\n1\n\nb.hkt\n#\n-\n0\n1\n");
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_nearest() {
        let output = |format: Format| OutputArgs { format: format.into(), output: None };
        let figures = ["#", "installs", "RSS peak", FRONT];
        let check = |names: &[&str], format| columns(names).check(&output(format), &figures, &["purge-delay"]);
        assert!(check(&["RSS-peak", "front", "all", "purge delay"], Format::Table).is_ok());
        assert!(check(&[], Format::Json).is_ok());
        for (name, meant) in [("rss-peak", "RSS peak"), ("RSS-peek", "RSS peak"), ("purgedelay", "purge-delay")] {
            let said = check(&[name], Format::Table).expect_err("no such column").to_string();
            assert!(said.contains(&format!("; did you mean {meant}?; columns are ")), "{said}");
        }
        let said = check(&["#", "instals"], Format::Table).expect_err("no such column").to_string();
        let expected = "--columns instals: no such column; did you mean installs?; columns are #, installs, RSS peak, front, \
                        the name of a flag that sets a design or a kernel, or all";
        assert_eq!(said, expected);
        let said =
            columns(&["#"]).check(&output(Format::Table), &["traps"], &[]).expect_err("no such column").to_string();
        assert_eq!(said, "--columns #: no such column; columns are traps, or all");
        assert!(check(&["#"], Format::Csv).expect_err("no table").to_string().starts_with("--columns: "));
    }
}
