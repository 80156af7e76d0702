//! Generators: deterministic synthetic programs as event sources without a file.
//!
//! A generator needs O(live objects) memory, independent of the trace's length. It produces the same events each time
//! and on every machine. Consecutive events are [`Clock::EVENT_NS`] apart. Every access is in the trace, so the touch
//! source is `full-stream`.

mod program;
mod random;
mod random_mixed;
mod server;
mod tiny_hot;

pub use random_mixed::RandomMixed;
pub use server::Server;
pub use tiny_hot::TinyHot;

use crate::error::TraceError;
use crate::header::{Clock, Header, Origin, TouchSource};
use crate::source::EventSource;
use program::GeneratedSource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Every generator, with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Workload {
    /// Random allocations and frees in a table of slots.
    RandomMixed(RandomMixed),
    /// One block, allocated and freed repeatedly.
    TinyHot(TinyHot),
    /// A phased load of a few hundred MiB with several threads.
    Server(Server),
}

impl Workload {
    /// The names of all generators, as on the command line of `hksim gen`.
    pub const NAMES: [&str; 3] = ["random-mixed", "tiny-hot", "server"];

    /// The generator with this name, with default parameters; `None` if the name is unknown.
    pub fn with_defaults(name: &str) -> Option<Self> {
        match name {
            "random-mixed" => Some(Workload::RandomMixed(RandomMixed::default())),
            "tiny-hot" => Some(Workload::TinyHot(TinyHot::default())),
            "server" => Some(Workload::Server(Server::default())),
            _ => None,
        }
    }

    /// The generator described by a trace's origin, to reproduce the trace. `None` for an origin that is not a known
    /// generator.
    pub fn from_origin(origin: &Origin) -> Option<Self> {
        let Origin::Generated { name, parameters, seed } = origin else { return None };
        let mut fields = parameters.clone();
        fields.insert("name".into(), Value::from(name.as_str()));
        fields.insert("seed".into(), Value::from(*seed));
        serde_json::from_value(Value::Object(fields)).ok()
    }

    /// The generator's name.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::RandomMixed(_) => "random-mixed",
            Workload::TinyHot(_) => "tiny-hot",
            Workload::Server(_) => "server",
        }
    }

    /// The event source. Runs the generator once to compute the summary.
    ///
    /// # Errors
    /// [`TraceError::BadParameter`].
    pub fn source(&self) -> Result<Box<dyn EventSource + Send>, TraceError> {
        let header = self.header();
        Ok(match self {
            Workload::RandomMixed(parameters) => Box::new(GeneratedSource::new(header, parameters.program()?)?),
            Workload::TinyHot(parameters) => Box::new(GeneratedSource::new(header, parameters.program()?)?),
            Workload::Server(parameters) => Box::new(GeneratedSource::new(header, parameters.program()?)?),
        })
    }

    /// The header of the generator's traces.
    pub fn header(&self) -> Header {
        let mut parameters = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        parameters.remove("name");
        let seed = parameters.remove("seed").and_then(|seed| seed.as_u64()).unwrap_or(0);
        let origin = Origin::Generated { name: self.name().into(), parameters, seed };
        Header::new(origin, TouchSource::FullStream, Clock::PerEvent)
    }
}
