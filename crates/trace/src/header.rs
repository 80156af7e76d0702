//! Metadata of a trace: header (known at the start), footer (known at the end) and summary.

use crate::profile::SiteProfile;
use crate::sites::Sites;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a trace comes from and what it records; stored at the start of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Where the events come from.
    pub origin: Origin,
    /// What is known about the program's accesses to its blocks.
    pub touch: TouchSource,
    /// How the event times were obtained.
    pub clock: Clock,
    /// Maximum number of consecutive events that share one clock reading. All of them have the time of the first.
    /// `None` if each event has its own reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_events: Option<u32>,
    /// The program that wrote the trace, with its version: `hksim 0.1.0`.
    pub producer: String,
    /// The tools that changed the trace, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryStep>,
}

/// One tool that changed a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryStep {
    /// The tool's name, as on the command line of `hksim trace`.
    pub tool: String,
    /// Its parameters, by name.
    #[serde(default)]
    pub parameters: Map<String, Value>,
}

impl HistoryStep {
    /// A step with these parameters. Null parameters are left out.
    pub fn new<const N: usize>(tool: &str, parameters: [(&str, Value); N]) -> Self {
        let parameters = parameters.into_iter().filter(|(_, value)| !value.is_null());
        HistoryStep { tool: tool.into(), parameters: parameters.map(|(name, value)| (name.into(), value)).collect() }
    }
}

impl Header {
    /// A header whose producer is this version of hksim.
    pub fn new(origin: Origin, touch: TouchSource, clock: Clock) -> Self {
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
        /// Identifies the program's build, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program_version: Option<String>,
        /// Whether the recorder attached to the running program: blocks from before are unknown.
        #[serde(default, skip_serializing_if = "is_false")]
        attached: bool,
    },
    /// The output of one of hksim's generators. Name, parameters and seed reproduce the trace exactly.
    Generated {
        /// The generator's name, as on the command line of `hksim gen`.
        name: String,
        /// Every parameter except the seed, with its value.
        parameters: Map<String, Value>,
        /// The seed of its random numbers; 0 if it uses none.
        seed: u64,
    },
    /// A trace that another program recorded.
    Imported {
        /// The source format, as in `hksim import --from`.
        format: String,
        /// The file's name, without its folder.
        file: String,
    },
}

/// Where the touches in a trace come from, and how complete they are. Every result states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TouchSource {
    /// Nothing: results are printed as a range.
    Assumed,
    /// The first access to each page of the watched objects.
    FirstTouch,
    /// First accesses of a sample of objects.
    Sampled,
    /// Every access.
    FullStream,
}

/// How the event times were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Measured while the program ran.
    Measured,
    /// Not measured: [`Clock::EVENT_NS`] per event (or per line of the source).
    PerEvent,
}

impl Clock {
    /// Nanoseconds between two events of a trace without measured times.
    pub const EVENT_NS: u64 = 100;
}

/// Metadata that is known only at the end of a trace and stored there. Empty if the file was truncated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// Names of the marks, indexed by [`crate::event::Op::Mark`].
    #[serde(default)]
    pub mark_names: Vec<String>,
    /// What the recorder or importer left out, guessed or repaired.
    #[serde(default)]
    pub quality: Quality,
    /// The call sites that events refer to; empty if none were recorded.
    #[serde(default, skip_serializing_if = "Sites::is_empty")]
    pub sites: Sites,
    /// How watched objects were accessed, by call site and size; empty unless a sample of objects was watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<SiteProfile>,
}

