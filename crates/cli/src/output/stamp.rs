//! What every JSON result says of itself.

use hksim_sim::report::{SCHEMA, VERSION};
use serde::Serialize;

/// The form of a result, and what made it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stamp {
    /// Version of the JSON form ([`SCHEMA`]).
    schema: u32,
    /// Version of hksim.
    hksim_version: &'static str,
}

impl Stamp {
    /// That of this program.
    pub const HERE: Stamp = Stamp { schema: SCHEMA, hksim_version: VERSION };
}
