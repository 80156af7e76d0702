//! The result of `explain`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use hksim_explore::causes::{Cause, Tried};
use hksim_explore::described::Described;
use hksim_explore::explained_time::ExplainedTime;
use hksim_explore::sentences::causes as sentences;
use hksim_policy::Policy;
use hksim_sim::explain::{Breakdown, INTERVALS, Origin, PerMark};
use hksim_sim::{Explained, SimReport};
use hksim_text::units;
use hksim_trace::event::SiteId;
use hksim_trace::header::Footer;
use hksim_trace::symbols::{NamedSites, file_name, short_text};
use serde::{Deserialize, Serialize};

use crate::against::Against;
use crate::explained_time::TimesExplained;
use crate::stack_profile::{StackProfile, ValueKind};

/// The name of what happens before the first event.
pub const START: &str = "start-up";

/// The name of a call site without frames.
const NO_SITE: &str = "not recorded";

/// An entry of a breakdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The value of the key.
    pub name: String,
    /// Installs.
    pub installs: u64,
    /// The kernel's time for them, in nanoseconds per call of the allocator; absent without a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_ns_per_call: Option<f64>,
}

/// Installs by every key. The sum over each list is the total.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct By {
    /// Why the page was not present.
    pub reason: Vec<Part>,
    /// Size class of the block whose page it was: its bytes, or `large`, `huge`, `metadata`, `unused`.
    pub class: Vec<Part>,
    /// SuperSlab; `tables` for the allocator's own tables.
    pub superslab: Vec<Part>,
    /// Call site that allocated the object: its frames, innermost first, separated by `;`.
    pub site: Vec<Part>,
    /// Thread.
    pub thread: Vec<Part>,
    /// The last mark before.
    pub phase: Vec<Part>,
    /// Intervals of trace time.
    pub time: Vec<Part>,
}

impl By {
    /// Each list with its name.
    pub fn lists(&self) -> [(&'static str, &[Part]); 7] {
        let By { reason, class, superslab, site, thread, phase, time } = self;
        [
            ("reason", reason),
            ("class", class),
            ("superslab", superslab),
            ("site", site),
            ("thread", thread),
            ("phase", phase),
            ("time", time),
        ]
    }

    /// The breakdowns of an explained simulation, with the kernel's time if it is known.
    pub fn of<P>(explained: &Explained<P>, time: Option<&ExplainedTime<P>>, names: &Names<'_>) -> By {
        let mut by = By::installs(&explained.breakdown, &explained.interval_ends_ns, names);
        if let Some(time) = time {
            by.lists_mut().into_iter().flatten().for_each(|part| part.kernel_ns_per_call = Some(0.0));
            for (work, &ns) in &time.ns_per_install {
                let Some(breakdown) = explained.by_work.get(work) else { continue };
                by.add_time(&By::installs(breakdown, &explained.interval_ends_ns, names), ns);
            }
        }
        by
    }

    fn lists_mut(&mut self) -> [&mut Vec<Part>; 7] {
        let By { reason, class, superslab, site, thread, phase, time } = self;
        [reason, class, superslab, site, thread, phase, time]
    }

    /// Adds the time of some of the installs, each of which takes as long.
    fn add_time(&mut self, installs: &By, ns_per_install: f64) {
        for (own, (_, some)) in self.lists_mut().into_iter().zip(installs.lists()) {
            for part in own {
                let installs = some.iter().find(|some| some.name == part.name).map_or(0, |some| some.installs);
                part.kernel_ns_per_call = part.kernel_ns_per_call.map(|known| known + installs as f64 * ns_per_install);
            }
        }
    }

    fn installs(breakdown: &Breakdown, interval_ends_ns: &[u64; INTERVALS], names: &Names<'_>) -> By {
        let Breakdown { reason, page_use, superslab, site, thread, phase, time, .. } = breakdown;
        By {
            reason: parts(reason, |reason| reason.word().to_string()),
            class: parts(page_use, |&page_use| class_name(page_use)),
            superslab: parts(superslab, |superslab| superslab.map_or("tables".into(), |number| number.to_string())),
            site: names.sites(site),
            thread: parts(thread, |&thread| of_trace(thread, |thread| thread.to_string())),
            phase: parts(phase, |&phase| of_trace(phase, |mark| names.phase(mark))),
            time: times(time, interval_ends_ns),
        }
    }
}

pub(crate) fn of_trace<T>(origin: Origin<T>, name: impl Fn(T) -> String) -> String {
    match origin {
        Origin::Start => START.into(),
        Origin::Trace(value) => name(value),
    }
}

fn class_name(page_use: hksim_sim::memory::PageUse) -> String {
    use hksim_sim::memory::PageUse;
    match page_use {
        PageUse::Slab(bytes) => bytes.to_string(),
        other => sentences::page_use(other),
    }
}

/// The entries of a key, those with equal names joined.
pub(crate) fn parts<K>(counts: &BTreeMap<K, u64>, name: impl Fn(&K) -> String) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (key, &installs) in counts {
        let name = name(key);
        match parts.iter_mut().find(|part| part.name == name) {
            Some(part) => part.installs += installs,
            None => parts.push(Part { name, installs, kernel_ns_per_call: None }),
        }
    }
    parts
}

