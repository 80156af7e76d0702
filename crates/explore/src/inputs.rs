//! Traces to simulate: files and built-in workloads.

use std::path::{Path, PathBuf};

use hksim_sim::Input;
use hksim_sim::report::TraceLabel;
use hksim_trace::error::TraceError;
use hksim_trace::generate::{RandomMixed, Server, Workload};
use hksim_trace::header::{Header, Summary};
use hksim_trace::hkt::{TraceReader, TraceWriter};
use hksim_trace::profile::WithProfiles;
use hksim_trace::source::EventSource;

use crate::origin::origin_text;

/// A trace that was opened successfully once.
pub struct Trace {
    /// How the simulator opens it.
    pub input: Input,
    /// Its header.
    pub header: Header,
    /// Its size.
    pub summary: Summary,
    /// Where and why the file ends early, if it does.
    pub tail: Option<String>,
    /// Events that its recorder lost.
    pub events_lost: u64,
    checksum: Option<u32>,
}

impl Trace {
    /// Opens a trace file, which may be truncated.
    ///
    /// # Errors
    /// The file cannot be read as a trace.
    pub fn file(path: &Path) -> Result<Trace, TraceError> {
        let reader = TraceReader::open(path)?;
        let tail = reader.tail().map(|tail| tail.to_string());
        let events_lost = reader.footer().quality.lost();
        let (header, summary, checksum) = (reader.header().clone(), *reader.summary(), reader.checksum());
        let path: PathBuf = path.to_path_buf();
        let file = Some(path.display().to_string());
        let open = move || -> Result<Box<dyn EventSource + Send>, TraceError> {
            Ok(Box::new(WithProfiles::new(TraceReader::open(&path)?)))
        };
        Ok(Trace { input: Input { file, open: Box::new(open) }, header, summary, tail, events_lost, checksum })
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

    /// Writes the trace to a file, from which it can be replayed.
    ///
    /// # Errors
    /// The trace cannot be read, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TraceError> {
        let mut source = (self.input.open)()?;
        let mut writer = TraceWriter::create(path, source.header())?;
        while let Some(batch) = source.next_batch()? {
            for event in batch {
                writer.push(event)?;
            }
        }
        writer.finish(source.footer())?;
        Ok(())
    }

    /// A generated trace, without a file.
    ///
    /// # Errors
    /// Its parameters are invalid.
    pub fn workload(workload: Workload) -> Result<Trace, TraceError> {
        let source = workload.source()?;
        let (header, summary) = (source.header().clone(), *source.summary());
        let input = Input { file: None, open: Box::new(move || workload.source()) };
        Ok(Trace { input, header, summary, tail: None, events_lost: 0, checksum: None })
    }

    /// The workloads of a sweep without a trace: one with a small live set, on which all designs look alike, and one with a
    /// large live set.
    ///
    /// # Errors
    /// None: the default parameters are valid.
    pub fn built_in() -> Result<Vec<Trace>, TraceError> {
        let workloads = [Workload::RandomMixed(RandomMixed::default()), Workload::Server(Server::default())];
        workloads.into_iter().map(Trace::workload).collect()
    }
}
