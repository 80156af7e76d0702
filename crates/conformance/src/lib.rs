//! Conformance tests of the kernel rules. A separate process executes page-op scripts ([`hksim_linux_mm::script`]) on
//! the running kernel. After every operation the kernel's state is compared with the model.
//!
//! - [`Machine`] executes a script; [`check`] compares; [`predict`] runs only the model.
//! - [`catalogue`] has one or more scripts for every rule, with expected figures; [`random`] generates scripts and
//!   shrinks failing ones.
//! - [`SetModes`] changes the machine's modes (kernel settings, mostly of THP), for one process at a time ([`LOCKED`]),
//!   and always restores them.
//!
//! The model's answer needs no running kernel:
//!
//! ```
//! use hksim_conformance::predict;
//! use hksim_linux_mm::{KernelConfig, script::Script};
//!
//! let script: Script = "map 0 512 w -; adv HUGEPAGE 0 512; w 0 1 1".replace("; ", "\n").parse()?;
//! let observed = predict(&KernelConfig::default(), &script);
//! assert_eq!(observed.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Scripts are executed by child processes of the same program. Its `main` must call [`child_main`] and [`guard_main`]
//! if its first argument is [`CHILD_ARGUMENT`] or [`GUARD_ARGUMENT`].

pub mod catalogue;
mod check;
mod child;
mod generator;
mod guard;
mod host;
mod machine;
mod modes;
mod observation;
pub mod random;
mod session;
mod shrink;
mod suite;
mod unobservable;

pub use check::{Checked, Difference, Verdict, check, predict};
pub use child::{CHILD_ARGUMENT, child_main};
pub use generator::{Generator, OPS_MAX};
pub use guard::{GUARD_ARGUMENT, LOCKED, guard_main};
pub use host::{HostError, kernel_config, release};
pub use machine::{Machine, MachineError};
pub use modes::{ModeError, SetModes};
pub use observation::{ArenaState, CallResult, Observation, PageRun};
pub use session::ExecuteError;
pub use shrink::shrunk;
pub use suite::{RuleRow, RuleVerdict, Runner, ScriptOutcome, rules, skipped_rules};
pub use unobservable::Unobservable;