pub(crate) fn times(counts: &[u64; INTERVALS], ends_ns: &[u64; INTERVALS]) -> Vec<Part> {
    let starts = std::iter::once(0).chain(ends_ns.iter().copied());
    let parts = starts.zip(ends_ns).zip(counts).map(|((start, &end), &installs)| Part {
        name: format!("{} to {}", units::time(start), units::time(end)),
        installs,
        kernel_ns_per_call: None,
    });
    parts.collect()
}

/// Names of sites and marks.
pub struct Names<'a> {
    footer: &'a Footer,
    sites: RefCell<NamedSites<'a>>,
}

impl<'a> Names<'a> {
    /// The names of a trace.
    pub fn of(footer: &'a Footer) -> Names<'a> {
        Names { footer, sites: RefCell::new(NamedSites::new(&footer.sites)) }
    }

    pub(crate) fn site(&self, site: u32) -> String {
        let frames = self.sites.borrow_mut().stack(SiteId(site));
        if frames.is_empty() { NO_SITE.into() } else { frames.join(";") }
    }

    /// Who asked for the memory at a site: the function outside the C library and allocators, with its line.
    pub(crate) fn caller(&self, site: u32) -> String {
        let mut sites = self.sites.borrow_mut();
        let Some(caller) = sites.caller(SiteId(site)) else { return NO_SITE.into() };
        let line = caller.frame.source.as_deref().map(|source| format!("  {}", file_name(source)));
        short_text(&self.footer.sites, caller.frame) + &line.unwrap_or_default()
    }

    /// Installs by call site.
    pub(crate) fn sites(&self, installs: &BTreeMap<Origin<u32>, u64>) -> Vec<Part> {
        parts(installs, |&site| of_trace(site, |site| self.site(site)))
    }

    /// Installs by who asked for the memory.
    pub(crate) fn callers(&self, installs: &BTreeMap<Origin<u32>, u64>) -> Vec<Part> {
        parts(installs, |&site| of_trace(site, |site| self.caller(site)))
    }

    /// Installs by call stack.
    pub fn profile(&self, installs: &BTreeMap<Origin<u32>, u64>) -> StackProfile {
        let mut profile = StackProfile::new(&[ValueKind { name: "installs", unit: "count" }], 0);
        for (&site, &count) in installs {
            match site {
                Origin::Start => profile.push_named(&format!("[{START}]"), &[count]),
                Origin::Trace(site) => {
                    profile.push(&mut self.sites.borrow_mut(), SiteId(site), &[count]);
                }
            }
        }
        profile
    }

    pub(crate) fn phase(&self, mark: Option<u32>) -> String {
        let name = mark.and_then(|mark| self.footer.mark_names.get(mark as usize).cloned());
        let no_mark = if self.footer.mark_names.is_empty() { "whole trace" } else { "before the first mark" };
        name.unwrap_or_else(|| no_mark.into())
    }

    /// Notes about names that were not found.
    pub fn notes(&self) -> Vec<String> {
        self.sites.borrow().notes()
    }
}

/// A cause with its best remedy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CauseRow {
    /// The cause in words.
    pub sentence: String,
    /// Its reason.
    pub reason: Cow<'static, str>,
    /// Its installs.
    pub installs: u64,
    /// The class that has most of them.
    pub class: String,
    /// Installs of that class.
    pub installs_of_class: u64,
    /// The effect of the remedy in words.
    pub remedy_sentence: String,
    /// The flags that remove it; absent if none was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The same flags with the values that the remedy replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy_replaces: Option<String>,
    /// Installs of the cause with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installs_of_cause_after: Option<u64>,
    /// All installs with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installs_after: Option<u64>,
    /// Peak resident bytes with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes_peak_after: Option<u64>,
}

impl CauseRow {
    /// A cause with what its remedy does.
    pub fn new<P>(cause: &Cause, remedy: Option<&Tried<P>>, before: &SimReport<P>) -> CauseRow {
        CauseRow {
            sentence: sentences::cause(cause, before.installs.total),
            reason: Cow::Borrowed(cause.reason.word()),
            installs: cause.installs,
            class: class_name(cause.main_use),
            installs_of_class: cause.main_installs,
            remedy_sentence: sentences::remedy(cause, remedy, (before.installs.total, before.rss_bytes_peak)),
            remedy: remedy.map(|tried| tried.remedy.flags.clone()),
            remedy_replaces: remedy.map(|tried| tried.remedy.replaces.clone()),
            installs_of_cause_after: remedy.map(|tried| tried.installs_of_cause),
            installs_after: remedy.map(|tried| tried.installs),
            rss_bytes_peak_after: remedy.map(|tried| tried.rss_bytes_peak),
        }
    }
}

/// The states of pages over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapResult {
    /// Pages of a row.
    pub cell_pages: u64,
    /// Trace time of each sample.
    pub times_ns: Vec<u64>,
    /// The rows that were ever touched, by address.
    pub rows: Vec<MapRowResult>,
}

