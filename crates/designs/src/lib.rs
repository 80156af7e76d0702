//! Allocator designs by name.
//!
//! - [`bump`] and [`page_heap`]: the designs. [`listed`]: the list of them, and what a design needs to be in it.
//! - [`settings`]: the settings of a design as flags. [`words`]: designs from words of a command line.
//! - [`Untyped`]: any design, with its settings as JSON.
//!
//! ```
//! use hksim_designs::{DesignWords, Label};
//!
//! let given = vec![("keep-free".to_string(), "0,64M".to_string())];
//! let labels = DesignWords { names: "page-heap".into(), given }.labels(&|_| {})?;
//! let kept: Vec<_> = labels.iter().map(|label| &label.settings["keep_free_bytes"]).collect();
//! assert_eq!(kept, [0, 64 << 20]);
//! # Ok::<(), hksim_designs::WordsError>(())
//! ```

pub mod bump;
pub mod listed;
pub mod page_heap;
pub mod settings;
mod untyped;
pub mod words;

pub use listed::{About, Listed, Visitor, all, each, find};
pub use settings::{Setting, Values};
pub use untyped::Untyped;
pub use words::{DesignWords, Label, Neighbour, WordsError, flags, neighbours, settings_changed};
