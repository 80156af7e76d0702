//! What is done with the results of many designs: which is best, how sure that is, and how results are kept.
//!
//! - [`figures`]: the figures that designs are compared by; [`question`]: goals, limits, ties, weights.
//! - [`rank`]: the ranking over several traces; [`answer`]: the winner, with typed reasons; [`sentences`]: as text.
//! - [`mod@advise`]: the best design within limits, and how far the choice generalises; [`search`], [`space`]: designs
//!   beyond a grid; [`knobs`]: the settings of other allocators that come closest.
//! - [`causes`]: the causes of installs, and the policy changes that remove them; [`explained`]: designs that are explained on
//!   a trace, with these changes tried.
//! - [`fit`]: which hypotheses explain counts measured elsewhere.
//! - [`shard`]: a sweep on several machines; [`journal`]: a sweep that resumes; [`digest`]: equal inputs.
//! - [`table`]: results as tables, for CSV and Parquet.
//!
//! Before that, designs are words and traces are simulated:
//!
//! - [`flags`]: the table of all flags, and the configuration that their words describe; [`host`]: this machine's kernel;
//!   [`forks`], [`point`], [`marks`]: moments of a trace.
//! - [`inputs`]: traces; [`runs`], [`plan`]: simulations of many designs; [`laboratory`]: those that advice asks
//!   for. [`memory_limit`]: the least limit that a program survives. [`known`]: which figures they will have;
//!   [`priced`]: their system time.
//! - [`answers`]: which row of a sweep is best; [`origin`]: where a trace comes from, as text; [`exports`]: single events
//!   under a design.
//!
//! ```
//! use hksim_explore::flags::table::find;
//! use hksim_explore::flags::{BaseKernel, RunConfig};
//! use hksim_explore::inputs::Trace;
//! use hksim_explore::runs::{setup, simulate_all};
//! use hksim_policy::Policy;
//! use hksim_trace::generate::{RandomMixed, Workload};
//!
//! let trace = Trace::workload(Workload::RandomMixed(RandomMixed { cycles: 2000, ..RandomMixed::default() }))?;
//! let mut setups = Vec::new();
//! for word in ["never", "thp"] {
//!     let mut design = RunConfig::of(Policy::DEFAULT);
//!     find("huge").expect("a flag").set(&mut design, word)?;
//!     setups.push(setup(&design, &trace, BaseKernel::AsItComes)?);
//! }
//! let reports = simulate_all(&[(trace, setups)], &())?;
//! assert!(reports[1].installs.total < reports[0].installs.total);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advise;
pub mod answer;
pub mod answers;
pub mod causes;
pub mod described;
pub mod digest;
pub mod error;
pub mod explained;
pub mod explained_time;
pub mod exports;
pub mod figure_range;
pub mod figures;
pub mod fit;
pub mod flags;
pub mod forks;
pub mod host;
pub mod inputs;
pub mod journal;
pub mod knobs;
pub mod known;
pub mod laboratory;
pub mod marks;
pub mod memory_limit;
pub mod origin;
#[cfg(feature = "parquet")]
pub mod parquet_file;
pub mod plan;
pub mod point;
pub mod priced;
pub mod question;
pub mod rank;
pub mod runs;
pub mod search;
pub mod sentences;
pub mod shard;
pub mod space;
pub mod table;