/// What a recorder or importer left out, guessed or repaired. All zero for generators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quality {
    /// Frees, including those by realloc, of addresses whose allocation was not seen.
    pub unknown_frees: u64,
    /// Events moved after another thread's event that has a later timestamp.
    pub parked: u64,
    /// Allocations at an address that was still live. The missing free was inserted.
    pub reuse_repaired: u64,
    /// `malloc_usable_size` calls and accesses left out because their address was not live.
    pub uses_dropped: u64,
    /// `realloc(p, 0)` calls that returned a block: kept as a resize to 1 byte.
    pub reallocs_to_zero_kept: u64,
    /// Events that the recorder reported as lost.
    pub events_lost: u64,
    /// Calls requesting memory whose call site could not be recorded.
    #[serde(skip_serializing_if = "is_zero")]
    pub sites_lost: u64,
    /// Programs that the recorded program executed without the recorder. They have no trace.
    #[serde(skip_serializing_if = "is_zero")]
    pub programs_unrecorded: u64,
    /// Processes that outlived the recording. What they did later is not recorded.
    #[serde(skip_serializing_if = "is_zero")]
    pub processes_outliving: u64,
    /// Nanoseconds during which recording was switched off. Events in this time are missing.
    pub stopped_ns: u64,
    /// Calls made inside another allocator call; left out, as only the outer call is kept.
    pub nested_calls: u64,
    /// Calls left out because their return was not seen.
    pub unfinished_calls: u64,
    /// Blocks whose address the source does not give. Each is matched with the next free that fits.
    pub addresses_guessed: u64,
    /// Calls left out because the source gives a wrong function name, so their effect is unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub misnamed_calls: u64,
    /// Unrecognised lines: output of other programs, or calls that neither allocate nor free.
    pub foreign_lines: u64,
    /// Calls of other processes than the one imported; left out.
    pub other_process_events: u64,
    /// How well a sample of objects was watched, if one was.
    #[serde(skip_serializing_if = "Watched::is_empty")]
    pub watched: Watched,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Counters added in later versions are omitted when 0, so that footers that do not need them stay byte-identical.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How well the pages of a sample of objects were watched. All zero if no objects were watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watched {
    /// Objects allocated on their own pages (or moved there by a resize), whose touches are events.
    pub objects: u64,
    /// Their touches: the first read or write of a page, or the first write after a read.
    pub touches: u64,
    /// Of these touches, those without a time, found by scanning the pages later. Such a touch is placed at the
    /// object's free if other touches have times, else at its allocation.
    pub touches_untimed: u64,
    /// Page-fault events lost, of this program and all processes that it started. The touches were found by a scan
    /// instead.
    pub faults_lost: u64,
    /// Sampled objects not watched because no fresh pages were left.
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
    /// Events that the recorder lost: calls, and page faults of watched objects.
    pub fn lost(&self) -> u64 {
        self.events_lost.saturating_add(self.watched.faults_lost)
    }

    /// Of the calls that are known to have been made, the share that a trace of `events` events contains unaltered,
    /// from 0 to 1.
    ///
    /// Calls known to be missing: lost and unfinished calls, one allocation per free of an unknown address, and one
    /// free per address returned twice. Misnamed calls may be the missing allocations of unknown frees, so only the
    /// larger of these two counts is used. A block whose allocation and free are both missing leaves no sign.
    pub fn share(&self, events: u64) -> f64 {
        // Counts from a file can be arbitrary, so the sums saturate.
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
            programs_unrecorded: self.programs_unrecorded.saturating_add(other.programs_unrecorded),
            processes_outliving: self.processes_outliving.saturating_add(other.processes_outliving),
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

/// Reads the JSON of a header or footer, which must be an object. serde alone would also accept an array of the fields'
/// values, and read an empty array as a default footer.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object".to_string());
    }
    serde_json::from_slice(json).map_err(|why| why.to_string())
}

/// Size of a trace, known before its first batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Peak number of live objects: the length of a table indexed by object id.
    pub objects_peak: u32,
    /// Number of threads; thread ids are below it.
    pub threads: u32,
    /// Time of the last event in nanoseconds; 0 for an empty trace.
    pub duration_ns: u64,
    /// Whether nothing is known to be missing: the trace has its end, and the recorder lost no events.
    pub complete: bool,
}
