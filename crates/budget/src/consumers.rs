//! Who uses memory: functions, and the sizes that they request. Lines and offsets are left out, so that two builds of a
//! program can be compared.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hksim_memory_sim::NamedSite;
use hksim_trace::error::TraceError;
use hksim_trace::event::SiteId;
use hksim_trace::info::SiteUse;
use hksim_trace::source::EventSource;
use hksim_trace::symbols::{NamedSites, file_name, short_text};
use serde::{Deserialize, Serialize};

/// What is counted for a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Calls that returned memory.
    Calls,
    /// Bytes requested.
    AllocatedBytes,
    /// Bytes live at the trace's peak.
    BytesAtPeak,
    /// Bytes never freed.
    BytesAtEnd,
    /// Page-table installs.
    Installs,
    /// Page-table installs that a function of an allocator's library is responsible for. The stack is the function, and the
    /// sizes are classes of at most 25 %.
    LibraryInstalls,
    /// Page-fault exceptions.
    Traps,
    /// Resident bytes at the end.
    RssBytesEnd,
}

/// The requests that one stack of functions makes in one range of sizes, or the memory that it maps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Consumer {
    /// The functions on the stack, innermost first; empty if the call site is unknown.
    pub stack: Vec<String>,
    /// The function that asked for the memory: the innermost one outside the C library and allocators. For unknown call
    /// sites of a memory recording, the use of the memory.
    pub caller: String,
    /// The largest size in the range, a power of two, or 0, or of a library the end of its class; `None` for mappings, and
    /// outside requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Quantities that are not 0.
    pub quantities: BTreeMap<Quantity, u64>,
}

impl Consumer {
    /// What it has in common with itself in another recording.
    pub(crate) fn key(&self) -> (&[String], &str, Option<u64>) {
        (&self.stack, &self.caller, self.bytes_max)
    }
}

/// The consumers of a trace or of a recording under a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Consumers {
    /// The trace, as the budget names it.
    pub trace: String,
    /// The design; `None` if all designs have the same consumers, as those of a trace of allocator calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<String>,
    /// The consumers.
    pub consumers: Vec<Consumer>,
}

impl Consumers {
    /// Whether they are those of a trace under a design.
    pub fn are_of(&self, trace: &str, design: &str) -> bool {
        self.trace == trace && self.design.as_deref().is_none_or(|own| own == design)
    }
}

/// The consumers of a trace of allocator calls.
///
/// # Errors
/// Those of the source.
pub fn of_trace(source: &mut dyn EventSource) -> Result<Vec<Consumer>, TraceError> {
    let uses = SiteUse::by_size(source)?;
    let mut names = NamedSites::new(&source.footer().sites);
    let sites = names.sites();
    let consumer = |(bytes_max, used): (u64, SiteUse)| {
        let site = SiteId(used.site);
        let caller = names.caller(site).map(|caller| without_offset(&short_text(sites, caller.frame)));
        Consumer {
            caller: caller.unwrap_or_default(),
            stack: functions(&names.stack(site)),
            bytes_max: Some(bytes_max),
            quantities: without_zeros([
                (Quantity::Calls, used.calls),
                (Quantity::AllocatedBytes, used.allocated_bytes),
                (Quantity::BytesAtPeak, used.bytes_at_peak),
                (Quantity::BytesAtEnd, used.bytes_at_end),
            ]),
        }
    };
    Ok(joined(uses.into_iter().map(consumer).collect()))
}

/// The consumers of a memory recording under a setting; none if call sites were not recorded.
pub fn of_recording(sites: &[NamedSite]) -> Vec<Consumer> {
    let consumer = |site: &NamedSite| Consumer {
        stack: functions(&site.stack),
        caller: if site.stack.is_empty() { site.caller.clone() } else { without_offset(&site.caller) },
        bytes_max: None,
        quantities: without_zeros([
            (Quantity::Installs, site.costs.installs.total),
            (Quantity::Traps, site.costs.traps),
            (Quantity::RssBytesEnd, site.costs.rss_bytes_end),
        ]),
    };
    joined(sites.iter().map(consumer).collect())
}

fn without_zeros<const N: usize>(all: [(Quantity, u64); N]) -> BTreeMap<Quantity, u64> {
    all.into_iter().filter(|(_, amount)| *amount > 0).collect()
}

/// Consumers without lines, those with equal functions and sizes as one.
pub(crate) fn joined(all: Vec<Consumer>) -> Vec<Consumer> {
    let mut consumers: BTreeMap<(Vec<String>, String, Option<u64>), Consumer> = BTreeMap::new();
    for consumer in all {
        match consumers.entry((consumer.stack.clone(), consumer.caller.clone(), consumer.bytes_max)) {
            Entry::Vacant(new) => {
                new.insert(consumer);
            }
            Entry::Occupied(mut known) => {
                for (quantity, amount) in consumer.quantities {
                    *known.get_mut().quantities.entry(quantity).or_default() += amount;
                }
            }
        }
    }
    consumers.into_values().collect()
}

fn functions(frames: &[String]) -> Vec<String> {
    frames.iter().map(|frame| function_of(frame)).collect()
}

/// The function of a frame, whose text is a function and a place, or a place alone.
fn function_of(frame: &str) -> String {
    match frame.rsplit_once("  ") {
        Some((function, _)) => function.to_string(),
        None => without_offset(frame),
    }
}

/// A name, or for code without one its file: offsets differ from build to build.
fn without_offset(text: &str) -> String {
    match text.rsplit_once("+0x") {
        Some((path, offset)) if offset.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            format!("a function without a name in {}", file_name(path))
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_functions_without_places() {
        for (frame, function) in [
            ("make  /src/app.c:12", "make"),
            ("std::map<int, int>::at  /usr/lib/libx.so+0x10", "std::map<int, int>::at"),
            ("operator+0x  a.c:1", "operator+0x"),
            ("/usr/bin/app+0x1f0", "a function without a name in app"),
            ("0x7f00 (no file)", "0x7f00 (no file)"),
        ] {
            assert_eq!(function_of(frame), function);
        }
    }

    #[test]
    fn equal_functions_are_one_consumer() {
        let consumer = |caller: &str, calls| Consumer {
            stack: vec![caller.to_string()],
            caller: caller.to_string(),
            bytes_max: Some(16),
            quantities: without_zeros([(Quantity::Calls, calls), (Quantity::BytesAtEnd, 0)]),
        };
        assert_eq!(
            joined(vec![consumer("f", 2), consumer("g", 1), consumer("f", 3)]),
            [consumer("f", 5), consumer("g", 1)]
        );
    }
}
