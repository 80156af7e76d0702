//! Traces that commands read: files and built-in workloads.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_sim::Input;
use hksim_sim::report::TraceLabel;
use hksim_trace::error::TraceError;
use hksim_trace::generate::{RandomMixed, Server, Workload};
use hksim_trace::header::{Header, Summary};
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use hksim_trace::source::EventSource;

use crate::commands::info::origin_text;
use crate::output::{detail, units, warn};

/// A trace that was opened successfully once.
pub struct Trace {
    /// How the simulator opens it.
    pub input: Input,
    /// Its header.
    pub header: Header,
    /// Its size.
    pub summary: Summary,
    checksum: Option<u32>,
    /// Events that its recorder lost.
    events_lost: u64,
    /// Whether its end is missing.
    pub is_truncated: bool,
}

impl Trace {
    /// Opens a trace file. Prints a note if it is truncated, or if its recorder lost events.
    ///
    /// # Errors
    /// The file cannot be read as a trace.
    pub fn file(path: &Path) -> Result<Trace> {
        let reader = TraceReader::open(path)?;
        if let Some(tail) = reader.tail() {
            warn(&format!(
                "{}: {tail}; continuing with the {} events before it",
                path.display(),
                reader.summary().events
            ));
        }
        let (events_lost, is_truncated) = (reader.footer().quality.lost(), reader.tail().is_some());
        if events_lost > 0 {
            warn(&format!("{}: the recorder lost {}", path.display(), units::of(events_lost, "event")));
        }
        let (header, summary, checksum) = (reader.header().clone(), *reader.summary(), reader.checksum());
        let events = units::count(summary.events);
        detail(&format!("reading {}: {events} events; {}", path.display(), origin_text(&header.origin)));
        let path: PathBuf = path.to_path_buf();
        let file = Some(path.display().to_string());
        let open = move || -> Result<Box<dyn EventSource + Send>, TraceError> {
            Ok(Box::new(WithProfiles::new(TraceReader::open(&path)?)))
        };
        let input = Input { file, open: Box::new(open) };
        Ok(Trace { input, header, summary, checksum, events_lost, is_truncated })
    }

    /// Opens trace files. Prints a note for each file that is given twice.
    ///
    /// # Errors
    /// As for [`Trace::file`].
    pub fn files(paths: &[PathBuf]) -> Result<Vec<Trace>> {
        for (index, path) in paths.iter().enumerate() {
            if paths[..index].contains(path) {
                warn(&format!("{}: given twice, so it counts twice", path.display()));
            }
        }
        paths.iter().map(|path| Trace::file(path)).collect()
    }

    /// Its name in messages: the file, or the origin of a generated trace.
    pub fn name(&self) -> String {
        self.input.file.clone().unwrap_or_else(|| origin_text(&self.header.origin))
    }

    /// The label of the trace in a result.
    pub fn label(&self) -> TraceLabel {
        TraceLabel {
            file: self.input.file.clone(),
            checksum: self.checksum.map(|crc| format!("{crc:08x}")),
            origin: self.header.origin.clone(),
            touch_source: self.header.touch,
            clock: self.header.clock,
            complete: self.summary.complete,
            events_lost: self.events_lost,
        }
    }

    /// A generated trace, without a file.
    ///
    /// # Errors
    /// Its parameters are invalid.
    pub fn workload(workload: Workload) -> Result<Trace> {
        let source = workload.source()?;
        let (header, summary) = (source.header().clone(), *source.summary());
        let input = Input { file: None, open: Box::new(move || workload.source()) };
        Ok(Trace { input, header, summary, checksum: None, events_lost: 0, is_truncated: false })
    }

    /// The workloads of a sweep without a trace: one with a small live set, on which all designs look alike, and one with a
    /// large live set.
    ///
    /// # Errors
    /// None: the default parameters are valid.
    pub fn built_in() -> Result<Vec<Trace>> {
        let workloads = [Workload::RandomMixed(RandomMixed::default()), Workload::Server(Server::default())];
        workloads.into_iter().map(Trace::workload).collect()
    }
}
