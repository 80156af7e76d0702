//! What a trace says about itself: header (known at the start), footer (known at the end), summary.

use crate::profile::SiteProfile;
use crate::sites::Sites;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a trace comes from and how far it can be trusted; stored at the start of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Where the events come from.
    pub origin: Origin,
    /// What is known about the program's accesses to its blocks.
    pub touch: TouchKnowledge,
    /// Where the event times come from.
    pub clock: Clock,
    /// Events that may share one reading of the clock, so that their times are those of the first of them; `None` where
    /// each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_events: Option<u32>,
    /// The program that wrote the trace, with its version: `hksim 0.1.0`.
    pub producer: String,
    /// What was done to the events since they left their origin, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryStep>,
}

/// One tool that a trace has been through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryStep {
    /// The tool's name, as `hksim trace` takes it.
    pub tool: String,
    /// What it was told, by parameter.
    #[serde(default)]
    pub parameters: Map<String, Value>,
}

impl HistoryStep {
    /// A step with its parameters.
    pub fn new<const N: usize>(tool: &str, parameters: [(&str, Value); N]) -> Self {
        let parameters = parameters.into_iter().filter(|(_, value)| !value.is_null());
        HistoryStep { tool: tool.into(), parameters: parameters.map(|(name, value)| (name.into(), value)).collect() }
    }
}

impl Header {
    /// A header whose producer is this version of hksim.
    pub fn new(origin: Origin, touch: TouchKnowledge, clock: Clock) -> Self {
        Header {
            origin,
            touch,
            clock,
            clock_events: None,
            producer: concat!("hksim ", env!("CARGO_PKG_VERSION")).to_string(),
            history: Vec::new(),
        }
    }
}

/// Where the events of a trace come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Origin {
    /// A run of a real program.
    Recorded {
        /// The command and its arguments.
        command: Vec<String>,
        /// Its process id.
        pid: u32,
        /// What identifies the program's build, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program_version: Option<String>,
    },
    /// A generator of ours; name, parameters and seed reproduce the trace exactly.
    Generated {
        /// The generator's name, as `hksim gen` takes it.
        name: String,
        /// Every parameter with its value, the seed excepted.
        parameters: Map<String, Value>,
        /// The seed of its random numbers; 0 where it draws none.
        seed: u64,
    },
    /// A trace that another program recorded.
    Imported {
        /// The source format, as `hksim import --from` takes it.
        format: String,
        /// The file's name, without its folder.
        file: String,
    },
}

/// What is known about the accesses of a program to its blocks: a label on every result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TouchKnowledge {
    /// Nothing: results are printed as a bracket.
    Assumed,
    /// The first access to each page of the watched objects.
    FirstTouch,
    /// First accesses of a sample of objects.
    Sampled,
    /// Every access.
    FullStream,
}

/// Where event times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Measured while the program ran.
    Measured,
    /// Made up: [`Clock::EVENT_NS`] per event (or per line of the source).
    PerEvent,
}

impl Clock {
    /// Nanoseconds between two events of a trace without measured times.
    pub const EVENT_NS: u64 = 100;
}

/// What is known only at the end of a trace; stored there. Empty where a truncated file lost it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// Names of the marks, indexed by [`crate::event::Op::Mark`].
    #[serde(default)]
    pub mark_names: Vec<String>,
    /// How complete and how repaired the capture is.
    #[serde(default)]
    pub quality: Quality,
    /// The call sites that events name; empty where none were recorded.
    #[serde(default, skip_serializing_if = "Sites::is_empty")]
    pub sites: Sites,
    /// What watched objects touched, by call site; empty unless a sample of objects was watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<SiteProfile>,
}

/// What a recorder or importer had to leave out, guess or repair. All zero for generators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quality {
    /// Frees (also by realloc) of addresses never seen allocated.
    pub unknown_frees: u64,
    /// Events that were put behind another thread's event with a later time stamp.
    pub parked: u64,
    /// Allocations at an address still live: its free was never seen, and one was put in.
    pub reuse_repaired: u64,
    /// `malloc_usable_size` calls and touches of addresses that were not live; left out.
    pub uses_dropped: u64,
    /// `realloc(p, 0)` calls that returned a block: kept as a resize to 1 byte.
    pub reallocs_to_zero_kept: u64,
    /// Events that the recorder knows it lost.
    pub events_lost: u64,
    /// Calls that ask for memory whose call site was to be recorded and is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub sites_lost: u64,
    /// Nanoseconds during which recording was switched off: what the program did then is unknown.
    pub stopped_ns: u64,
    /// Calls made inside another allocator call, left out in favour of the outer one.
    pub nested_calls: u64,
    /// Calls whose return was never seen; left out.
    pub unfinished_calls: u64,
    /// Blocks whose address the source does not show: each is tied to the next free that can be meant.
    pub addresses_guessed: u64,
    /// Calls that the source shows under a wrong name: what they did is not known, and they are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub misnamed_calls: u64,
    /// Lines that are no call: what other programs wrote between them, or calls that make and end no block.
    pub foreign_lines: u64,
    /// Calls of other processes than the one imported; left out.
    pub other_process_events: u64,
    /// Of a trace that watched the pages of a sample of objects.
    #[serde(skip_serializing_if = "Watched::is_empty")]
    pub watched: Watched,
}

