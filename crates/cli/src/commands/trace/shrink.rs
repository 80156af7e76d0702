//! `hksim trace shrink`: finds a smaller trace with the same property.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use hksim_policy::units::parse_count;
use hksim_sim::SimConfig;
use hksim_sim::simulate::{Marks, simulate};
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use hksim_trace::shrink::{Property, Search, Trial, figures};
use hksim_trace::source::EventSource;
use hksim_trace::tools::{Edited, Keep, Selection, copy};
use serde::Serialize;
use serde_json::{Value, json};

use super::{ToolReport, open};
use crate::flags::{BaseKernel, PolicyArgs};
use crate::inputs;
use crate::output::note;
use crate::output::trace::TraceOut;
use crate::output::units;
use crate::runs::setup;

/// Arguments of `trace shrink`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Figures are those of `hksim sim --format json` by dotted name (faults, installs.total, \
                       rss_bytes_peak, os_calls.madvise), and `allocations`. Shrinking first drops events without an object \
                       (free(NULL), failed calls, marks), then threads, then sizes, then ever shorter ranges. The result \
                       has the property. When the tries are used up, a smaller trace may exist.\n\nExamples:\n  hksim trace shrink app.hkt --keep 'faults > 1000' -o small.hkt\n  hksim trace shrink app.hkt --while './reproduces {}' -o small.hkt")]
pub struct Args {
    /// Shrink this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Require this property of the prediction: 'installs.total/allocations > 0.2'
    #[arg(long, value_name = "PROPERTY", group = "what")]
    keep: Option<Property>,
    /// Require this shell command to succeed; {} is replaced by the candidate trace, quoted if needed
    #[arg(long = "while", value_name = "CMD", group = "what", value_parser = parse_command)]
    command: Option<String>,
    /// Try at most this many candidates
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "500")]
    tries: u64,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    out: TraceOut,
}

fn parse_command(text: &str) -> Result<String, String> {
    match text.contains("{}") {
        true => Ok(text.to_string()),
        false => Err(format!("`{text}` does not use the candidate trace; put {{}} where its name belongs")),
    }
}

#[derive(Debug, Serialize)]
struct Shrunk {
    events_before: u64,
    tries: u64,
    tries_exhausted: bool,
}

/// Shrinks the trace.
///
/// # Errors
/// The input is not a trace or lacks the property, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let mut reader = open(&args.trace)?;
    args.out.check(&[&args.trace])?;
    let events_before = reader.summary().events;
    let (selection, tries_left, parameters) = match (&args.keep, &args.command) {
        (Some(property), _) => {
            let config = args.policy.config()?;
            let trace = inputs::file(&args.trace)?;
            let setup = setup(&config, &trace, BaseKernel::AsItComes)?;
            let design = serde_json::to_value(setup.policy).context("the design as JSON")?;
            let trial = Predicted { path: &args.trace, property, setup };
            let (selection, left) = search(&mut reader, trial, args)?;
            (selection, left, vec![("keep".to_string(), json!(property.to_string())), ("policy".to_string(), design)])
        }
        (_, Some(command)) => {
            let folder = tempfile::tempdir().context("cannot create a temporary directory for candidates")?;
            let candidate = folder.path().join("candidate.hkt");
            let trial = Commanded { path: &args.trace, command, candidate: &candidate };
            let (selection, left) = search(&mut reader, trial, args)?;
            (selection, left, vec![("while".to_string(), json!(command))])
        }
        _ => bail!("say what to keep: --keep 'faults > 1000', or --while 'CMD {{}}'"),
    };
    let summary = args.out.write(&[&args.trace], |path| copy(&mut kept(&args.trace, selection, parameters)?, path))?;
    let shrunk = Shrunk { events_before, tries: args.tries - tries_left, tries_exhausted: tries_left == 0 };
    let share = units::percent(summary.events, events_before);
    let more = if shrunk.tries_exhausted { "; more --tries may find a smaller one" } else { "" };
    let line = format!("{share} of {} events, after {} tries{more}\n", units::count(events_before), shrunk.tries);
    ToolReport::print("shrink", &args.out, summary, shrunk, &line)
}

fn search<T: Trial<Error = anyhow::Error>>(
    reader: &mut TraceReader,
    trial: T,
    args: &Args,
) -> Result<(Selection, u64)> {
    let mut search = Search::new(reader, trial, args.tries)?;
    if !search.begins()? {
        bail!("{}: the whole trace does not have the property, so there is nothing to keep", args.trace.display());
    }
    search.run()
}

type Kept = Edited<TraceReader, Keep>;

fn kept(
    path: &Path,
    selection: Selection,
    parameters: Vec<(String, Value)>,
) -> Result<Kept, hksim_trace::error::TraceError> {
    Edited::new(TraceReader::open(path)?, Keep::new(selection, parameters))
}

/// Checks the property in the simulator.
struct Predicted<'a> {
    path: &'a Path,
    property: &'a Property,
    setup: SimConfig,
}

impl Trial for Predicted<'_> {
    type Error = anyhow::Error;

    fn holds(&mut self, selection: &Selection) -> Result<bool> {
        let allocations = selection.lifetimes.count();
        let mut source = WithProfiles::new(kept(self.path, selection.clone(), Vec::new())?);
        let simulated = simulate(&mut source, &self.setup, Marks::Skip, &|_| {})?;
        let mut figures = figures(&serde_json::to_value(&simulated.report).context("the prediction as JSON")?);
        figures.insert("allocations".into(), allocations as f64);
        let value = self.property.value(&figures).map_err(|why| anyhow!("--keep: {why}"))?;
        let holds = self.property.holds(value);
        if holds && std::io::stderr().is_terminal() {
            note(&format!("{} events: {value}", units::count(source.summary().events)));
        }
        Ok(holds)
    }
}

/// Checks the property with a command.
struct Commanded<'a> {
    path: &'a Path,
    command: &'a str,
    candidate: &'a Path,
}

impl Trial for Commanded<'_> {
    type Error = anyhow::Error;

    fn holds(&mut self, selection: &Selection) -> Result<bool> {
        copy(&mut kept(self.path, selection.clone(), Vec::new())?, self.candidate)?;
        let candidate = shell_word(self.candidate.as_os_str().as_bytes());
        let command =
            OsString::from_vec(self.command.split("{}").map(str::as_bytes).collect::<Vec<_>>().join(&candidate[..]));
        let output = Command::new("/bin/sh").arg("-c").arg(&command).output();
        let status = output.with_context(|| format!("--while: cannot run `{}`", self.command))?.status;
        Ok(status.success())
    }
}

/// A name quoted as one shell word. A name that needs no quotes gets none, so that it can be used inside quotes.
fn shell_word(name: &[u8]) -> Vec<u8> {
    if name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(byte)) {
        return name.to_vec();
    }
    let parts: Vec<&[u8]> = name.split(|&byte| byte == b'\'').collect();
    [&b"'"[..], &parts.join(&b"'\\''"[..]), b"'"].concat()
}
