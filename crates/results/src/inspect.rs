//! The result of `inspect`.

use std::time::{Duration, Instant};

use hksim_inspect::{InspectError, Inspection, TwoLooks, inspect, inspect_twice};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// What memory a process has, once or twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InspectResult {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// What was found; with `--wait`, the second time.
    #[serde(flatten)]
    pub inspection: Inspection,
    /// What was found first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// An earlier look at the same process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Before {
    /// Time between the two, in seconds.
    pub waited_s: f64,
    /// What was found.
    #[serde(flatten)]
    pub inspection: Box<Inspection>,
}

impl InspectResult {
    /// Inspects a process; with a time, once more after it. If that fails, the result is the first look.
    ///
    /// # Errors
    /// There is no such process, this user may not read it, or it ended meanwhile.
    pub fn of(pid: u32, wait: Option<Duration>) -> Result<Self, InspectError> {
        let stamp = Stamp::here();
        let Some(wait) = wait else { return Ok(Self { stamp, inspection: inspect(pid)?, before: None }) };
        let begin = Instant::now();
        let TwoLooks { mut first, second } = inspect_twice(pid, wait)?;
        let waited_s = begin.elapsed().as_secs_f64();
        Ok(match second {
            Ok(inspection) => {
                Self { stamp, inspection, before: Some(Before { waited_s, inspection: Box::new(first) }) }
            }
            Err(why) => {
                first.skipped.push(format!("the second look, after {waited_s:.1} s: {why}"));
                Self { stamp, inspection: first, before: None }
            }
        })
    }
}
