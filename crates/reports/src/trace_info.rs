//! The summary of a trace as text.

use hksim_explore::origin::{origin_text, touch_text};
use hksim_trace::header::{Clock, HistoryStep, Quality};
use hksim_trace::info::{Info, LogQuantiles};

use hksim_text::table::{Table, text as joined};
use hksim_text::units;

/// Characters of the longest bar.
const BAR: u64 = 36;
const BAR_EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Time spans in a sparkline.
const COLUMNS: usize = 64;
/// Maximum rows of a list; JSON has all.
const ROWS: usize = 8;

/// A summary as text, in tables of at most this many columns. `truncated` says where a trace without an end ends.
pub fn text(info: &Info, history: &[HistoryStep], truncated: Option<&str>, columns: Option<usize>) -> String {
    let fitted = |table: &Table| joined(&table.fitted(columns.unwrap_or(usize::MAX)));
    let parts = [
        summary(info, history, truncated),
        sizes(info, &fitted),
        life(info, &fitted),
        threads(info, &fitted),
        quality_lines(&info.quality),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn summary(info: &Info, history: &[HistoryStep], truncated: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<22}{value}\n");
    line("origin", origin_text(&info.origin));
    if !history.is_empty() {
        line("edited by", history.iter().map(|step| step.tool.as_str()).collect::<Vec<_>>().join(", "));
    }
    line("touches", touch_text(info.touch_source).to_string());
    line("complete", complete(info, truncated));
    line("duration", duration(info));
    let counts = [
        ("events", info.events),
        ("  malloc", info.mallocs),
        ("  calloc", info.callocs),
        ("  realloc", info.reallocs),
        ("  memalign family", info.aligned_allocs),
        ("  free", info.frees),
        ("  free(NULL)", info.frees_null),
        ("  usable size", info.usable_size_calls),
        ("  touches", info.touch_events),
        ("  marks", info.marks),
        ("failed calls", info.requests_failed),
        ("threads", u64::from(info.threads)),
        ("unknown frees", info.unknown_frees),
        ("live objects, peak", info.live_objects_peak),
        ("live objects, end", info.live_objects_end),
    ];
    for (name, count) in counts {
        line(name, units::count(count));
    }
    if info.forks > 0 {
        line("forks", forks(info));
    }
    for change in info.memory_policies.iter().take(ROWS) {
        let from =
            if change.inherited { "from the start".into() } else { format!("event {}", units::count(change.event)) };
        line("memory policy", format!("{} ({from})", change.policy));
    }
    if info.memory_policy_changes > ROWS as u64 {
        line("", format!("and {} more", units::of(info.memory_policy_changes - ROWS as u64, "change")));
    }
    let crossed = units::percent(info.cross_thread_frees, info.lifetimes.freed);
    line("cross-thread frees", format!("{} ({crossed} of all frees)", units::count(info.cross_thread_frees)));
    line(
        "live bytes, peak",
        format!("{} ({})", units::count(info.live_bytes_peak), units::bytes(info.live_bytes_peak)),
    );
    line("live bytes, over time", sparkline(info));
    let zeroed = units::percent(info.calloc_bytes, info.allocated_bytes);
    let allocated = units::bytes(info.allocated_bytes);
    line("bytes allocated", format!("{allocated} (for a realloc, the bytes it added), {zeroed} of them by calloc"));
    text
}

fn complete(info: &Info, truncated: Option<&str>) -> String {
    match (truncated, info.quality.lost()) {
        (Some(tail), _) => format!("truncated: {tail}"),
        (None, 0) => "yes".to_string(),
        (None, lost) => format!("no: the recorder lost {}", units::of(lost, "event")),
    }
}

/// The number of children, and when they ended.
fn forks(info: &Info) -> String {
    let unknown = info.forks.saturating_sub(info.forks_ended + info.forks_outliving);
    let parts =
        [(info.forks_ended, "ended"), (info.forks_outliving, "outlived the trace"), (unknown, "with unknown end")];
    let parts = parts.iter().filter(|part| part.0 > 0);
    let parts: Vec<String> = parts.map(|(children, what)| format!("{} {what}", units::count(*children))).collect();
    format!("{} ({})", units::count(info.forks), parts.join(", "))
}

/// The duration and the event rate, or a note that the trace has no times.
fn duration(info: &Info) -> String {
    let time = units::time(info.duration_ns);
    match info.clock {
        Clock::PerEvent => format!("not recorded; times are assumed, {} ns per call ({time} in all)", Clock::EVENT_NS),
        Clock::Measured => time + &rate(info),
    }
}

/// Events per second; empty if the duration is 0.
fn rate(info: &Info) -> String {
    if info.duration_ns == 0 {
        return String::new();
    }
    let per_second = u128::from(info.events) * 1_000_000_000 / u128::from(info.duration_ns);
    format!(", {} events per second", units::count(u64::try_from(per_second).unwrap_or(u64::MAX)))
}

/// The peak of live bytes in each of 64 equal time spans; the highest is a full block.
fn sparkline(info: &Info) -> String {
    let peak = info.live_bytes_peak.max(1);
    let height = |bytes: u64| HEIGHTS[(u128::from(bytes) * 7).div_ceil(u128::from(peak)) as usize];
    let column = |time_ns: u64| (u128::from(time_ns) * COLUMNS as u128 / (u128::from(info.duration_ns) + 1)) as usize;
    let mut points = info.over_time.iter().peekable();
    let mut bytes = 0;
    let columns = (0..COLUMNS).map(|at| {
        // Bytes that were live at the start of the span count too.
        let mut highest = bytes;
        while let Some(point) = points.next_if(|point| column(point.time_ns) == at) {
            bytes = point.live_bytes;
            highest = highest.max(bytes);
        }
        height(highest)
    });
    if info.over_time.is_empty() { String::new() } else { columns.collect() }
}

fn bar(part: u64, most: u64) -> String {
    let eighths = (u128::from(part) * u128::from(BAR) * 8 / u128::from(most.max(1))) as usize;
    let least = usize::from(part > 0);
    let eighths = eighths.max(least);
    "█".repeat(eighths / 8) + BAR_EIGHTHS[eighths % 8]
}

fn sizes(info: &Info, fitted: &dyn Fn(&Table) -> String) -> String {
    if info.size_histogram.is_empty() {
        return String::new();
    }
    let q = info.size_bytes;
    let [p50, p90, p99, max] = [q.p50, q.p90, q.p99, q.max].map(units::count);
    let mut lines = format!("sizes                 50 % up to {p50}, 90 % {p90}, 99 % {p99}, largest {max}\n");
    let total = info.size_histogram.iter().map(|bin| bin.calls).sum();
    let most = info.size_histogram.iter().map(|bin| bin.calls).max().unwrap_or(1);
    let mut table = Table::new(["up to", "calls", "share", "bytes", ""], &[4]);
    for bin in &info.size_histogram {
        let share = units::percent(bin.calls, total);
        let cells = [units::bytes(bin.bytes_max), units::count(bin.calls), share, units::bytes(bin.bytes)];
        table.push(cells.into_iter().chain([bar(bin.calls, most)]));
    }
    lines += &fitted(&table);
    let top = info.top_sizes.iter().take(ROWS);
    let top = top.map(|size| format!("{} ({})", units::count(size.bytes), units::percent(size.calls, total)));
    lines += &wrapped("most frequent", &top.collect::<Vec<_>>());
    let aligned = info.alignments.iter();
    let aligned = aligned.map(|(&align, &calls)| format!("{} x {}", units::count(calls), units::bytes(align)));
    lines += &wrapped("aligned to", &aligned.collect::<Vec<_>>());
    lines
}

/// A name followed by its items, wrapped to several lines; empty without items.
fn wrapped(name: &str, items: &[String]) -> String {
    let mut lines = String::new();
    let mut line = format!("{name:<20}");
    for (number, item) in items.iter().enumerate() {
        if line.chars().count() + item.chars().count() > 96 {
            lines += &format!("{line}\n");
            line = " ".repeat(20);
        }
        line += &format!("  {item}{}", if number + 1 < items.len() { "," } else { "" });
    }
    if items.is_empty() { lines } else { lines + &line + "\n" }
}

fn life(info: &Info, fitted: &dyn Fn(&Table) -> String) -> String {
    let lifetimes = &info.lifetimes;
    if lifetimes.freed == 0 {
        return String::new();
    }
    let row = |q: &LogQuantiles, show: fn(u64) -> String| [q.p10, q.p50, q.p90, q.p99, q.max].map(show);
    let mut table = Table::new(["lifetimes of freed objects", "10 %", "50 %", "90 %", "99 %", "longest"], &[0]);
    if info.clock == Clock::Measured {
        table.push(["time".to_string()].into_iter().chain(row(&lifetimes.time_ns, units::time)));
    }
    let bytes = row(&lifetimes.allocated_bytes, units::bytes);
    table.push(["bytes allocated until then".to_string()].into_iter().chain(bytes));
    let mut lines = fitted(&table);
    let share = |count| units::percent(count, lifetimes.freed);
    lines += &format!(
        "{} freed before the next allocation, {} within the next 100\n",
        share(lifetimes.freed_before_next_allocation),
        share(lifetimes.freed_within_100_allocations)
    );
    let resizes = &info.realloc_outcomes;
    if resizes.grown + resizes.shrunk + resizes.unchanged > 0 {
        let [grown, shrunk, same] = [resizes.grown, resizes.shrunk, resizes.unchanged].map(units::count);
        let copied = units::bytes(resizes.copied_bytes_max);
        lines += &format!("reallocs: {grown} grew, {shrunk} shrank, {same} kept the size; up to {copied} copied, ");
        lines += &format!("up to {} reallocs of one object\n", units::count(u64::from(resizes.per_object_max)));
    }
    lines
}

fn threads(info: &Info, fitted: &dyn Fn(&Table) -> String) -> String {
    if info.threads < 2 {
        return String::new();
    }
    let mut table = Table::new(["thread", "allocations", "bytes", "frees", "freed by others", "from", "to"], &[]);
    for thread in info.by_thread.iter().take(ROWS) {
        let counts = [thread.allocations, thread.frees].map(units::count);
        let [allocations, frees] = counts;
        let crossed = units::percent(thread.freed_by_others, thread.allocations);
        let time = |ns| if info.clock == Clock::Measured { units::time(ns) } else { "-".to_string() };
        let [from, to] = [thread.first_ns, thread.last_ns].map(time);
        let bytes = units::bytes(thread.allocated_bytes);
        table.push([thread.thread.to_string(), allocations, bytes, frees, crossed, from, to]);
    }
    let mut lines = fitted(&table);
    let more = (info.threads as usize).saturating_sub(ROWS.min(info.by_thread.len()));
    if more > 0 {
        lines += &format!("and {} with fewer allocations\n", units::of(more as u64, "thread"));
    }
    let pairs = info.cross_thread_pairs.iter().take(ROWS);
    let pairs = pairs.map(|pair| format!("{} by {}: {}", pair.allocated_by, pair.freed_by, units::count(pair.frees)));
    lines + &wrapped("blocks freed across", &pairs.collect::<Vec<_>>())
}

/// One line for each kind of event that was omitted, guessed or corrected; empty for a trace without any.
pub fn quality_lines(quality: &Quality) -> String {
    let notes = [
        (quality.unknown_frees, "frees of addresses never seen allocated"),
        (quality.parked, "events reordered after another thread's event with a later time"),
        (quality.reuse_repaired, "frees inserted, because an address was allocated again"),
        (quality.uses_dropped, "calls on addresses that were not live, omitted"),
        (quality.reallocs_to_zero_kept, "realloc(p, 0) that returned a block"),
        (quality.events_lost, "events lost by the recorder"),
        (quality.sites_lost, "calls with unknown call site"),
        (quality.programs_unrecorded, "programs executed without the recorder"),
        (quality.processes_outliving, "processes that outlived the recording"),
        (quality.nested_calls, "calls nested in other calls, omitted"),
        (quality.unfinished_calls, "calls that never returned, omitted"),
        (quality.addresses_guessed, "blocks without an address, matched with the next possible free"),
        (quality.misnamed_calls, "calls with a wrong name in the source, omitted"),
        (quality.foreign_lines, "unrecognised lines, omitted"),
        (quality.other_process_events, "calls of other processes, omitted"),
        (quality.watched.objects, "objects watched on separate pages"),
        (quality.watched.touches, "touches of watched pages"),
        (quality.watched.touches_untimed, "of these, touches found later, placed at the object's allocation or free"),
        (quality.watched.faults_lost, "page faults lost"),
        (quality.watched.turned_down, "objects not watched, because no fresh pages were left"),
    ];
    let lines = notes.into_iter().filter(|(count, _)| *count > 0);
    let stopped = (quality.stopped_ns > 0)
        .then(|| format!("{:<22}during which recording was paused\n", units::time(quality.stopped_ns)));
    lines.map(|(count, what)| format!("{:<22}{what}\n", units::count(count))).chain(stopped).collect()
}
