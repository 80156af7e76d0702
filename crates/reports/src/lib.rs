//! Shows results: as charts, as one HTML file, as folded stacks and as pprof profiles.
//!
//! - [`chart`]: figures of a result as SVG or PNG; [`report`]: results as one HTML file without references to others.
//! - [`folded`], [`pprof`]: figures by call stack, for programs that draw them.
//! - [`data`]: the data of the figures, as rows.
//! - [`inspection`]: the text of `hksim inspect`; [`tables`]: tables that the command prints and a report shows.
//!
//! Results are those of `hksim-results`, fresh or read from a file:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use hksim_reports::chart::{Figure, Medium, Subject};
//!
//! let result = hksim_results::read(Path::new("sweep.json"))?;
//! let subject = Subject::of(&result)?;
//! if let Some(sketch) = Figure::Designs.sketch(&subject, Medium::File)? {
//!     std::fs::write("sweep.svg", sketch.svg()?.svg)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod chart;
pub mod data;
mod error;
pub mod folded;
pub mod inspection;
pub mod pprof;
pub mod report;
pub mod tables;

pub use error::{ReportError, Result};
