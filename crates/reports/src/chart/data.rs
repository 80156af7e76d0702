//! The data of charts: a JSON result, fresh or read from a file.

use crate::error::{Context, Result};
use hksim_cost_model::MedianRange;
use hksim_policy::HUGE_PAGE_BYTES;
use hksim_sim::report;
use hksim_trace::header::Origin;
use serde::Deserialize;
use serde_json::Value;

use super::names::Names;
use super::recordings;
use crate::memory_limit::range;
use hksim_explore::flags::row::Inputs;
use hksim_explore::flags::table::{FLAGS, Subject};
use hksim_explore::flags::{RunConfig, varied};
use hksim_explore::origin::origin_text;
use hksim_linux_mm::MemoryLimit;
use hksim_text::units;

/// The parts of a result's row that are drawn.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    trace: Trace,
    #[serde(flatten)]
    inputs: Inputs,
    installs: Installs,
    time: Option<Time>,
    rss_bytes_peak: u64,
    khugepaged_settled: Option<Settled>,
    floor_pages: u64,
    memory_limit: Option<MemoryLimit>,
    timeline: Vec<report::Sample>,
}

/// The peak since the previous sample, if it is higher, and the sample.
fn points(sample: &report::Sample) -> impl Iterator<Item = Sample> + use<> {
    let report::Sample { time_ns: at, live_bytes, rss_bytes, rss_bytes_peak, huge_pages, hugetlb_bytes, .. } = *sample;
    let huge_bytes = huge_pages.saturating_mul(HUGE_PAGE_BYTES).saturating_add(hugetlb_bytes);
    let peak = (rss_bytes_peak > rss_bytes).then_some(rss_bytes_peak);
    peak.into_iter().chain([rss_bytes]).map(move |rss_bytes| Sample { at, live_bytes, rss_bytes, huge_bytes })
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Trace {
    file: Option<String>,
    origin: Origin,
}

/// The part of the installs that is drawn.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Installs {
    pub total: u64,
}

/// The part of the time that is drawn.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Time {
    ns_per_call: MedianRange,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Events done, or nanoseconds of trace time.
    pub at: u64,
    /// Requested bytes of live objects.
    pub live_bytes: u64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Those in huge pages, transparent or of hugetlb.
    pub huge_bytes: u64,
}

/// One trace, which is one part of the chart.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The trace's name.
    pub title: String,
    /// Bytes in the fewest pages that can hold the live set at its peak.
    pub floor_bytes: u64,
    /// The designs: those on the front first, each group in descending order of installs.
    pub series: Vec<Series>,
    /// What the timelines run over.
    pub progress: Progress,
    /// What peak residency is drawn against.
    pub cost: Cost,
}

/// What a design's peak residency is drawn against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Installs.
    Installs,
    /// The time of a call, of the designs that have one.
    Time,
}

impl Cost {
    /// The figure, in words.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Installs => "installs",
            Cost::Time => "time per call",
        }
    }
}

/// What a timeline runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Events of a trace.
    Events,
    /// Nanoseconds.
    Time,
}

/// Memory once khugepaged has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Settled {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Huge pages.
    pub huge_pages: u64,
}

/// Figures at one end of their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Installs.
    pub installs: u64,
    /// Peak resident bytes.
    pub rss_bytes_peak: u64,
}

/// Designs with the same figures.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The values of the flags in which these designs differ from the others: `2M thp/hugetlb`.
    pub label: String,
    /// Installs.
    pub installs: u64,
    /// Predicted nanoseconds per call: the median.
    pub ns_per_call: Option<f64>,
    /// Peak resident bytes.
    pub rss_bytes_peak: u64,
    /// The smaller and the larger ends of figures that depend on writes which a recording does not have; `None` if none do.
    pub ends: Option<[Ends; 2]>,
    /// Memory at the end once khugepaged has settled, if that was asked for.
    pub settled: Option<Settled>,
    /// Whether these designs are on the Pareto front.
    pub is_front: bool,
    /// Whether the kernel kills, or may kill, the program at its memory limit.
    pub is_killed: bool,
    /// Residency over time.
    pub timeline: Vec<Sample>,
    /// What identifies its designs in all panels and results.
    pub designs: Vec<String>,
    /// Determines the style. A design has the same rank in all panels, see [`rank`](super::subject::rank).
    pub rank: usize,
}

impl Series {
    /// Its name and figures in one line.
    pub fn text(&self) -> String {
        let [installs, bytes] = self.installs_and_peak();
        let name = if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) };
        let time = self.ns_per_call.map_or(String::new(), |ns| format!("{ns:.1} ns per call, "));
        format!("{name}{time}{installs} installs, peak RSS {bytes}")
    }

    fn ends(&self) -> [Ends; 2] {
        let own = Ends { installs: self.installs, rss_bytes_peak: self.rss_bytes_peak };
        self.ends.unwrap_or([own, own])
    }

    /// The larger ends, by which series are compared.
    pub fn most(&self) -> Ends {
        self.ends()[1]
    }

    /// Installs and peak residency, as ranges if they are.
    pub fn installs_and_peak(&self) -> [String; 2] {
        let [least, most] = self.ends();
        [
            range(least.installs, most.installs, units::count),
            range(least.rss_bytes_peak, most.rss_bytes_peak, units::bytes),
        ]
    }

    /// What its peak residency is drawn against: at least 1 install, or nanoseconds per call; `None` without a time.
    pub fn cost(&self, cost: Cost) -> Option<f64> {
        match cost {
            Cost::Installs => Some(self.installs.max(1) as f64),
            Cost::Time => self.ns_per_call,
        }
    }
}

