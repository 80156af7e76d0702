//! `hksim record`: what a program asks its allocator for.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use hksim_record::{Exit, Options, RecordReport, record};

use crate::commands::info::quality_lines;
use crate::output::{Format, note, render, units};

/// Arguments of `record`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to write; those of child processes are written beside it
    #[arg(short, long, value_name = "FILE.hkt", default_value = "hksim.hkt")]
    output: PathBuf,
    /// How the program is watched
    #[arg(long, value_name = "KIND", default_value = "preload", value_parser = ["preload"])]
    backend: String,
    /// Form of the report, which goes to standard error: standard output is the program's
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The program and its arguments; how it ended is in the report, hksim itself exits 0
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the program and writes its trace.
///
/// # Errors
/// A program that cannot be recorded.
pub fn run(args: &Args) -> Result<()> {
    if args.output.is_dir() {
        bail!("{}: is a directory; name a file for the trace", args.output.display());
    }
    let report = record(&Options { output: args.output.clone(), session_parent: None }, &args.command)?;
    let text = render(args.format, &report, &report.traces, || table(&report))?;
    match args.format {
        Format::Table => text.lines().for_each(note),
        Format::Json | Format::Csv => eprint_all(&text),
    }
    Ok(())
}

/// Standard error may be closed; the trace is written all the same.
fn eprint_all(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn table(report: &RecordReport) -> String {
    let mut text = String::new();
    match report.exit {
        Some(Exit::Code(0)) | None => (),
        Some(Exit::Code(code)) => text += &format!("the program exited with {code}\n"),
        Some(Exit::Signal(signal)) => text += &format!("signal {signal} ended the program\n"),
    }
    if let Some((own, others)) = report.traces.split_first() {
        let [events, objects] = [own.events, u64::from(own.objects_peak)].map(units::count);
        let (path, threads) = (own.path.display(), own.threads);
        text += &format!("{path}: {events} events, {threads} threads, up to {objects} objects live at once\n");
        text += &quality_lines(&own.quality);
        // A shell script can start hundreds; JSON and CSV list them.
        if !others.is_empty() {
            let events = units::count(others.iter().map(|other| other.events).sum());
            text += &format!("beside it: {} traces of other processes and images, {events} events\n", others.len());
        }
    }
    if !report.unrecorded_pids.is_empty() {
        text += &format!("not recorded for want of room: processes {:?}\n", report.unrecorded_pids);
    }
    text
}
