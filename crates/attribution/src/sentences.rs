//! Causes and remedies in words.

use hksim_explore::sentences::percent_signed;
use hksim_text::units;

use crate::breakdown::{CauseCounts, CauseKey};
use crate::explained::Explained;
use crate::functions::FunctionId;
use crate::pages::{Removal, Removed};
use crate::reason::Reason;
use crate::remedies::Tried;

/// Share of a cause that one size class must have to be named.
const MAIN_SHARE: f64 = 0.5;

/// The name of a function in a sentence, with its caller if it makes system calls for one function only.
fn function(explained: &Explained, function: FunctionId) -> String {
    let name = explained.functions.name(function);
    match explained.functions.caller(function) {
        Some(caller) => format!("`{name}` (called by `{caller}`)"),
        None => format!("`{name}`"),
    }
}

/// A call that removed pages, as a row of a table.
pub fn removal(explained: &Explained, removed: Option<Removed>) -> String {
    let Some(Removed { how, by }) = removed else { return "first time".into() };
    let by = explained.functions.name(by);
    match how {
        Removal::Advice(advice) => format!("{} in {by}", advice_name(advice)),
        Removal::Unmapped => format!("munmap in {by}"),
        Removal::HeapShrunk => format!("brk in {by}"),
        Removal::Moved => format!("mremap in {by}"),
    }
}

fn advice_name(advice: i32) -> &'static str {
    match advice {
        libc::MADV_FREE => "MADV_FREE",
        libc::MADV_REMOVE => "MADV_REMOVE",
        libc::MADV_DONTNEED_LOCKED => "MADV_DONTNEED_LOCKED",
        _ => "MADV_DONTNEED",
    }
}

/// What happened, with its subject.
fn what(explained: &Explained, key: CauseKey, counts: &CauseCounts) -> String {
    let by = function(explained, key.function);
    match key.reason {
        Reason::StartUp => {
            format!("the library takes {} before the first event", units::bytes(explained.totals.startup.bytes))
        }
        Reason::Application if key.function == FunctionId::START => {
            "the program uses pages for the first time, in memory from before the first event".into()
        }
        Reason::Application => format!("the program uses pages for the first time, in memory that {by} maps"),
        Reason::Header => format!("{by} uses headers of blocks on new pages"),
        Reason::FreeList => format!("{by} links free blocks on new pages"),
        Reason::Metadata => format!("{by} uses its metadata on new pages"),
        Reason::Zeroing => format!("{by} fills new pages of the blocks that it returns"),
        Reason::Clearing => format!("{by} fills new pages of the blocks that it takes back"),
        Reason::Copy => format!("realloc copies into new pages, in {by}"),
        Reason::Prefault => format!("{by} touches pages before they are needed"),
        Reason::LiveBlock => format!("{by} uses blocks that the program holds"),
        Reason::MappingPerBlock => mapping_per_block(explained, key.function, counts),
        Reason::Populated => format!("{by} populates pages by a system call"),
        Reason::RefaultAfterPurge => {
            let advice = counts.after.keys().flatten().find_map(|removed| match removed.how {
                Removal::Advice(advice) => Some(advice_name(advice)),
                _ => None,
            });
            format!("pages are used again after {by} purged them ({})", advice.unwrap_or("madvise"))
        }
        Reason::RefaultAfterSplit => format!("pages are used again after a purge by {by} split their huge page"),
        Reason::RefaultAfterUnmap => format!("pages are used again after {by} unmapped them (munmap)"),
        Reason::RefaultAfterTrim => format!("pages of the heap are used again after {by} trimmed it (brk)"),
        Reason::WriteAfterZeroPage => format!("pages are written after a read, in memory of {by}"),
    }
}

fn mapping_per_block(explained: &Explained, maker: FunctionId, counts: &CauseCounts) -> String {
    let per_block = explained.mappings.per_block().get(&maker).copied().unwrap_or_default();
    let least = units::count(counts.request_bytes_min.unwrap_or_default());
    if per_block.mappings == 1 {
        return format!("a block of {least} bytes has a mapping of its own, made by {}", function(explained, maker));
    }
    let verbs = if per_block.unmapped * 2 > per_block.mappings { "mapped and unmapped" } else { "mapped" };
    format!(
        "blocks of {least} bytes and more are {verbs} one by one, by {} ({}, {} unmapped again)",
        function(explained, maker),
        units::of(per_block.mappings, "mapping"),
        units::count(per_block.unmapped)
    )
}

/// A cause: how many installs, what happened, and for which requests.
pub fn cause(explained: &Explained, key: CauseKey, counts: &CauseCounts) -> String {
    let total = explained.breakdown.total;
    let head = format!(
        "{} of {} installs ({}): {}",
        units::count(counts.installs),
        units::count(total),
        units::percent(counts.installs, total),
        what(explained, key, counts)
    );
    if matches!(key.reason, Reason::MappingPerBlock | Reason::StartUp) {
        return format!("{head}.");
    }
    match main_class(counts) {
        Some((Some(class), installs)) if installs == counts.installs => {
            format!("{head}, all of them for requests of the {}-byte class.", units::count(class))
        }
        Some((Some(class), installs)) => format!(
            "{head}, {} of them for requests of the {}-byte class.",
            units::count(installs),
            units::count(class)
        ),
        Some((None, _)) => format!("{head}, without a request."),
        None => {
            let bytes = |bytes: Option<u64>| units::count(bytes.unwrap_or_default());
            let (least, most) = (bytes(counts.request_bytes_min), bytes(counts.request_bytes_max));
            format!("{head}, for requests of {least} to {most} bytes.")
        }
    }
}

/// The size class with most installs of a cause, if it has a large part of them.
pub fn main_class(counts: &CauseCounts) -> Option<(Option<u64>, u64)> {
    let (&class, &installs) = counts.classes.iter().max_by_key(|(_, installs)| **installs)?;
    (installs as f64 >= MAIN_SHARE * counts.installs as f64).then_some((class, installs))
}

/// What a remedy does to a cause with so many installs.
pub fn remedy(explained: &Explained, installs_of_cause: u64, tried: Option<(&Tried, Option<u64>)>) -> String {
    let Some((tried, left)) = tried else {
        return "None of the remedies that were tried removes a noticeable part of them.".into();
    };
    let before = (explained.breakdown.total, explained.totals.rss_bytes_peak);
    let change = |now: u64, before: u64| percent_signed(now as f64 / before.max(1) as f64 - 1.0);
    let [rss, rss_before] = units::bytes_pair(tried.rss_bytes_peak, before.1);
    let left = match left {
        None => String::new(),
        Some(0) => format!("none of these {} is left; ", units::count(installs_of_cause)),
        Some(left) => format!("{} of these {} are left; ", units::count(left), units::count(installs_of_cause)),
    };
    format!(
        "{}: {left}{} in all ({}), peak RSS {rss} instead of {rss_before} ({}).",
        tried.remedy.text(),
        units::of(tried.installs, "install"),
        change(tried.installs, before.0),
        change(tried.rss_bytes_peak, before.1)
    )
}
