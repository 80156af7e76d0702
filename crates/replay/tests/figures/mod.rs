//! The figures of replays, compared with closed forms and the kernel's totals.

use hksim_engine::{ByKind, PageRun, PageState, TouchRule};
use hksim_replay::{Control, Mode, Replayed, Target, replay};

use crate::common::{Trace, design, free, malloc, needs_kinds, needs_single_pages, realloc, server};

/// Pages that one thread with one huge block needs besides the block: the control page, two of the heap, one of the
/// table.
const OWN_PAGES: u64 = 4;

fn assert_silent(control: &Control, of: &str) {
    assert_eq!((control.faults, control.traps.unwrap_or(0)), (0, 0), "the control run of {of} has faults or traps");
}

/// Invariants of every ordered native replay: the kinds add up to the kernel's total, and every change is classified.
fn assert_sound(replayed: &Replayed, of: &str) {
    assert_silent(&replayed.control, of);
    let installs = replayed.installs.unwrap();
    assert_eq!(installs.total, installs.by_kind.total());
    assert_eq!(Some(installs.total), replayed.faults, "{of}: {:?}", replayed.unclassified);
    assert_eq!(replayed.unclassified_pages, Some(0), "{of}: {:?}", replayed.unclassified);
    assert_eq!(replayed.traps_lost, Some(0), "{of}");
    let discrepancies: Vec<u64> = replayed.marks.iter().map(|mark| mark.inconsistent_pages).collect();
    assert!(discrepancies.iter().all(|&pages| pages == 0), "{of}: {discrepancies:?}");
    for mark in &replayed.marks {
        assert_eq!(mark.rss_bytes, Some(mark.pages.resident_bytes()), "{of}, after {} events", mark.event);
        assert!(mark.rss_bytes <= replayed.rss_bytes_peak, "{of}");
    }
}

