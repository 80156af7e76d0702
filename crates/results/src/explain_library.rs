//! The result of `explain --on`: a replay on a malloc library, explained.

use std::borrow::Cow;
use std::path::PathBuf;

use hksim_attribution::breakdown::{Breakdown, CauseCounts, CauseKey, During};
use hksim_attribution::mappings::Source;
use hksim_attribution::remedies::{Trials, Tried, best};
use hksim_attribution::{Explained, sentences};
use hksim_explore::sentences::percent_signed;
use hksim_policy::PAGE_BYTES;
use hksim_replay::Skipped;
use hksim_sim::report::{TouchLabel, TraceLabel};
use hksim_text::units;
use serde::{Deserialize, Serialize};

use crate::explain::{Names, Part, Row, START, of_trace, parts, times};
use crate::stamp::Stamp;

/// Number of differences in words.
const SENTENCES: usize = 3;

/// Installs by every key. The sum over each list is the total.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ByLibrary {
    /// Why the page was not present.
    pub reason: Vec<Part>,
    /// Size class of the request: its bytes.
    pub class: Vec<Part>,
    /// Function of the library that is responsible.
    pub function: Vec<Part>,
    /// The mapping: who made it.
    pub mapping: Vec<Part>,
    /// Whether the page was present before, and the call that removed it.
    pub after: Vec<Part>,
    /// The function of the library that the program called, or `program` for its own accesses.
    pub during: Vec<Part>,
    /// Size of the page.
    pub page_size: Vec<Part>,
    /// Call site that allocated the object: its frames, innermost first, separated by `;`.
    pub site: Vec<Part>,
    /// Thread.
    pub thread: Vec<Part>,
    /// The last mark before.
    pub phase: Vec<Part>,
    /// Intervals of trace time.
    pub time: Vec<Part>,
}

impl ByLibrary {
    /// Each list with its name.
    pub fn lists(&self) -> [(&'static str, &[Part]); 11] {
        let ByLibrary { reason, class, function, mapping, after, during, page_size, site, thread, phase, time } = self;
        [
            ("reason", reason),
            ("class", class),
            ("function", function),
            ("mapping", mapping),
            ("after", after),
            ("during", during),
            ("page_size", page_size),
            ("site", site),
            ("thread", thread),
            ("phase", phase),
            ("time", time),
        ]
    }

    fn of(explained: &Explained, names: &Names<'_>) -> ByLibrary {
        let Breakdown {
            reason, class, function, mapping, after, during, page_bytes, site, thread, phase, time, ..
        } = &explained.breakdown;
        ByLibrary {
            reason: parts(reason, |reason| reason.word().to_string()),
            class: parts(class, |&class| class_name(class)),
            function: parts(function, |&function| explained.functions.name(function).to_string()),
            mapping: parts(mapping, |&mapping| mapping_name(explained, mapping)),
            after: parts(after, |&after| sentences::removal(explained, after)),
            during: parts(during, |&during| match during {
                During::Start => START.to_string(),
                During::Touch => "program".to_string(),
                During::Call(name) => name.to_string(),
            }),
            page_size: parts(page_bytes, |&bytes| bytes.map_or("not known".into(), units::bytes)),
            site: names.sites(site),
            thread: parts(thread, |&thread| of_trace(thread, |thread| thread.to_string())),
            phase: parts(phase, |&mark| names.phase(mark)),
            time: times(time, &explained.interval_ends_ns),
        }
    }
}

fn class_name(class: Option<u64>) -> String {
    class.map_or("no request".into(), |class| class.to_string())
}

fn mapping_name(explained: &Explained, mapping: Option<Source>) -> String {
    let name = |function| explained.functions.name(function);
    match mapping {
        Some(Source::Heap(function)) => format!("heap, grown by {}", name(function)),
        Some(Source::Mmap(function)) => format!("mapped by {}", name(function)),
        Some(Source::Earlier) => "mapped before the first event".into(),
        Some(Source::Data(file)) => format!("data of {}", explained.functions.file(file)),
        None => "unmapped within the same call".into(),
    }
}

/// A cause with its best remedy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LibraryCause {
    /// The cause in words.
    pub sentence: String,
    /// Its reason.
    pub reason: Cow<'static, str>,
    /// The function of the library that is responsible.
    pub function: String,
    /// Its installs.
    pub installs: u64,
    /// The size class of requests that has most of them.
    pub class: String,
    /// Installs of that class.
    pub installs_of_class: u64,
    /// The effect of the remedy in words.
    pub remedy_sentence: String,
    /// What the remedy changes: environment variables, a THP mode, or flags of a design; absent if none was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// `setting`, `huge_pages` or `design`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy_kind: Option<Cow<'static, str>>,
    /// Installs of the cause with the remedy; absent for a design, which has other causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installs_of_cause_after: Option<u64>,
    /// All installs with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installs_after: Option<u64>,
    /// Peak resident bytes with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes_peak_after: Option<u64>,
}

