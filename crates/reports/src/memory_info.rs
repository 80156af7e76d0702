//! The summary of a memory recording as text.

use hksim_memory_sim::losses;
use hksim_memory_trace::{Beginning, Calls, End, Faults, Inherited, Machine, Summary, Visibility};
use hksim_results::info::MemoryInfo;
use hksim_text::plain;
use hksim_text::table::{Table, text as joined};
use hksim_text::units::{self, bytes, count};

/// A summary as text, in tables of at most this many columns.
pub fn text(info: &MemoryInfo<'_>, columns: Option<usize>) -> String {
    let columns = columns.unwrap_or(usize::MAX);
    let mut lines = origin(info);
    lines.push(String::new());
    lines.extend(counts(info, columns));
    joined(&lines)
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<22}{value}")
}

/// Where the recording comes from, and what it shows.
fn origin(info: &MemoryInfo<'_>) -> Vec<String> {
    let Summary { header, footer, .. } = info.summary;
    let command = plain(&header.command.join(" ")).into_owned();
    let began = match header.beginning {
        Beginning::Exec => String::new(),
        Beginning::Fork { parent_pid, .. } => format!(", forked by process {parent_pid}"),
        Beginning::Attached { .. } => ", from the middle on".to_string(),
    };
    let end = footer.as_ref().map_or("the file is truncated", |footer| match footer.end {
        End::Exit => "the process exited",
        End::Exec => "the process executed another program",
        End::Running => "the recording ended before the process",
    });
    let mut lines = vec![
        line("memory recording of", &format!("{command} (pid {}, image {}){began}", header.pid, header.image)),
        line("recorded by", &format!("{} on {}", plain(&header.producer), machine(&header.machine))),
        line("seen", &visibility(header.visibility)),
        line("complete", &complete(info)),
        line("end", end),
        line("duration", &units::time(info.summary.duration_ns)),
    ];
    lines.extend(at_start(info));
    lines.extend(inherited(&header.inherited).into_iter().map(|words| line("inherited", &words)));
    for (name, value) in &header.environment {
        lines.push(line("environment", &plain(&format!("{name}={value}"))));
    }
    if !header.history.is_empty() {
        lines.push(line("edited by", &plain(&header.history.join(", "))));
    }
    lines
}

/// `RLIMIT_STACK` as most systems set it.
const STACK_USUAL: u64 = 8 << 20;
/// `RLIMIT_MEMLOCK` as kernels set it before 5.16, and since then.
const LOCKED_USUAL: [u64; 2] = [64 << 10, 8 << 20];

/// What the program got from the one that started it and most programs do not have.
fn inherited(inherited: &Inherited) -> Vec<String> {
    let Inherited { thp_disable, personality, limits, .. } = inherited;
    let amount = |limit: Option<u64>| limit.map_or("unlimited".to_string(), bytes);
    let mut words: Vec<String> = thp_disable.restriction().map(str::to_string).into_iter().collect();
    if let Some(limits) = limits {
        let of = |name: &str, limit| format!("{name} {}", amount(limit));
        words.extend((limits.stack_bytes != Some(STACK_USUAL)).then(|| of("RLIMIT_STACK", limits.stack_bytes)));
        let is_usual = limits.locked_bytes.is_some_and(|limit| LOCKED_USUAL.contains(&limit));
        words.extend((!is_usual).then(|| of("RLIMIT_MEMLOCK", limits.locked_bytes)));
        words.extend(limits.address_space_bytes.is_some().then(|| of("RLIMIT_AS", limits.address_space_bytes)));
    }
    words.extend((*personality != 0).then(|| personality_words(*personality)));
    words
}

/// The personality, with the names of the flags that concern memory.
fn personality_words(personality: u32) -> String {
    const FLAGS: [(u32, &str); 6] = [
        (0x004_0000, "ADDR_NO_RANDOMIZE"),
        (0x010_0000, "MMAP_PAGE_ZERO"),
        (0x020_0000, "ADDR_COMPAT_LAYOUT"),
        (0x040_0000, "READ_IMPLIES_EXEC"),
        (0x080_0000, "ADDR_LIMIT_32BIT"),
        (0x800_0000, "ADDR_LIMIT_3GB"),
    ];
    let named = FLAGS.iter().filter(|(flag, _)| personality & flag != 0);
    let names: Vec<&str> = named.map(|(_, name)| *name).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("personality {personality:#x}{names}")
}

