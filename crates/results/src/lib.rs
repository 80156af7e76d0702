//! The JSON results of hksim's commands.
//!
//! One set of types writes and reads them, so that a result is input to other commands and to Rust programs:
//!
//! - [`sim`], [`sweep`], [`explain`], [`explain_library`], [`advise`], [`choice`], [`check`], [`validate`], [`replay`], [`trial`],
//!   [`inspect`]: the result of each command; [`site_installs`]: installs by call site beside a sweep. [`kind`]: which of them a JSON value is; [`AnyResult`]: any of them.
//! - [`mod@read`]: reads a file; [`stamp`]: which version wrote it.
//! - [`predictions`]: predictions within any result; [`policy_file`]: a policy from a row of a result;
//!   [`policy_words`]: the designs that words of flags span.
//! - [`explained_time`]: the times of an explanation. [`csv`]: predictions as rows; [`stack_profile`]: figures by call stack; [`layouts`]: ranges over address
//!   spaces; [`info`]: call sites; [`bundle`]: what a bundle holds.
//!
//! ```
//! use hksim_results::{AnyResult, Kind};
//! use serde_json::json;
//!
//! let result = json!({"schema": 2, "hksim_version": "0.2.0", "is_within": true, "rows": []});
//! assert_eq!(Kind::of("check.json", &result)?, Kind::Check);
//! let AnyResult::Check(check) = AnyResult::of("check.json", &result)? else { panic!("another kind") };
//! assert!(check.is_within && check.rows.is_empty());
//! assert_eq!(serde_json::to_value(&check).unwrap(), result);
//! # Ok::<(), hksim_results::ResultError>(())
//! ```

pub mod advise;
mod against;
mod any;
pub mod bundle;
pub mod check;
pub mod choice;
pub mod csv;
mod error;
pub mod explain;
pub mod explain_library;
pub mod explained_time;
pub mod fit;
pub mod info;
pub mod inspect;
pub mod kind;
pub mod layouts;
pub mod policy_file;
pub mod policy_words;
pub mod predictions;
pub mod read;
pub mod replay;
pub mod sim;
pub mod site_installs;
pub mod stack_profile;
pub mod stamp;
pub mod sweep;
pub mod trial;
pub mod validate;

pub use against::{Against, Difference};
pub use any::AnyResult;
pub use error::{ResultError, WRITE_RESULT};
pub use kind::Kind;
pub use read::read;
pub use stamp::Stamp;