impl LibraryCause {
    /// The `index`-th of the causes for which remedies were tried.
    fn new(explained: &Explained, index: usize, (key, counts): (CauseKey, &CauseCounts), tried: &[Tried]) -> Self {
        let found = best(tried, index, counts.installs, explained.breakdown.total);
        let main = counts.classes.iter().max_by_key(|(_, installs)| **installs);
        let (&class, &installs_of_class) = main.unwrap_or((&None, &0));
        LibraryCause {
            sentence: sentences::cause(explained, key, counts),
            reason: Cow::Borrowed(key.reason.word()),
            function: explained.functions.name(key.function).to_string(),
            installs: counts.installs,
            class: class_name(class),
            installs_of_class,
            remedy_sentence: sentences::remedy(explained, counts.installs, found),
            remedy: found.map(|(tried, _)| tried.remedy.change()),
            remedy_kind: found.map(|(tried, _)| Cow::Borrowed(tried.remedy.word())),
            installs_of_cause_after: found.and_then(|(_, left)| left),
            installs_after: found.map(|(tried, _)| tried.installs),
            rss_bytes_peak_after: found.map(|(tried, _)| tried.rss_bytes_peak),
        }
    }
}

/// A remedy with its effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TriedRemedy {
    /// `setting`, `huge_pages` or `design`.
    pub kind: Cow<'static, str>,
    /// What it changes.
    pub change: String,
    /// All installs with it.
    pub installs: u64,
    /// Peak resident bytes with it.
    pub rss_bytes_peak: u64,
}

/// Another library, or other settings, and what differs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LibraryAgainst {
    /// The allocator as it was given.
    pub allocator: String,
    /// Its installs.
    pub installs_total: u64,
    /// Its peak resident bytes.
    pub rss_bytes_peak: u64,
    /// Its installs by every key.
    pub by: ByLibrary,
    /// Every value of every key, apart from times, in which the two differ, the largest difference first.
    pub differences: Vec<LibraryDifference>,
    /// The totals and the largest differences in words.
    pub sentences: Vec<String>,
}

/// Installs of both libraries with one value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryDifference {
    /// The key.
    pub key: Cow<'static, str>,
    /// Its value.
    pub name: String,
    /// Installs of the explained library.
    pub installs: u64,
    /// Installs of the other one.
    pub installs_against: u64,
}

impl LibraryDifference {
    fn amount(&self) -> u64 {
        self.installs.abs_diff(self.installs_against)
    }

    fn sentence(&self) -> String {
        let more = if self.installs > self.installs_against { "more" } else { "fewer" };
        format!(
            "{} {more} for {}: {} instead of {}.",
            units::count(self.amount()),
            self.name.replace('_', " "),
            units::count(self.installs),
            units::count(self.installs_against)
        )
    }
}

/// The differences between the lists of all keys but time.
fn differences(own: &ByLibrary, other: &ByLibrary) -> Vec<LibraryDifference> {
    let of = |parts: &[Part], name: &str| parts.iter().find(|part| part.name == name).map_or(0, |part| part.installs);
    let mut found = Vec::new();
    for ((key, own), (_, other)) in own.lists().into_iter().zip(other.lists()).filter(|((key, _), _)| *key != "time") {
        let only_other = other.iter().filter(|part| own.iter().all(|mine| mine.name != part.name));
        let names = own.iter().chain(only_other).map(|part| part.name.as_str());
        found.extend(names.map(|name| LibraryDifference {
            key: Cow::Borrowed(key),
            name: name.to_string(),
            installs: of(own, name),
            installs_against: of(other, name),
        }));
    }
    found.retain(|difference| difference.amount() > 0);
    found.sort_by_key(|difference| std::cmp::Reverse(difference.amount()));
    found
}

impl LibraryAgainst {
    /// The difference to another explained replay; `allocator` is what was given.
    pub fn new(allocator: &str, own: &Explained, other: &Explained, names: &Names<'_>) -> LibraryAgainst {
        let (installs, rss) = (own.breakdown.total, own.totals.rss_bytes_peak);
        let (installs_total, rss_bytes_peak) = (other.breakdown.total, other.totals.rss_bytes_peak);
        let by = ByLibrary::of(other, names);
        let differences = differences(&ByLibrary::of(own, names), &by);
        let change = |now: u64, before: u64| percent_signed(now as f64 / before.max(1) as f64 - 1.0);
        let [rss_text, other_rss_text] = units::bytes_pair(rss, rss_bytes_peak);
        let totals = format!(
            "{} installs instead of {} with `{allocator}` ({}); peak RSS {rss_text} instead of {other_rss_text} ({}).",
            units::count(installs),
            units::count(installs_total),
            change(installs, installs_total),
            change(rss, rss_bytes_peak)
        );
        let of_reasons = differences.iter().filter(|difference| difference.key == "reason");
        let sentences = std::iter::once(totals).chain(of_reasons.take(SENTENCES).map(LibraryDifference::sentence));
        let sentences = sentences.collect();
        LibraryAgainst { allocator: allocator.into(), installs_total, rss_bytes_peak, by, differences, sentences }
    }
}

