//! Progress on standard error, if it is a terminal.

use std::cell::Cell;
use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::screen::is_quiet;
use crate::output::units;

/// A bar that counts events.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for this many events; hidden unless standard error is a terminal.
    pub fn events(total: u64) -> Progress {
        Progress::of(total, "events")
    }

    /// A bar for this many items; hidden unless standard error is a terminal.
    pub fn of(total: u64, what: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), target());
        let template = format!("{{wide_bar}} {{done}} of {{total}} {what}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            let done = |state: &ProgressState, to: &mut dyn Write| write_count(state.pos(), to);
            let total = |state: &ProgressState, to: &mut dyn Write| write_count(state.len().unwrap_or(0), to);
            bar.set_style(style.with_key("done", done).with_key("total", total));
        }
        Progress { bar }
    }

    /// Raises the total.
    pub fn expect_more(&self, events: u64) {
        self.bar.inc_length(events);
    }

    /// Advances by a number of events.
    pub fn advance(&self, events: u64) {
        self.bar.inc(events);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Writes a count as tables do.
fn write_count(count: u64, to: &mut dyn Write) {
    // The bar's buffer does not fail.
    let _ = to.write_str(&units::count(count));
}

/// Standard error, if it is a terminal and `--quiet` is not given.
fn target() -> ProgressDrawTarget {
    let is_shown = stderr().is_terminal() && !is_quiet();
    if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// The progress line of a recording.
pub struct Recording {
    line: ProgressBar,
    /// Time and words at the last update.
    last: Cell<(Duration, u64)>,
}

impl Recording {
    /// A line that is shown if standard error is a terminal.
    pub fn new() -> Recording {
        let line = ProgressBar::with_draw_target(None, target());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            line.set_style(style);
        }
        Recording { line, last: Cell::new((Duration::ZERO, 0)) }
    }

    /// Updates the line.
    pub fn show(&self, progress: &hksim_record::Progress) {
        let (time, words) = self.last.replace((progress.elapsed, progress.words));
        let seconds = progress.elapsed.saturating_sub(time).as_secs_f64().max(1e-3);
        let rate = (progress.words.saturating_sub(words) as f64 / seconds) as u64;
        let stopped = if progress.is_recording { "" } else { "paused, " };
        let images = progress.images;
        self.line.set_message(format!(
            "recording: {stopped}{:.0} s, about {} events, {} per second, {}, {images} programs, lost {}",
            progress.elapsed.as_secs_f64(),
            units::count(progress.words),
            units::count(rate),
            units::bytes(progress.log_bytes),
            units::count(progress.events_lost),
        ));
        self.line.tick();
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
