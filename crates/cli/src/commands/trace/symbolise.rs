//! `hksim trace symbolise`: stores the names of call sites in a trace.

use std::path::PathBuf;

use anyhow::Result;
use hksim_trace::event::Event;
use hksim_trace::header::{Footer, Header, HistoryStep};
use hksim_trace::sites::Sites;
use hksim_trace::source::EventSource;
use hksim_trace::tools::{Edit, rewrite};
use serde::Serialize;

use super::{ToolReport, count_lines, open};
use crate::output::trace::TraceOut;
use crate::output::warn;
use hksim_trace::symbols::Symbols;

/// Arguments of `trace symbolise`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Names come from the files that ran, found by path and build id, and from /usr/lib/debug/.build-id. A \
                       file of another build is not used.\n\nExamples:\n  hksim trace symbolise app.hkt -o named.hkt"
)]
pub struct Args {
    /// Name the call sites of this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    #[command(flatten)]
    out: TraceOut,
}

#[derive(Debug, Serialize)]
struct Named {
    sites: u64,
    frames: u64,
    frames_named: u64,
}

/// Copies a trace with other call sites.
struct WithSites(Sites);

impl Edit for WithSites {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        emit(*event);
    }

    fn header(&self, source: &Header) -> Header {
        let history = source.history.iter().cloned().chain([HistoryStep::new("symbolise", [])]).collect();
        Header { history, ..source.clone() }
    }

    fn footer(&self, source: &Footer) -> Footer {
        Footer { sites: self.0.clone(), ..source.clone() }
    }
}

/// Looks up names and writes the trace with them.
///
/// # Errors
/// The input is not a trace, or the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let mut reader = open(&args.trace)?;
    let mut symbols = Symbols::default();
    let sites = symbols.sites(&reader.footer().sites);
    symbols.notes(&sites).iter().for_each(|line| warn(line));
    let counts = Named {
        sites: sites.stacks.len() as u64,
        frames: sites.frames.len() as u64,
        frames_named: sites.frames.iter().filter(|frame| frame.function.is_some()).count() as u64,
    };
    let lines =
        count_lines([(counts.sites, "call sites"), (counts.frames, "frames"), (counts.frames_named, "of them named")]);
    let mut edit = WithSites(sites);
    let summary = args.out.write(&[&args.trace], |path| rewrite(&mut reader, &mut edit, path))?;
    ToolReport::print("symbolise", &args.out, summary, counts, &lines)
}
