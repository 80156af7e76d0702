//! `hksim record --backend ltrace`: uses breakpoints, for programs into which no object can be preloaded.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use hksim_trace::import::{Format, Options, import};

use crate::commands::import::{Imported, table};
use crate::output::file::{self, Staged};
use crate::output::{Format as Form, note, render, warn};
use hksim_results::Stamp;

/// Breakpoints at the functions (-x) instead of at calls through the PLT (-e), because programs built with `-fno-plt`
/// and calls inside libc do not use the PLT. These breakpoints also show nested calls, which the importer leaves out.
const FUNCTIONS: &str =
    "malloc+calloc+realloc+reallocarray+free+cfree+posix_memalign+aligned_alloc+memalign+valloc+pvalloc";

/// Without an explicit filter `-e` selects everything.
const NOTHING: &str = "hksim_traces_no_such_call";

/// Runs the command in ltrace and imports the output. The report goes to standard error.
///
/// # Errors
/// ltrace is missing, or its output cannot be imported.
pub fn record<S: AsRef<OsStr>>(output: &Path, form: Form, command: &[S]) -> Result<()> {
    file::check_trace(output)?;
    let earlier = file::set_aside(output)?;
    let staged = Staged::new(output)?;
    let dir = tempfile::tempdir().context("a temporary directory for ltrace's output")?;
    let text = dir.path().join("ltrace.txt");
    let mut ltrace = Command::new("ltrace");
    ltrace.args(["-f", "-ttt", "-o"]).arg(&text).args(["-e", NOTHING, "-x", FUNCTIONS, "--"]).args(command);
    let status = match ltrace.status() {
        Ok(status) => status,
        Err(why) => bail!("cannot run ltrace ({why}); install it: apt install ltrace"),
    };
    if !status.success() {
        warn(&format!("ltrace or the program ended with {status}"));
    }
    let options = Options { format: Format::from_name("ltrace"), ..Options::default() };
    let report = import(&text, &options, staged.path())?;
    staged.keep()?;
    file::keep_earlier(earlier, form);
    let imported = Imported { stamp: Stamp::here(), file: output.display().to_string(), report };
    let text = render(form, &imported, &[&imported], || table(&imported))?;
    text.lines().for_each(note);
    Ok(())
}