/// Counters that came later are left out of footers that have none, whose bytes so stay as they were.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How well the pages of a sample of objects were watched. All zero where none were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watched {
    /// Objects made on pages of their own (or moved there by a resize), whose touches are events.
    pub objects: u64,
    /// Their touches: the first read or write of a page, or the first write after a read.
    pub touches: u64,
    /// Touches among them that were found afterwards: they stand at the object's death where the others have times, and at
    /// its birth where none have.
    pub touches_untimed: u64,
    /// Page faults that were lost, of this program and all that it started: what they told was found afterwards.
    pub faults_lost: u64,
    /// Objects that should have been watched, when there were no fresh pages left.
    pub turned_down: u64,
}

impl Watched {
    /// Whether nothing was watched.
    pub fn is_empty(&self) -> bool {
        *self == Watched::default()
    }
}

impl std::ops::Add for Watched {
    type Output = Watched;

    fn add(self, other: Watched) -> Watched {
        Watched {
            objects: self.objects.saturating_add(other.objects),
            touches: self.touches.saturating_add(other.touches),
            touches_untimed: self.touches_untimed.saturating_add(other.touches_untimed),
            faults_lost: self.faults_lost.saturating_add(other.faults_lost),
            turned_down: self.turned_down.saturating_add(other.turned_down),
        }
    }
}

impl Quality {
    /// Of the calls known to have been made, those that are in a trace of `events` events as they were: from 0 to 1.
    ///
    /// Known to be missing are calls lost or unfinished, one allocation per free of an unknown address (or the calls whose
    /// names are wrong, where these are more: some are such allocations), and one free per address that was given out twice. A
    /// recorder that misses both calls of a block leaves no sign.
    pub fn share(&self, events: u64) -> f64 {
        // A file may claim any counts.
        let sum = |counts: &[u64]| counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        let flawed = sum(&[self.unknown_frees, self.addresses_guessed]);
        let whole = events.saturating_sub(flawed).saturating_sub(self.reuse_repaired);
        let unseen = self.unknown_frees.max(self.misnamed_calls);
        let missing = sum(&[unseen, self.reuse_repaired, self.events_lost, self.unfinished_calls, self.uses_dropped]);
        let known = whole.saturating_add(flawed).saturating_add(missing);
        if known == 0 { 1.0 } else { whole as f64 / known as f64 }
    }
}

impl std::ops::Add for Quality {
    type Output = Quality;

    fn add(self, other: Quality) -> Quality {
        Quality {
            unknown_frees: self.unknown_frees.saturating_add(other.unknown_frees),
            parked: self.parked.saturating_add(other.parked),
            reuse_repaired: self.reuse_repaired.saturating_add(other.reuse_repaired),
            uses_dropped: self.uses_dropped.saturating_add(other.uses_dropped),
            reallocs_to_zero_kept: self.reallocs_to_zero_kept.saturating_add(other.reallocs_to_zero_kept),
            events_lost: self.events_lost.saturating_add(other.events_lost),
            sites_lost: self.sites_lost.saturating_add(other.sites_lost),
            stopped_ns: self.stopped_ns.saturating_add(other.stopped_ns),
            nested_calls: self.nested_calls.saturating_add(other.nested_calls),
            unfinished_calls: self.unfinished_calls.saturating_add(other.unfinished_calls),
            addresses_guessed: self.addresses_guessed.saturating_add(other.addresses_guessed),
            misnamed_calls: self.misnamed_calls.saturating_add(other.misnamed_calls),
            foreign_lines: self.foreign_lines.saturating_add(other.foreign_lines),
            other_process_events: self.other_process_events.saturating_add(other.other_process_events),
            watched: self.watched + other.watched,
        }
    }
}

/// Reads the JSON of a header or footer. It is an object: serde alone would also take an array of the fields' values, and of an
/// empty one make a footer that nobody wrote.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err("it is no JSON object".to_string());
    }
    serde_json::from_slice(json).map_err(|why| why.to_string())
}

/// How large a trace is: known before its first batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Length that a table indexed by object id needs: the most objects live at once.
    pub objects_peak: u32,
    /// Number of threads; thread ids are below it.
    pub threads: u32,
    /// Time of the last event in nanoseconds; 0 for an empty trace.
    pub duration_ns: u64,
    /// Whether the trace ends where its producer ended it (false: truncated or torn).
    pub complete: bool,
}
