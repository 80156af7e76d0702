//! Output files: complete or absent, one writer at a time, and in folders that other users can write to.
//!
//! - [`Unfinished`]: a file or folder under a temporary name until it is finished.
//! - [`Claim`]: one recording at a time writes to a name. [`Earlier`]: what was there before is kept for one generation.
//! - [`refuse_planted`]: links and pipes of other users are not written to.
//!
//! ```
//! use hksim_output_files::Unfinished;
//!
//! # let folder = tempfile::tempdir()?;
//! # let wanted = folder.path().join("result.json");
//! let unfinished = Unfinished::file(&wanted)?;
//! std::fs::write(unfinished.path_of_file(), "{}")?;
//! assert!(!wanted.exists());
//! unfinished.keep(&wanted)?;
//! assert_eq!(std::fs::read(&wanted)?, b"{}");
//! # Ok::<(), std::io::Error>(())
//! ```

mod claim;
mod earlier;
mod error;
mod planted;
mod unfinished;

pub use claim::Claim;
pub use earlier::Earlier;
pub use error::OutputError;
pub use planted::{folder_of, refuse_planted};
pub use unfinished::Unfinished;
