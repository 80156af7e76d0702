//! Compares predictions with measurements.
//!
//! - [`traces`]: a trace of allocator calls under a design, simulated, and replayed on the native allocator. The kernel
//!   tells which pages are present; every figure and every page is compared.
//! - [`call_time`]: the time of a design's calls, predicted, and measured by timed replays.
//! - [`memory`]: a memory recording under kernel settings, simulated, and its program run again under them.
//!
//! A comparison has a [`Verdict`], and a [`Class`] that says what was claimed. What this machine cannot measure is
//! skipped, with the reason.
//!
//! ```
//! use std::process::ExitCode;
//!
//! use hksim_explore::flags::{BaseKernel, RunConfig};
//! use hksim_explore::inputs::Trace;
//! use hksim_explore::runs::setup;
//! use hksim_policy::Policy;
//! use hksim_trace::generate::{RandomMixed, Workload};
//! use hksim_trace::hkt::TraceWriter;
//! use hksim_validate::{Verdict, validate};
//!
//! // In the children of a replay, Rust's own allocations come from separate mappings.
//! #[global_allocator]
//! static MEMORY: hksim_replay::HarnessMemory = hksim_replay::HarnessMemory;
//!
//! fn main() -> ExitCode {
//!     // A replay runs in a child of this program.
//!     if std::env::args().nth(1).as_deref() == Some(hksim_replay::CHILD_ARGUMENT) {
//!         return hksim_replay::child_main();
//!     }
//!     match checked() {
//!         Ok(Verdict::Ok | Verdict::Skipped) => ExitCode::SUCCESS,
//!         Ok(Verdict::Failed) | Err(_) => ExitCode::FAILURE,
//!     }
//! }
//!
//! fn checked() -> Result<Verdict, Box<dyn std::error::Error>> {
//!     // A small trace; usually a recorded one.
//!     let path = std::env::temp_dir().join(format!("hksim-example-{}.hkt", std::process::id()));
//!     let mut source = Workload::RandomMixed(RandomMixed { cycles: 5000, ..RandomMixed::default() }).source()?;
//!     let mut writer = TraceWriter::create(&path, source.header())?;
//!     while let Some(batch) = source.next_batch()? {
//!         batch.iter().try_for_each(|event| writer.push(event))?;
//!     }
//!     writer.finish(source.footer())?;
//!
//!     let trace = Trace::file(&path)?;
//!     let setup = setup(&RunConfig::of(Policy::DEFAULT), &trace, BaseKernel::Host)?;
//!     let row = validate(&path, "example", &setup)?;
//!     println!("{} faults predicted, {:?} measured: {:?}", row.predicted.faults, row.measured.faults, row.verdict);
//!     std::fs::remove_file(&path)?;
//!     Ok(row.verdict)
//! }
//! ```

pub mod call_time;
mod checked;
mod error;
mod layout;
mod listener;
pub mod memory;
mod residual;
mod stale;
mod statistical;
mod times;
pub mod traces;
mod verdict;

pub use checked::{Checked, known_designs};
pub use error::ValidateError;
pub use layout::LayoutResidual;
pub use listener::Listener;
pub use residual::{MarksResidual, Residual};
pub use statistical::Spread;
pub use traces::{Row, judge_system_time, validate, validate_threads};
pub use verdict::{Class, Judged, Verdict};
