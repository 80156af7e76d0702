//! Shows results: as charts, as one HTML file, as folded stacks and as pprof profiles.
//!
//! - [`chart`]: figures of a result as SVG or PNG; [`report`]: results as one HTML file without references to others.
//! - [`bundle`]: a folder with results, their inputs, figures and report.
//! - [`folded`], [`pprof`]: figures by call stack, for programs that draw them.
//! - [`data`]: the data of the figures, as rows.
//! - [`simulation_head`] and [`simulation`], [`sweep`], [`advice`], [`trace_info`], [`trace_difference`], [`memory_info`],
//!   [`inspection`], [`comparison`], [`trial`], [`choice`], [`library_explanation`], [`faults`], [`time_validation`]: the
//!   text of `hksim sim`, `sweep`, `advise`, `info`, `inspect`, `compare`, `trial`, `advise --on`, `explain --on`, `import --faults`
//!   and `validate --time`; [`tables`], [`breakdown`], [`explained_time`]: tables that the command prints and a report
//!   shows. [`khugepaged`]: what it may change of a prediction. [`memory_limit`]: who is killed. [`site_installs`]: call sites
//!   beside each other.
//!
//! Results are those of `hksim-results`, fresh or read from a file. A figure needs a part of a result only, and reads that
//! part, with the type that wrote it. So results of other versions can still be shown, although
//! [`AnyResult`](hksim_results::AnyResult) refuses them: a new rule of a kernel is a new field of each prediction.
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

pub mod advice;
pub mod breakdown;
pub mod bundle;
pub mod chart;
pub mod choice;
pub mod comparison;
pub mod data;
mod error;
pub mod explained_time;
pub mod faults;
pub mod folded;
pub mod inspection;
pub mod khugepaged;
pub mod library_explanation;
pub mod memory_info;
pub mod memory_limit;
pub mod memory_prediction;
pub mod memory_validation;
pub mod pprof;
mod promises;
mod recording;
pub mod replay;
pub mod report;
pub mod simulation;
pub mod simulation_head;
pub mod site_installs;
pub mod sweep;
pub mod tables;
pub mod time_validation;
pub mod trace_difference;
pub mod trace_info;
pub mod trial;
pub mod verdict;

pub use error::{ReportError, Result};