pub fn a_huge_block_has_as_many_installs_as_pages() -> Result<(), String> {
    let trace = Trace::of([(0, malloc(0, 10 << 20))]);
    let never = design(r#"{"huge":"never"}"#);
    let arena_page = never.prepare().unwrap().layout.arena / 4096;

    let disabled = ThpDisabled::new()?;
    let written = trace.replay(&never, TouchRule::All);
    needs_kinds(&written)?;
    assert_sound(&written, "10 MiB, never");
    let by_kind = ByKind { base_4k: 2560 + OWN_PAGES, ..ByKind::default() };
    assert_eq!(written.installs.unwrap().by_kind, by_kind);
    assert_eq!(written.traps, Some(2560 + OWN_PAGES));
    assert_eq!(written.rss_bytes_end, Some((2560 + OWN_PAGES) * 4096));
    let block = PageRun { first_page: arena_page, pages: 2560, state: PageState::Base };
    assert_eq!(written.marks.last().unwrap().pages.runs().last(), Some(&block));

    let untouched = trace.replay(&never, TouchRule::None);
    assert_eq!(untouched.installs.unwrap().by_kind, ByKind { base_4k: OWN_PAGES, ..ByKind::default() });

    let read_first = trace.replay(&never, TouchRule::ReadThenAll);
    let by_kind = ByKind { base_4k: OWN_PAGES, zero: 2560, cow: 2560, ..ByKind::default() };
    assert_eq!(read_first.installs.unwrap().by_kind, by_kind);
    drop(disabled);

    if !matches!(written.environment.thp_enabled.as_deref(), Some("madvise" | "always")) {
        return Err("the rest needs transparent huge pages".into());
    }
    needs_single_pages(&written)?;
    let huge = trace.replay(&design(r#"{"huge":"thp"}"#), TouchRule::All);
    assert_sound(&huge, "10 MiB, thp");
    assert_eq!(huge.installs.unwrap().by_kind, ByKind { base_4k: OWN_PAGES, thp: 5, ..ByKind::default() });
    assert_eq!(huge.huge_pages_end, Some(5));
    let block = PageRun { first_page: arena_page, pages: 2560, state: PageState::Thp };
    assert_eq!(huge.marks.last().unwrap().pages.runs().last(), Some(&block));
    Ok(())
}

pub fn a_full_superslab_is_collapsed_once() -> Result<(), String> {
    // A block of 80K takes a span of two 64K slices: 16 blocks fill a 2M SuperSlab, and eight more fill half of
    // another. Only metadata is touched.
    let trace = Trace::of((0..24).map(|object| (0, malloc(object, 80 << 10))));
    let collapse = trace.replay(&design(r#"{"huge":"collapse"}"#), TouchRule::None);
    needs_kinds(&collapse)?;
    if collapse.os_calls_failed != Some(0) {
        return Err("this kernel has no MADV_COLLAPSE (Linux 6.1)".into());
    }
    assert_silent(&collapse.control, "collapse");
    assert_eq!((collapse.unclassified_pages, collapse.os_calls.unwrap().madvise), (Some(0), 1));
    let never = trace.replay(&design(r#"{"huge":"never"}"#), TouchRule::None);
    let (with, without) = (collapse.installs.unwrap(), never.installs.unwrap());
    assert_eq!(with.by_kind, ByKind { thp: 1, ..without.by_kind });
    assert_eq!((collapse.faults, collapse.traps), (never.faults, never.traps), "a collapse takes no fault");
    assert_eq!(collapse.huge_pages_end, Some(1));
    needs_single_pages(&collapse)?;
    let metadata_page = 4096;
    assert_eq!(collapse.rss_bytes_end, never.rss_bytes_end.map(|bytes| bytes + (2 << 20) - metadata_page));
    Ok(())
}

pub fn kinds_add_up_to_the_faults_in_every_design() -> Result<(), String> {
    let trace = server();
    for json in [
        "{}",
        r#"{"huge":"never"}"#,
        r#"{"superslab_bytes":1048576,"header":"light","huge":"never"}"#,
        r#"{"purge":"unmap","purge_delay_ns":0}"#,
        r#"{"purge":"free","purge_delay_ns":100000}"#,
        r#"{"purge_spans":true,"purge_delay_ns":0}"#,
        r#"{"prefault":"populate","huge":"never"}"#,
        r#"{"prefault":"populate-read"}"#,
        r#"{"huge":"hugetlb"}"#,
        r#"{"huge":"system"}"#,
    ] {
        let replayed = trace.replay(&design(json), TouchRule::All);
        needs_kinds(&replayed)?;
        assert_sound(&replayed, json);
        assert_eq!((replayed.events >= 200_000, replayed.requests_failed), (true, 0), "{json}");
        let again = trace.replay(&design(json), TouchRule::All);
        assert_eq!(replayed.placement_digest, again.placement_digest, "{json}");
    }
    Ok(())
}

pub fn a_huge_page_that_mremap_divided_is_split_in_both_frames() -> Result<(), String> {
    // A block of 9 SuperSlabs of 1 MiB, followed by SuperSlabs with small blocks. The block moves in order to grow;
    // half of its last huge page stays with the small blocks. Purging the moved half splits the huge page in both
    // frames.
    let small = (1..40).map(|object| malloc(object, 60_000));
    let events = std::iter::once(malloc(0, 9 << 20)).chain(small).chain([realloc(0, 16 << 20), free(0), malloc(0, 1)]);
    let trace = Trace::of(events.map(|op| (0, op)));
    let json = r#"{"superslab_bytes":1048576,"purge":"free","purge_delay_ns":0}"#;
    let replayed = trace.replay(&design(json), TouchRule::All);
    needs_kinds(&replayed)?;
    assert_sound(&replayed, json);
    assert_eq!(replayed.os_calls.unwrap().mremap, 1);
    assert!(replayed.marks.last().unwrap().pages.pages(PageState::Zero) > 0, "nothing was split");
    Ok(())
}

/// Disables transparent huge pages of all sizes in this process and its children until dropped: every install is then a
/// single page, whatever the machine's modes.
struct ThpDisabled;

impl ThpDisabled {
    fn new() -> Result<ThpDisabled, String> {
        if disable_thp(1) { Ok(ThpDisabled) } else { Err("prctl(PR_SET_THP_DISABLE) is refused".into()) }
    }
}

impl Drop for ThpDisabled {
    fn drop(&mut self) {
        disable_thp(0);
    }
}

fn disable_thp(disabled: libc::c_ulong) -> bool {
    // SAFETY: a setting of this process, which its children inherit.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disabled, 0, 0, 0) == 0 }
}

pub fn disabled_huge_pages_are_not_installed() -> Result<(), String> {
    let trace = Trace::of([(0, malloc(0, 4 << 20))]);
    let disabled = ThpDisabled::new()?;
    let replayed = trace.replay(&design("{}"), TouchRule::All);
    drop(disabled);
    needs_kinds(&replayed)?;
    assert_sound(&replayed, "4 MiB without huge pages");
    assert_eq!(replayed.installs.unwrap().by_kind, ByKind { base_4k: 1024 + OWN_PAGES, ..ByKind::default() });
    Ok(())
}

pub fn a_header_that_is_read_first_costs_twice() -> Result<(), String> {
    let _disabled = ThpDisabled::new()?;
    // 64 blocks of more than a page: each header is on its own, untouched page.
    let trace = Trace::of((0..64).map(|object| (0, malloc(object, 4096))));
    let base = |header: &str| format!(r#"{{"huge":"never","header":"{header}","carve":"bump"}}"#);
    let full = trace.replay(&design(&base("full")), TouchRule::None);
    let light = trace.replay(&design(&base("light")), TouchRule::None);
    needs_kinds(&full)?;
    assert_sound(&full, "full");
    assert_sound(&light, "light");
    let (full, light) = (full.installs.unwrap().by_kind, light.installs.unwrap().by_kind);
    assert_eq!((full.zero, full.cow), (0, 0));
    assert!(light.zero >= 32, "{light:?}");
    assert_eq!((light.cow, light.base_4k + light.zero), (light.zero, full.base_4k));
    Ok(())
}

pub fn malloc_grows_by_the_bytes_written() -> Result<(), String> {
    let trace = Trace::of([(0, malloc(0, 64 << 20)), (0, malloc(1, 4 << 20)), (0, free(0))]);
    let spec = trace.spec(Target::Malloc { preload: None, variables: Vec::new() }, TouchRule::All);
    let _disabled = ThpDisabled::new()?;
    let replayed = replay(&spec).unwrap();
    assert_silent(&replayed.control, "malloc");
    let pages = (68 << 20) / 4096;
    let faults = replayed.faults.unwrap();
    // Each block has an extra page for its chunk header, and malloc may touch a few pages of its own.
    assert!((pages..pages + 16).contains(&faults), "{faults} faults for {pages} pages");
    let (peak, end) = (replayed.rss_bytes_peak.unwrap(), replayed.rss_bytes_end.unwrap());
    assert!((68 << 20..69 << 20).contains(&peak), "{peak}");
    assert!((4 << 20..5 << 20).contains(&end), "{end}");
    assert!(replayed.installs.is_none() && replayed.skipped.iter().any(|skipped| skipped.figure == "installs"));
    Ok(())
}

pub fn blocks_written_before_their_free_fault_as_often_as_blocks_written_at_allocation() -> Result<(), String> {
    const BYTES: u64 = 8 << 20;
    let _disabled = ThpDisabled::new()?;
    let trace = Trace::of([(0, malloc(0, BYTES)), (0, free(0)), (0, malloc(0, BYTES))]);
    let design = || Target::Native(Box::new(design(r#"{"huge":"never"}"#)));
    for (on, mode) in [
        (design(), Mode::Ordered),
        (design(), Mode::Threaded),
        (Target::Malloc { preload: None, variables: Vec::new() }, Mode::Ordered),
    ] {
        let mut spec = trace.spec(on, TouchRule::AllAtDeath);
        spec.mode = mode;
        let replayed = replay(&spec).unwrap();
        // The last block is never freed, so it is not written. An allocator touches a few pages of its own.
        let (faults, pages) = (replayed.faults.unwrap(), BYTES / 4096);
        assert!((pages..pages + 64).contains(&faults), "{faults} faults for {pages} pages, {mode:?}");
    }
    Ok(())
}

pub fn threads_perform_every_event() -> Result<(), String> {
    let trace = server();
    let _disabled = ThpDisabled::new()?;
    for on in [
        Target::Native(Box::new(design(r#"{"huge":"never"}"#))),
        Target::Malloc { preload: None, variables: Vec::new() },
    ] {
        let mut spec = trace.spec(on, TouchRule::All);
        spec.measure.time = true;
        let ordered = replay(&spec).unwrap();
        spec.mode = Mode::Threaded;
        let threaded = replay(&spec).unwrap();
        assert_eq!((threaded.events, threaded.requests_failed), (ordered.events, 0));
        assert!(threaded.ops_per_s.unwrap() > 0.0 && threaded.installs.is_none());
        // Both runs write the same bytes. Far more faults would mean leaked objects.
        let (most, least) = (ordered.faults.unwrap() * 3, ordered.faults.unwrap() / 3);
        assert!((least..most).contains(&threaded.faults.unwrap()), "{:?} of {:?}", threaded.faults, ordered.faults);
    }
    Ok(())
}

pub fn objects_may_cross_threads_in_a_circle() -> Result<(), String> {
    // The next thread frees each block, and the thread after that reuses the id, so every thread waits for others.
    const THREADS: u32 = 40;
    let start = (0..THREADS).map(|thread| (thread, malloc(thread, 100)));
    let circle = (0..60 * THREADS).flat_map(|at| {
        let object = at % THREADS;
        let thread = (at / THREADS + object) % THREADS;
        [((thread + 1) % THREADS, free(object)), ((thread + 2) % THREADS, malloc(object, 100 + u64::from(at)))]
    });
    let trace = Trace::of(start.chain(circle));
    let mut spec = trace.spec(Target::Native(Box::new(design("{}"))), TouchRule::All);
    spec.mode = Mode::Threaded;
    let replayed = replay(&spec).unwrap();
    assert_eq!((replayed.events, replayed.requests_failed), (u64::from(THREADS) * 121, 0));
    Ok(())
}
