//! How often the recorded program reads the clock. If not every event reads it, epochs limit the age of a reused time.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::control::Control;
use crate::error::RecordError;

/// Time after which a clock reading may no longer be reused.
const EPOCH: Duration = Duration::from_millis(1);

/// How often the recorded program reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockReads {
    /// At every event.
    Every,
    /// While only one thread of the process has events: at every 16th event, and at least once a millisecond while the
    /// recorder runs. Once two threads have events: at every event. An event that does not read the clock has the time
    /// of the last reading, so its time is never too late.
    #[default]
    Sixteenth,
}

impl ClockReads {
    /// Events per reading of the clock.
    #[must_use]
    pub const fn events(self) -> u32 {
        match self {
            Self::Every => 1,
            Self::Sixteenth => 16,
        }
    }
}

/// Starts a new epoch once a millisecond, until this value is dropped.
pub struct Epochs {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Epochs {
    /// Starts the epochs of the session in `dir`.
    ///
    /// # Errors
    /// The session cannot be opened, or no thread can be started.
    pub fn begin(dir: &Path) -> Result<Self, RecordError> {
        let control = Control::open(dir)?;
        let (end, ended) = channel();
        let run = move || {
            // If the page cannot be written, only the limit of 16 events remains.
            while ended.recv_timeout(EPOCH) == Err(RecvTimeoutError::Timeout) && control.begin_epoch().is_ok() {}
        };
        let thread = thread::Builder::new().name("epochs".to_string()).spawn(run);
        Ok(Self { end: Some(end), thread: Some(thread.map_err(RecordError::io(dir, "start a thread for"))?) })
    }
}

impl Drop for Epochs {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic.
            let _ = thread.join();
        }
    }
}
