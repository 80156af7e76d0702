//! The inputs and assumptions of a simulation as text.

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_explore::answers::missing_text;
use hksim_explore::described::{Described, allocator_lines};
use hksim_explore::flags::{ModesFrom, RunConfig, mthp};
use hksim_explore::origin::{origin_text, touch_text};
use hksim_policy::units::{Size, Time};
use hksim_sim::SimReport;
use hksim_sim::report::MemoryPolicyLabel;
use hksim_text::units::{self, count};
use hksim_trace::header::{Clock, TouchSource};

/// The inputs and the assumptions.
pub fn lines<P: Described>(report: &SimReport<P>, modes: ModesFrom) -> Vec<String> {
    let trace = &report.trace;
    let file = trace.file.as_ref().map(|file| format!("{file}, ")).unwrap_or_default();
    let missing = missing_text(trace);
    let mut lines =
        vec![format!("trace    {file}{}; {} events{missing}", origin_text(&trace.origin), count(report.events))];
    lines.extend(allocator_lines(&report.policy));

    let rule = report.touch.rule.word();
    lines.push(format!("touches  {}", touch_rule_text(rule, trace.touch_source)));
    lines.extend(made_up_times(report).map(|text| format!("times    {text}")));
    lines.push(format!("kernel   {}", kernel_text(report, modes)));
    lines.extend(report.huge_bytes_unasked.map(|bytes| {
        format!("unasked  --huge never asks for no huge pages, but this kernel gives pages of {}", Size(bytes))
    }));
    lines.extend(memory_policy_text(report));
    lines.extend(report.addresses.map(|label| {
        format!(
            "mappings {} at modelled addresses, in an otherwise empty address space; validate uses real addresses",
            count(label.mmaps)
        )
    }));
    lines
}

/// The touch rule, and whether it is recorded or assumed.
pub fn touch_rule_text(rule: &str, source: TouchSource) -> String {
    match source {
        _ if rule == TouchRule::Recorded.word() => format!("{rule} ({})", touch_text(source)),
        TouchSource::Assumed => format!("{rule} (assumed: not recorded; see --touch)"),
        _ => format!("{rule} (--touch; the trace has: {})", touch_text(source)),
    }
}

/// The program's memory policy, if it matters.
pub fn memory_policy_text<P>(report: &SimReport<P>) -> Option<String> {
    let MemoryPolicyLabel { rule, changes, mlockall_calls: locks, installs_thp_denied } = report.memory_policy;
    match rule {
        MemoryPolicyRule::Recorded if locks > 0 => Some(format!(
            "program  locks all its memory (mlockall, {}): what is mapped is present, and cannot be purged (without: \
             --memory-policy ignored)",
            units::of(locks, "call")
        )),
        MemoryPolicyRule::Ignored if changes > 0 => {
            Some(format!("program  memory policies ({}) are ignored", units::of(changes, "call")))
        }
        MemoryPolicyRule::Recorded if installs_thp_denied > 0 => Some(format!(
            "program  switched huge pages off for itself (PR_SET_THP_DISABLE): {} are single pages for that \
             (without: --memory-policy ignored)",
            units::of(installs_thp_denied, "install")
        )),
        _ => None,
    }
}

/// What a purge delay means on a trace without times; `None` if no figure depends on times.
pub fn made_up_times<P: Described>(report: &SimReport<P>) -> Option<String> {
    let delay_ns = report.policy.purge_delay_ns().filter(|_| report.trace.clock == Clock::PerEvent)?;
    let (delay, calls) = (Time(delay_ns), count(delay_ns / Clock::EVENT_NS));
    Some(format!("assumed, {} ns per call: a purge delay of {delay} is {calls} calls", Clock::EVENT_NS))
}

/// The simulated kernel, with a note on assumed settings.
pub fn kernel_text<P: Described>(report: &SimReport<P>, modes: ModesFrom) -> String {
    let policy = report.policy.of_modes();
    let thp = report.kernel.thp.global.word();
    let given = match modes {
        ModesFrom::Assumed => " (assumed; --thp)",
        ModesFrom::Flags => "",
        ModesFrom::Host => " (this machine's)",
    };
    let version = report.kernel.rules.version.word();
    let unexpected = RunConfig::unexpected_sizes(&policy, report.kernel.thp.sizes);
    let given = match (unexpected, policy.mthp_order()) {
        (Some(sizes), _) => format!("{given}, sizes {}", mthp::show(&sizes)),
        (None, Some(order)) => format!("{given}, largest size {}K (assumed)", 4 << order),
        (None, None) => given.to_string(),
    };
    let pool = match report.kernel.hugetlb_pool_pages {
        Some(pages) => format!("hugetlb pool of {} pages", count(pages)),
        None if RunConfig::of_report(report).word("huge").starts_with("hugetlb") => {
            "unlimited hugetlb pool assumed (--hugetlb-pool)".to_string()
        }
        None => return format!("Linux {version} rules, THP {thp}{given}"),
    };
    format!("Linux {version} rules, THP {thp}{given}, {pool}")
}