/// The panels of a `sweep` or `sim` result, one for each trace.
///
/// # Errors
/// The result is not from `sweep` or `sim`.
pub fn panels(result: &Value) -> Result<Vec<Panel>> {
    let is_sweep = result.get("rows").is_some();
    let first = if is_sweep { result["rows"].get(0) } else { Some(result) };
    if first.is_some_and(|row| row.get("recording").is_some()) {
        return recordings::panels(result);
    }
    let mut rows: Vec<Row> = if is_sweep {
        Vec::deserialize(&result["rows"]).context("not a sweep result")?
    } else {
        vec![Row::deserialize(result).context("neither a sweep nor a sim result")?]
    };
    // Times are drawn if designs can be compared by them.
    let has_times = rows.iter().filter(|row| row.time.is_some()).count() >= 2 && result.get("pareto_time").is_some();
    let (cost, front) = if has_times { (Cost::Time, "pareto_time") } else { (Cost::Installs, "pareto") };
    let front: Vec<usize> =
        if is_sweep { Vec::deserialize(&result[front]).with_context(|| format!("no `{front}`"))? } else { vec![0] };
    let mut panels = Vec::new();
    let mut first = 0;
    while let Some(row) = rows.first() {
        let same = rows.iter().take_while(|other| other.trace == row.trace).count();
        let rest = rows.split_off(same);
        panels.push(panel(&rows, cost, |index| front.contains(&(first + index))));
        first += same;
        rows = rest;
    }
    Ok(panels)
}

fn panel(rows: &[Row], cost: Cost, is_front: impl Fn(usize) -> bool) -> Panel {
    let configs: Vec<RunConfig> = rows.iter().filter_map(|row| row.inputs.config()).collect();
    let varied = varied(&configs);
    let series = rows.iter().enumerate().map(|(index, row)| Series {
        label: String::new(),
        installs: row.installs.total,
        ns_per_call: row.time.map(|time| time.ns_per_call.median),
        rss_bytes_peak: row.rss_bytes_peak,
        ends: None,
        settled: row.khugepaged_settled,
        is_front: is_front(index),
        is_killed: row.memory_limit.as_ref().is_some_and(|limit| !limit.survives()),
        timeline: row.timeline.iter().flat_map(points).collect(),
        designs: vec![row.inputs.config().map_or_else(|| format!("row {index}"), |config| design(&config, &varied))],
        rank: 0,
    });
    let title = rows.first().map(title).unwrap_or_default();
    let floor_pages = rows.iter().map(|row| row.floor_pages).max().unwrap_or(0);
    let floor_bytes = floor_pages.saturating_mul(hksim_policy::PAGE_BYTES);
    let series = grouped(series.collect(), &Names::of(&configs));
    Panel { title, floor_bytes, series, progress: Progress::Time, cost }
}

/// Identifies a design: its policy, and what else varies. A program's touches may differ between traces.
fn design(config: &RunConfig, varied: &[&str]) -> String {
    let flags = FLAGS.iter().filter(|flag| flag.subject == Subject::Policy || varied.contains(&flag.name));
    flags.map(|flag| format!("{}={} ", flag.name, flag.show(config))).collect()
}

/// Joins designs with equal figures into one series, and names each.
pub(super) fn grouped(designs: Vec<Series>, names: &Names) -> Vec<Series> {
    let mut series: Vec<(Series, Vec<usize>)> = Vec::new();
    for (index, design) in designs.into_iter().enumerate() {
        let figures =
            |one: &Series| (one.installs, one.ns_per_call, one.rss_bytes_peak, one.ends, one.settled, one.is_killed);
        let is_twin = |twin: &Series| figures(twin) == figures(&design) && twin.timeline == design.timeline;
        let twin = series.iter_mut().find(|(twin, _)| is_twin(twin));
        match twin {
            Some((twin, members)) => {
                twin.designs.extend(design.designs);
                members.push(index);
            }
            None => series.push((design, vec![index])),
        }
    }
    let named = |(series, members): (Series, Vec<usize>)| Series { label: names.of_group(&members), ..series };
    let mut series: Vec<Series> = series.into_iter().map(named).collect();
    series.sort_by_key(|series| (!series.is_front, std::cmp::Reverse(series.installs)));
    series
}

fn title(row: &Row) -> String {
    match &row.trace.file {
        Some(file) => file.rsplit('/').next().unwrap_or(file).to_string(),
        None => match &row.trace.origin {
            Origin::Generated { name, .. } => format!("{name} (built in)"),
            origin => origin_text(origin),
        },
    }
}
