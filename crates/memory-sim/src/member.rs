//! One recording of a family. Its file is open only while its process lives: a family can have more recordings than a process
//! may have open files.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use hksim_memory_trace::{Beginning, Event, Footer, Header, MemoryTraceError, Reader};

use crate::steps::{Step, Translator};

/// One recording of a family.
pub(crate) struct Member {
    path: PathBuf,
    header: Header,
    /// `None` before the first event was read, and after the last one.
    reader: Option<Reader>,
    footer: Option<Footer>,
    events: VecDeque<Event>,
    /// `None` until the parent forks.
    pub translator: Option<Translator>,
    is_at_end: bool,
    /// Time of the last event so far.
    time_last_ns: u64,
    has_ended: bool,
}

impl Member {
    /// Reads the header of a recording.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording.
    pub fn open(path: &Path) -> Result<Self, MemoryTraceError> {
        let header = Reader::open(path)?.header().clone();
        Ok(Self {
            path: path.to_path_buf(),
            header,
            reader: None,
            footer: None,
            events: VecDeque::new(),
            translator: None,
            is_at_end: false,
            time_last_ns: 0,
            has_ended: false,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The footer, after the last event. `None` if the file ends early.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// The reader of the events, which knows what they refer to.
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// All that the process had when the recording began, and perhaps later events.
    pub fn start(&mut self) -> Result<impl Iterator<Item = &Event>, MemoryTraceError> {
        while !self.is_at_end && self.events.back().is_none_or(|event| event.op.is_at_start()) {
            self.read_chunk()?;
        }
        Ok(self.events.iter())
    }

    /// When the next event or the end is due; `None` after the end.
    pub fn due(&mut self) -> Result<Option<u64>, MemoryTraceError> {
        while self.events.is_empty() && !self.is_at_end {
            self.read_chunk()?;
        }
        if let Some(event) = self.events.front() {
            return Ok(Some(event.time_ns));
        }
        if let Some(reader) = self.reader.take() {
            self.footer = reader.footer().cloned();
        }
        let is_forked = matches!(self.header.beginning, Beginning::Fork { .. });
        // A forked process whose end is not recorded can live on after its last event, and shares pages until its
        // parent's recording has its end.
        let is_over = self.has_ended || is_forked && self.recorded_end_ns().is_none();
        Ok((!is_over).then(|| self.end_ns()))
    }

    /// The next event; `None` if the end is due.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.time_last_ns = event.time_ns;
        Some(event)
    }

    /// The steps of an event.
    pub fn translate(&mut self, event: &Event, steps: &mut Vec<Step>) {
        let name = event.op.mapping().and_then(|map| map.name);
        let name = name.and_then(|name| Some(self.reader.as_ref()?.name(name)));
        if let Some(translator) = &mut self.translator {
            translator.translate(event, name, steps);
        }
    }

    /// The process ends. Returns when.
    pub fn end(&mut self) -> u64 {
        self.has_ended = true;
        self.end_ns()
    }

    fn recorded_end_ns(&self) -> Option<u64> {
        self.footer.as_ref()?.end_ns
    }

    /// When its address space ended, or its recording did; the time of its last event if the file has no end.
    fn end_ns(&self) -> u64 {
        self.recorded_end_ns().unwrap_or_default().max(self.time_last_ns)
    }

    fn read_chunk(&mut self) -> Result<(), MemoryTraceError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(Reader::open(&self.path)?),
        };
        let mut events = Vec::new();
        self.is_at_end = !reader.next_chunk(&mut events)?;
        self.events.extend(events);
        Ok(())
    }
}
