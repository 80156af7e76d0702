//! Progress on standard error, where that is a terminal.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts events.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar up to that many events; hidden unless standard error is a terminal.
    pub fn events(total: u64) -> Progress {
        let target = if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let template = "{wide_bar} {human_pos} of {human_len} events, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// More events are done.
    pub fn advance(&self, events: u64) {
        self.bar.inc(events);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
