//! Figures, words and tables as text.
//!
//! - [`units`]: figures with their units; [`table`]: text tables that fit a width; [`wrap`]: lines broken at spaces.
//! - [`mod@plain`]: text from files, made safe to print; [`shell`]: words that a shell reads as they are.
//! - [`nearest`]: the known word that was probably meant; [`doubling`]: ranges in lists of numbers.
//!
//! ```
//! use hksim_text::table::{Table, text};
//! use hksim_text::units::{bytes, count};
//!
//! let mut table = Table::new(["design", "installs", "peak RSS"], &[0]);
//! table.push(["never".to_string(), count(1_344_212), bytes(3_670_016)]);
//! assert_eq!(text(&table.fitted(80)).lines().last(), Some("never   1 344 212   3.5 MiB"));
//! ```

pub mod doubling;
pub mod nearest;
pub mod plain;
pub mod shell;
pub mod table;
pub mod units;
pub mod wrap;

pub use plain::plain;
