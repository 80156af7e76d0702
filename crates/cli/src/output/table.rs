//! Text tables as wide as the screen.

pub use hksim_text::table::{Table, text};

use super::screen;

/// A table on the screen.
pub trait Lines {
    /// The lines, fitted to the width of tables.
    fn lines(&self) -> Vec<String>;
}

impl Lines for Table {
    fn lines(&self) -> Vec<String> {
        self.fitted(screen::columns().unwrap_or(usize::MAX))
    }
}