/// A row of the map.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapRowResult {
    /// The SuperSlab of the first page; absent for the allocator's tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superslab: Option<u32>,
    /// The first page, numbered from the start of the reservation.
    pub first_page: u64,
    /// A letter for each sample: `.` untouched, `r` resident, `h` huge, `p` purged, `f` refaulted.
    pub states: String,
}

/// Live bytes of a SuperSlab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Occupancy {
    /// Its number.
    pub superslab: u32,
    /// Requested bytes of live objects at each sample of the page map.
    pub live_bytes: Vec<u64>,
}

/// Installs per request: from each mark of one name to the next mark of any name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PerMarkResult {
    /// The name of the marks.
    pub mark: String,
    /// Number of marks with that name.
    pub marks: u64,
    /// Installs before the first of them.
    pub installs_before: u64,
    /// Installs after them, each time up to the next mark of any name.
    pub installs: u64,
    /// Installs after marks of other names that follow the first of them.
    pub installs_elsewhere: u64,
    /// The mean per mark.
    pub installs_mean: f64,
    /// The median.
    pub installs_median: f64,
    /// The 99th percentile.
    pub installs_p99: u64,
    /// The maximum.
    pub installs_max: u64,
}

impl PerMarkResult {
    fn of(mark: &str, per_mark: &PerMark) -> PerMarkResult {
        let (marks, installs) = (per_mark.installs.len() as u64, per_mark.installs.iter().sum::<u64>());
        PerMarkResult {
            mark: mark.into(),
            marks,
            installs_before: per_mark.installs_before,
            installs,
            installs_elsewhere: per_mark.installs_elsewhere,
            installs_mean: installs as f64 / marks.max(1) as f64,
            installs_median: per_mark.median(),
            installs_p99: per_mark.quantile(0.99),
            installs_max: per_mark.quantile(1.0),
        }
    }
}

/// An explained simulation. `P` describes the allocator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation<P = Policy> {
    /// The simulation, as `sim` writes it.
    #[serde(flatten)]
    pub report: SimReport<P>,
    /// Its times; absent without a profile.
    #[serde(flatten)]
    pub times: Option<TimesExplained>,
    /// All installs.
    pub installs_total: u64,
    /// Installs by every key.
    pub by: By,
    /// Installs by who asked for the memory, in the text instead of `by.site`: whole stacks do not fit.
    #[serde(skip)]
    pub callers: Vec<Part>,
    /// The largest causes.
    pub causes: Vec<CauseRow>,
    /// The difference to another policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Against<P>>,
    /// Installs per mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_mark: Option<PerMarkResult>,
    /// The states of pages over time.
    pub page_map: MapResult,
    /// Live bytes of each SuperSlab over time.
    pub occupancy: Vec<Occupancy>,
}

impl<P: Described> Explanation<P> {
    /// The result for an explained simulation; `mark` is the name of the marks of `--per`.
    pub fn new(
        explained: &Explained<P>,
        time: Option<&ExplainedTime<P>>,
        causes: Vec<CauseRow>,
        names: &Names<'_>,
        mark: Option<&str>,
        against: Option<Against<P>>,
    ) -> Explanation<P> {
        let per_mark = mark.zip(explained.per_mark.as_ref());
        let occupancy = explained.occupancy.iter();
        Explanation {
            installs_total: explained.report.installs.total,
            times: time.map(TimesExplained::of),
            by: By::of(explained, time, names),
            callers: names.callers(&explained.breakdown.site),
            causes,
            against,
            per_mark: per_mark.map(|(mark, per_mark)| PerMarkResult::of(mark, per_mark)),
            page_map: map(explained),
            occupancy: occupancy
                .map(|(&superslab, live_bytes)| Occupancy { superslab, live_bytes: live_bytes.clone() })
                .collect(),
            report: explained.report.clone(),
        }
    }

    /// The breakdowns as rows of a CSV table.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = Vec::new();
        for (key, parts) in self.by.lists() {
            rows.extend(parts.iter().map(|part| Row::of(key, part)));
        }
        rows
    }
}

/// A row of the CSV table.
#[derive(Debug, Serialize)]
pub struct Row<'a> {
    /// The breakdown.
    pub key: &'static str,
    /// The value of the key.
    pub name: &'a str,
    /// Installs.
    pub installs: u64,
    /// The kernel's time for them; absent without a profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_ns_per_call: Option<f64>,
}

impl<'a> Row<'a> {
    /// The row of an entry.
    pub(crate) fn of(key: &'static str, part: &'a Part) -> Row<'a> {
        let Part { name, installs, kernel_ns_per_call } = part;
        Row { key, name, installs: *installs, kernel_ns_per_call: *kernel_ns_per_call }
    }
}

fn map<P>(explained: &Explained<P>) -> MapResult {
    let rows = explained.page_map.rows.iter().map(|row| MapRowResult {
        superslab: row.superslab,
        first_page: row.first_page,
        states: row.states.iter().map(|state| state.letter()).collect(),
    });
    MapResult {
        cell_pages: explained.page_map.cell_pages,
        times_ns: explained.sample_times_ns.clone(),
        rows: rows.collect(),
    }
}
