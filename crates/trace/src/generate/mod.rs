//! Generators: deterministic synthetic programs as event sources without a file.
//!
//! A generator needs O(live objects) memory, independent of its length, and produces the same events each time, on every machine.
//! Every event takes [`Clock::EVENT_NS`]. Every access is in the trace, so the touch knowledge is `full-stream`.

mod program;
mod random;
mod random_mixed;
mod server;
mod tiny_hot;

#[cfg(test)]
pub(crate) use random::Splitmix64;
pub use random_mixed::RandomMixed;
pub use server::Server;
pub use tiny_hot::TinyHot;

use crate::error::TraceError;
use crate::header::{Clock, Header, Origin, TouchKnowledge};
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
    /// One block, allocated and freed over and over.
    TinyHot(TinyHot),
    /// A phased load of a few hundred MiB with several threads.
    Server(Server),
}

impl Workload {
    /// The names of all generators, as `hksim gen` takes them.
    pub const NAMES: [&str; 3] = ["random-mixed", "tiny-hot", "server"];

    /// The generator with this name and default parameters; `None` if there is none.
    pub fn with_defaults(name: &str) -> Option<Self> {
        match name {
            "random-mixed" => Some(Workload::RandomMixed(RandomMixed::default())),
            "tiny-hot" => Some(Workload::TinyHot(TinyHot::default())),
            "server" => Some(Workload::Server(Server::default())),
            _ => None,
        }
    }

    /// The generator given in a trace's origin, to generate the trace again.
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
        Header::new(origin, TouchKnowledge::FullStream, Clock::PerEvent)
    }
}
