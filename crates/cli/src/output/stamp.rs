//! The identification of every JSON result.

use hksim_sim::report::{SCHEMA, VERSION};
use serde::Serialize;

/// The schema version of a result, and the program that wrote it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stamp {
    /// Version of the JSON schema ([`SCHEMA`]).
    schema: u32,
    /// Version of hksim.
    hksim_version: &'static str,
}

impl Stamp {
    /// The stamp of this program.
    pub const HERE: Stamp = Stamp { schema: SCHEMA, hksim_version: VERSION };
}
