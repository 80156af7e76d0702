//! Attributes the page faults of a replay on any `malloc` library to the library's decisions.
//!
//! [`explain`] replays a trace on a library and says of every fault why it was taken, by which function of the library,
//! for which request, in which mapping, and after which call. The records come from an explained replay
//! ([`hksim_replay::explained`]); here is what they mean:
//!
//! | Module | |
//! |---|---|
//! | [`reason`] | why a page faults |
//! | [`breakdown`] | faults by every key |
//! | `attributor`, `events`, `current` | the records beside the events of the trace |
//! | `classify` | what the allocator did on a page |
//! | [`mappings`], [`pages`], `calls`, `folio`, `blocks` | the state of the process |
//! | [`functions`], `wrappers`, `call_targets` | names, and who makes a system call |
//! | [`sentences`] | causes in words |
//! | [`remedies`], `designs` | settings, huge pages and designs that are tried |

mod attributor;
mod blocks;
pub mod breakdown;
mod call_targets;
mod calls;
mod classify;
mod current;
mod designs;
mod error;
mod events;
mod explained;
mod folio;
pub mod functions;
pub mod mappings;
mod modes;
pub mod pages;
pub mod reason;
pub mod remedies;
pub mod sentences;
mod wrappers;

pub use error::AttributionError;
pub use explained::{Explained, explain, explain_under};
pub use modes::huge_pages;
