//! `hksim record --backend ltrace`: breakpoints in place of a preloaded object, for programs that cannot be recorded so.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use hksim_trace::import::{Format, Options, import};

use crate::commands::import::{Imported, table};
use crate::output::file::{self, Staged};
use crate::output::{Format as Form, note, render};

/// Breakpoints at the functions themselves (-x), not at calls through the PLT (-e): a program built with `-fno-plt` has
/// none, and calls from inside libc go through none. The nested calls that are seen so are left out by the importer.
const FUNCTIONS: &str =
    "malloc+calloc+realloc+reallocarray+free+cfree+posix_memalign+aligned_alloc+memalign+valloc+pvalloc";

/// Without a choice of its own `-e` is everything.
const NOTHING: &str = "hksim_traces_no_such_call";

/// Runs the command in ltrace and imports what that wrote. The report goes to standard error.
///
/// # Errors
/// There is no ltrace, or it wrote nothing that can be imported.
pub fn record<S: AsRef<OsStr>>(output: &Path, form: Form, command: &[S]) -> Result<()> {
    file::check_trace(output)?;
    let staged = Staged::new(output)?;
    let dir = tempfile::tempdir().context("a temporary directory for ltrace's output")?;
    let text = dir.path().join("ltrace.txt");
    let mut ltrace = Command::new("ltrace");
    ltrace.args(["-f", "-ttt", "-o"]).arg(&text).args(["-e", NOTHING, "-x", FUNCTIONS, "--"]).args(command);
    let status = match ltrace.status() {
        Ok(status) => status,
        Err(why) => bail!("ltrace cannot be run ({why}); apt install ltrace"),
    };
    if !status.success() {
        note(&format!("ltrace or the program ended with {status}"));
    }
    let options = Options { format: Format::from_name("ltrace"), process: None };
    let report = import(&text, &options, staged.path())?;
    staged.keep()?;
    let imported = Imported { schema: hksim_sim::report::SCHEMA, file: output.display().to_string(), report };
    let text = render(form, &imported, &[&imported], || table(&imported))?;
    text.lines().for_each(note);
    Ok(())
}
