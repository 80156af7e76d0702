//! Causes of installs as sentences.

use hksim_sim::accounting::Reason;
use hksim_sim::memory::PageUse;

use crate::causes::{Cause, Tried};
use crate::sentences::percent_signed;
use hksim_text::units;

/// What a page is used for, as a row of a table or a list.
pub fn page_use(page_use: PageUse) -> String {
    match page_use {
        PageUse::Slab(bytes) => format!("{bytes} B"),
        PageUse::Large => "large".into(),
        PageUse::Huge => "huge".into(),
        PageUse::Metadata => "metadata".into(),
        PageUse::Unused => "unused".into(),
        PageUse::Undescribed => "undescribed".into(),
    }
}

/// The blocks of a page, in a sentence.
fn blocks(page_use: PageUse) -> String {
    match page_use {
        PageUse::Slab(bytes) => format!("slabs of the {bytes}-byte class"),
        PageUse::Large => "large blocks".into(),
        PageUse::Huge => "huge blocks".into(),
        PageUse::Metadata => "metadata".into(),
        PageUse::Unused => "memory without blocks".into(),
        PageUse::Undescribed => "memory that its design does not describe".into(),
    }
}

/// What happened, with its subject.
fn what(cause: &Cause) -> &'static str {
    match cause.reason {
        Reason::Application => "the program uses pages for the first time",
        Reason::Header => "the allocator accesses block headers on new pages",
        Reason::FreeList => "the allocator links free blocks on new pages",
        Reason::Metadata => "the allocator writes its metadata on new pages",
        Reason::Zeroing => "calloc zeroes new pages",
        Reason::Copy => "realloc copies into new pages",
        Reason::Prefault if cause.at_start => "the allocator touches pages at its start",
        Reason::Prefault => "the allocator touches pages before they are needed",
        Reason::Populated if cause.at_start => "the allocator populates pages at its start",
        Reason::Populated => "the allocator populates pages before they are needed",
        Reason::AlignmentExcess => "mappings are populated at twice their size, and half is unmapped at once",
        Reason::Collapsed => "the allocator collapses pages into huge pages",
        Reason::RefaultAfterPurge => "pages are used again after they were purged",
        Reason::RefaultAfterSplit => "pages are used again after a purge split their huge page",
        Reason::WriteAfterZeroPage => "pages are written after a read had installed the zero page",
        Reason::CowAfterFork => "pages shared with a forked child are copied at their first write",
    }
}

/// A cause: how many installs, what happened, and where.
pub fn cause(cause: &Cause, installs_total: u64) -> String {
    let share = units::percent(cause.installs, installs_total);
    let head = format!(
        "{} of {} installs ({share}): {}",
        units::count(cause.installs),
        units::count(installs_total),
        what(cause)
    );
    if cause.reason == Reason::Metadata || cause.main_use == PageUse::Undescribed {
        return format!("{head}.");
    }
    if !cause.has_main_use() {
        return format!("{head}, in blocks of many sizes.");
    }
    let all = cause.main_installs == cause.installs;
    let amount = if all { "all".to_string() } else { units::count(cause.main_installs) };
    format!("{head}, {amount} of them in {}.", blocks(cause.main_use))
}

/// What a remedy does to a cause; `before` are all installs and the peak resident bytes without it.
pub fn remedy<P>(cause: &Cause, tried: Option<&Tried<P>>, before: (u64, u64)) -> String {
    let Some(tried) = tried else {
        return "None of the changes that were tried removes a noticeable part of them without as many \
                installs for other reasons."
            .into();
    };
    let (installs_before, rss_before) = before;
    let change = |now: u64, before: u64| percent_signed(now as f64 / before.max(1) as f64 - 1.0);
    let of_cause = units::count(cause.installs);
    let left = match tried.installs_of_cause {
        0 => format!("none of these {of_cause} is left"),
        1 => format!("1 of these {of_cause} is left"),
        left => format!("{} of these {of_cause} are left", units::count(left)),
    };
    let [rss, rss_without] = units::bytes_pair(tried.rss_bytes_peak, rss_before);
    format!(
        "With `{}` instead of `{}`, {left}; {} in all ({}), peak RSS {rss} instead of {rss_without} ({}).",
        tried.remedy.flags,
        tried.remedy.replaces,
        units::of(tried.installs, "install"),
        change(tried.installs, installs_before),
        change(tried.rss_bytes_peak, rss_before)
    )
}
