//! What commands print and write.

pub mod columns;
pub mod file;
pub mod help;
pub mod progress;
pub mod screen;
pub mod stated;
pub mod table;
pub mod trace;
pub use hksim_text::plain::{PlainLines, plain};
pub use hksim_text::units;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_explore::table::Table;
#[cfg(feature = "parquet")]
use hksim_sim::report::SCHEMA;
use serde::Serialize;

use hksim_text::plain::{plain_json, plain_lines, shortened};
use hksim_text::wrap;
use stated::Stated;

/// The format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs: all figures, and all inputs needed to run it again.
    Json,
    /// For spreadsheets: one line per row.
    Csv,
}

/// The format of a result that may go to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ResultFormat {
    /// For people.
    Table,
    /// For programs: all figures, and all inputs needed to run it again.
    Json,
    /// For spreadsheets: one line per row.
    Csv,
    /// For data frames: the columns of csv, typed and compressed (needs -o).
    Parquet,
}

impl ResultFormat {
    /// The format if it is text.
    pub fn text(self) -> Option<Format> {
        match self {
            ResultFormat::Table => Some(Format::Table),
            ResultFormat::Json => Some(Format::Json),
            ResultFormat::Csv => Some(Format::Csv),
            ResultFormat::Parquet => None,
        }
    }
}

impl From<Format> for ResultFormat {
    fn from(format: Format) -> ResultFormat {
        match format {
            Format::Table => ResultFormat::Table,
            Format::Json => ResultFormat::Json,
            Format::Csv => ResultFormat::Csv,
        }
    }
}

/// The destination and the format of a result.
#[derive(Clone, Debug, clap::Args)]
pub struct OutputArgs {
    /// Print the result in this format
    #[arg(long, value_enum, default_value = "table", help_heading = screen::HEADING)]
    pub format: ResultFormat,
    /// Write the result to a file instead of standard output (-)
    #[arg(short, long, value_name = "FILE", help_heading = screen::HEADING)]
    pub output: Option<PathBuf>,
}

impl OutputArgs {
    /// Checks that the result and the command's `others` outputs can be written, before the work starts.
    ///
    /// # Errors
    /// A file cannot be written, would replace one of the `inputs`, or is named twice.
    pub fn check(&self, others: &[Option<&Path>], inputs: &[Option<&Path>]) -> Result<()> {
        if self.format == ResultFormat::Parquet && self.file().is_none() {
            bail!("--format parquet: the result is binary; add -o FILE.parquet");
        }
        let outputs: Vec<&Path> = others.iter().copied().chain([self.file()]).flatten().collect();
        outputs.iter().try_for_each(|path| file::check(path))?;
        file::refuse_same(&outputs, inputs)
    }

    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !file::is_standard(path))
    }

    /// Writes a result. `rows` are its lines in CSV.
    ///
    /// # Errors
    /// The file or standard output cannot be written.
    pub fn emit<T: Serialize, R: Serialize>(
        &self,
        result: &T,
        rows: &[R],
        table: impl FnOnce() -> String,
    ) -> Result<()> {
        let Some(format) = self.format.text() else { return self.emit_parquet(rows) };
        let text = render(format, &Stated::new(result), rows, table)?;
        match self.file() {
            Some(path) => file::write(path, text.as_bytes()),
            None => match screen::terminal_columns().filter(|_| format == Format::Table) {
                Some(columns) => print(&wrap::text(&text, columns)),
                None => print(&text),
            },
        }
    }
}

#[cfg(feature = "parquet")]
impl OutputArgs {
    fn emit_parquet<R: Serialize>(&self, rows: &[R]) -> Result<()> {
        let table = table_of(rows)?;
        let metadata =
            [("hksim.version", hksim_sim::report::version().to_string()), ("hksim.schema", SCHEMA.to_string())];
        let mut file = Vec::new();
        hksim_explore::parquet_file::write(&table, &metadata, &mut file).context("result as Parquet")?;
        self.file().map_or(Ok(()), |path| file::write(path, &file))
    }
}

#[cfg(not(feature = "parquet"))]
impl OutputArgs {
    fn emit_parquet<R: Serialize>(&self, _rows: &[R]) -> Result<()> {
        bail!("--format parquet: this hksim was built without Parquet")
    }
}

fn table_of<R: Serialize>(rows: &[R]) -> Result<Table> {
    Table::of(rows).context("row as JSON")
}

/// Renders a result in a format.
///
/// # Errors
/// The result cannot be represented in the format.
pub fn render<T: Serialize, R: Serialize>(
    format: Format,
    result: &T,
    rows: &[R],
    table: impl FnOnce() -> String,
) -> Result<String> {
    Ok(match format {
        Format::Table => plain_lines(&table()).into_owned(),
        Format::Json => plain_json(serde_json::to_string_pretty(result).context("result as JSON")?) + "\n",
        Format::Csv => table_of(rows)?.csv(),
    })
}

/// Prints to standard output. A closed pipe (`| head`) is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    // CSV has the names as they are, which only a file or a program takes.
    let text = if out.is_terminal() { plain_lines(text) } else { text.into() };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("standard output: cannot write"),
    }
}

/// Prints a report of a recording on standard error, because standard output is the program's. It may be closed, or a pipe
/// that nobody reads: the recording is written anyway.
pub fn print_beside_program(text: &str) {
    let mut out = std::io::stderr().lock();
    let text = if out.is_terminal() { plain_lines(text) } else { text.into() };
    let _ = out.write_all(text.as_bytes());
}

/// Prints what was done, unless `--quiet` is given.
pub fn note(text: &str) {
    if !screen::is_quiet() {
        line(text);
    }
}

/// Prints what the user should know about the input, the machine or the result, even with `--quiet`.
pub fn warn(text: &str) {
    line(text);
}

/// Prints an error. Values in it may come from a file and have any length.
pub fn error(text: &str) {
    line(&shortened(text));
}

/// Prints what is read or how long it takes, with `--verbose`.
pub fn detail(text: &str) {
    if screen::is_verbose() {
        line(text);
    }
}

/// Prints a line on standard error.
fn line(text: &str) {
    // Continue even if standard error is closed.
    let _ = writeln!(std::io::stderr(), "hksim: {}", plain(text));
}