/// The inputs of an explained replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LibraryInputs {
    /// The trace.
    pub trace: TraceLabel,
    /// Events of the trace.
    pub events: u64,
    /// How the program touches its blocks.
    pub touch: TouchLabel,
    /// The allocator as it was given, with its settings.
    pub allocator: String,
    /// The preloaded library; null for the C library.
    pub library: Option<PathBuf>,
    /// The version of the library, if it is a known one.
    pub version: Option<String>,
}

/// An explained replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LibraryExplanation {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The inputs.
    #[serde(flatten)]
    pub inputs: LibraryInputs,
    /// All installs: page faults, pages that system calls populated, and the pages of `startup_bytes`.
    pub installs_total: u64,
    /// Faults that the kernel charged to the replay, without those of its own work, and the pages of `startup_bytes`.
    pub faults: u64,
    /// What the library took before the first event: the anonymous memory that its process has more than one with the C
    /// library. The resident bytes contain it.
    #[serde(default)]
    pub startup_bytes: u64,
    /// Faults of threads that the library started. No key contains them.
    pub faults_of_other_threads: u64,
    /// Page-fault exceptions whose record was lost. No key contains them.
    pub traps_lost: u64,
    /// The fewest pages that could hold the live bytes at their peak.
    pub floor_pages: u64,
    /// The same for those bytes that are touched.
    pub floor_touched_pages: u64,
    /// Peak resident bytes.
    pub rss_bytes_peak: u64,
    /// Resident bytes at the end.
    pub rss_bytes_end: u64,
    /// Requests that the allocator refused.
    pub requests_failed: u64,
    /// Installs by every key.
    pub by: ByLibrary,
    /// Installs by who asked for the memory, in the text instead of `by.site`: whole stacks do not fit.
    #[serde(skip)]
    pub callers: Vec<Part>,
    /// The largest causes.
    pub causes: Vec<LibraryCause>,
    /// All remedies that were tried.
    pub tried: Vec<TriedRemedy>,
    /// The difference to another library, or to other settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<LibraryAgainst>,
    /// What could not be recorded or tried.
    pub skipped: Vec<Skipped>,
}

impl LibraryExplanation {
    /// The result for an explained replay and the remedies that were tried for its largest causes, as many as `causes`.
    pub fn new(
        inputs: LibraryInputs,
        explained: &Explained,
        (causes, trials): (usize, Trials),
        names: &Names<'_>,
        against: Option<LibraryAgainst>,
    ) -> LibraryExplanation {
        let Explained { totals, breakdown, .. } = explained;
        let largest = breakdown.largest_causes().into_iter().take(causes).enumerate();
        let tried = trials.tried.iter().map(|tried| TriedRemedy {
            kind: Cow::Borrowed(tried.remedy.word()),
            change: tried.remedy.change(),
            installs: tried.installs,
            rss_bytes_peak: tried.rss_bytes_peak,
        });
        LibraryExplanation {
            stamp: Stamp::here(),
            inputs,
            installs_total: breakdown.total,
            faults: explained.faults(),
            startup_bytes: totals.startup.bytes,
            faults_of_other_threads: totals.faults_of_other_threads,
            traps_lost: totals.traps_lost,
            floor_pages: totals.live_bytes_peak.div_ceil(PAGE_BYTES),
            floor_touched_pages: totals.live_touched_bytes_peak.div_ceil(PAGE_BYTES),
            rss_bytes_peak: totals.rss_bytes_peak,
            rss_bytes_end: totals.rss_bytes_end,
            requests_failed: totals.requests_failed,
            by: ByLibrary::of(explained, names),
            callers: names.callers(&breakdown.site),
            causes: largest.map(|(index, cause)| LibraryCause::new(explained, index, cause, &trials.tried)).collect(),
            tried: tried.collect(),
            against,
            skipped: totals.skipped.iter().chain(&trials.skipped).cloned().collect(),
        }
    }

    /// The breakdowns as rows of a CSV table.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let lists = self.by.lists().into_iter();
        let rows = lists.flat_map(|(key, parts)| parts.iter().map(move |part| (key, part)));
        rows.map(|(key, part)| Row::of(key, part)).collect()
    }
}
