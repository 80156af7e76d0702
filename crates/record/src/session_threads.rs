//! The recorder's threads of a session, for a program that it starts and for one that runs already.

use crate::background::{BackgroundConverter, StartedConversions};
use crate::children::Children;
use crate::ended::EndedProcesses;
use crate::epoch::{ClockReads, Epochs};
use crate::error::RecordError;
use crate::session::Session;

/// The threads of a session while it records.
pub struct SessionThreads {
    /// Starts clock epochs, if not every event reads the clock.
    epochs: Option<Epochs>,
    /// Records when forked children end, if the system reports it.
    children: Option<Children>,
    /// Converts logs early, if it can and may.
    converter: Option<BackgroundConverter>,
    /// Writes the traces of processes that have ended.
    ended: Option<EndedProcesses>,
}

impl SessionThreads {
    /// Starts those that the first event needs.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(session: &Session, clock: ClockReads) -> Result<Self, RecordError> {
        let epochs = (clock != ClockReads::Every).then(|| Epochs::begin(&session.logs_dir)).transpose()?;
        Ok(Self { epochs, children: Children::begin(&session.logs_dir), converter: None, ended: None })
    }

    /// Starts those that write traces while the session records. Process `root` is its program.
    pub fn convert_early(&mut self, session: &Session, root: u32) {
        self.converter = BackgroundConverter::begin(&session.dir, &session.info.output);
        let known = self.converter.as_ref().map(BackgroundConverter::known);
        self.ended = known.and_then(|known| EndedProcesses::begin(&session.dir, root, known));
    }

    /// Stops all of them, when the recording has ended. Returns the conversions that have begun.
    pub fn end(self) -> StartedConversions {
        if let Some(children) = self.children {
            children.end();
        }
        if let Some(ended) = self.ended {
            ended.end();
        }
        let begun = self.converter.map(BackgroundConverter::end).unwrap_or_default();
        drop(self.epochs);
        begun
    }
}