/// What the process had when the recording began in the middle of it.
fn at_start(info: &MemoryInfo<'_>) -> Vec<String> {
    let Summary { header, at_start, .. } = info.summary;
    let (Beginning::Attached { stopped_ns, lazy_unknown_bytes }, Some(start)) = (header.beginning, at_start) else {
        return Vec::new();
    };
    let states: Vec<String> =
        start.page_bytes.iter().map(|(state, size)| format!("{} {}", bytes(*size), state.replace('_', " "))).collect();
    let parts = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    let had = format!("{} resident in {}{parts}", bytes(start.resident_bytes), units::of(start.mappings, "mapping"));
    let mut lines = vec![line("at the start", &had), line("stopped for", &units::time(stopped_ns))];
    if lazy_unknown_bytes > 0 {
        let unknown = format!("whether {} were given up with MADV_FREE", bytes(lazy_unknown_bytes));
        lines.push(line("not known", &unknown));
    }
    if !header.machine.thp_disabled {
        let unseen =
            format!("touches inside huge pages ({} at the start, and those installed later)", bytes(start.huge_bytes));
        lines.push(line("not seen", &unseen));
    }
    lines
}

fn complete(info: &MemoryInfo<'_>) -> String {
    match losses(info.lost_events()) {
        Some(losses) => format!("no: {losses}"),
        None if info.complete => "yes".to_string(),
        None => "no: the end is missing".to_string(),
    }
}

fn machine(machine: &Machine) -> String {
    let thp = if machine.thp_disabled { "huge pages off" } else { "huge pages as the machine's mode says" };
    let mode = machine.thp_mode.as_deref().unwrap_or("without THP");
    let addresses = if machine.addresses_random { "random addresses" } else { "fixed addresses" };
    plain(&format!("Linux {}, {thp} (machine: {mode}), {addresses}", machine.kernel_release)).into_owned()
}

fn visibility(visibility: Visibility) -> String {
    let faults = match visibility.faults {
        Faults::Accesses => "all page faults, as reads and writes",
        Faults::All => "all page faults, without read or write",
        Faults::UserOnly => "page faults outside system calls, without read or write",
    };
    let calls = match visibility.calls {
        Calls::Tracepoints => "memory calls (tracepoints)",
        Calls::Stops => "memory calls (ptrace)",
    };
    format!("{faults}; {calls}")
}

fn counts(info: &MemoryInfo<'_>, columns: usize) -> Vec<String> {
    let (summary, events_lost) = (info.summary, info.lost_events());
    let mut table = Table::new(["events", &count(summary.events)], &[0]);
    let mut row = |name: &str, number: u64| table.push([name.to_string(), count(number)]);
    row("threads", summary.threads);
    for (access, touches) in &summary.touches {
        row(&format!("touches, {access}"), *touches);
    }
    for (name, calls) in &summary.calls {
        match *name {
            "exec" | "kernel" => row(&format!("mappings by {name}"), *calls),
            name => row(name, *calls),
        }
    }
    row("forks", summary.forks);
    row("lost events", events_lost);
    for (end, calls) in summary.stacks.iter().flatten() {
        table.push([format!("call stacks, {}", end.words()), count(*calls)]);
    }
    let mut lines = table.fitted(columns);
    let unrecorded = summary.footer.iter().flat_map(|footer| &footer.unrecorded_calls);
    lines.extend(unrecorded.map(|(call, &calls)| match calls {
        Some(calls) => format!("{}: effect not recorded", units::of(calls, call)),
        None => format!("{call}: effect not recorded, and the number of calls in this part is unknown"),
    }));
    lines.push(String::new());
    let mut mapped = Table::new(["mapped", "bytes"], &[0]);
    summary.mapped_bytes.iter().for_each(|(kind, size)| mapped.push([kind.words().to_string(), bytes(*size)]));
    lines.extend(mapped.fitted(columns));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_memory_trace::Limits;

    #[test]
    fn only_what_differs_from_the_usual_is_inherited() {
        let limits = |stack_bytes, locked_bytes, address_space_bytes| {
            let limits = Some(Limits { stack_bytes, locked_bytes, address_space_bytes });
            inherited(&Inherited { limits, ..Inherited::default() })
        };
        assert!(inherited(&Inherited::default()).is_empty());
        assert!(limits(Some(8 << 20), Some(64 << 10), None).is_empty());
        assert_eq!(
            limits(None, Some(4096), Some(1 << 30)),
            ["RLIMIT_STACK unlimited", "RLIMIT_MEMLOCK 4.0 KiB", "RLIMIT_AS 1.0 GiB"]
        );
        let personality = |personality| inherited(&Inherited { personality, ..Inherited::default() });
        assert_eq!(personality(0x004_0000), ["personality 0x40000 (ADDR_NO_RANDOMIZE)"]);
        assert_eq!(personality(8), ["personality 0x8"]);
    }
}
