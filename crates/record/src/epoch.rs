//! How often the recorded program reads the clock, and how stale a time may become if not every event reads it.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::control::Control;
use crate::error::RecordError;

/// Time after which an event reads the clock in any case.
const EPOCH: Duration = Duration::from_millis(1);

/// How often the recorded program reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockReads {
    /// At every event.
    Every,
    /// At every 16th event, and once a millisecond while the recorder lives, as long as only one thread of the process
    /// has events; at every event once two have. An event in between has the time of the last reading, so its time is
    /// never too late.
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

/// Makes an event read the clock once a millisecond, until it is dropped.
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
            // If the page cannot be written, times are stale by up to 16 events.
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
            // The thread cannot panic, and there would be no remedy.
            let _ = thread.join();
        }
    }
}
