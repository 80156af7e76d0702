//! Whose memory a prediction is about: groups of mappings, and what kept them from having huge pages.

use std::collections::{BTreeMap, BTreeSet};

use hksim_linux_mm::{
    Khugepaged, KhugepagedWork, MappingSplit, Obstacles, PAGE_BYTES, PMD_PAGES, PlaceObstacle, SettingObstacle,
    show_sizes, usual_sizes,
};
use hksim_memory_trace::StackEnd;

use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{self, bytes, count, percent};

use crate::named_sites::{NamedAdviser, NamedSite};
use crate::regions::{MappedOutside, Outside, Region, Use};
use crate::report::{ObstacleCount, RegionPrediction};
use crate::row::MemoryRow;
use crate::setting::{Advise, MadvFree, Setting, ThpPrctl};
use crate::sites::SitePrediction;
use hksim_linux_mm::Installs;

/// Maximum number of groups of mappings listed.
const GROUPS_SHOWN: usize = 12;
/// Maximum number of reasons listed.
const REASONS_SHOWN: usize = 6;

/// Mappings of the same use and a similar size, or of the same caller.
#[derive(Default)]
struct Group {
    mappings: u64,
    bytes: u64,
    rss_end: u64,
    huge_end: u64,
    touches: u64,
    traps: u64,
    huge: u64,
    installed: u64,
    obstacles: BTreeMap<String, u64>,
}

fn groups(row: &MemoryRow) -> Vec<(String, Group)> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    match &row.sites {
        Some(sites) => {
            sites.iter().for_each(|site| groups.entry(site.caller.clone()).or_default().add_site(&site.costs))
        }
        None => return groups_of(&row.prediction.regions),
    }
    sorted(groups)
}

fn groups_of(regions: &[RegionPrediction]) -> Vec<(String, Group)> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for region in regions {
        groups.entry(group_name(&region.region)).or_default().add_region(region);
    }
    sorted(groups)
}

fn sorted(groups: BTreeMap<String, Group>) -> Vec<(String, Group)> {
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.touches));
    groups
}

/// The tables of the groups of regions: whose memory they are, and why their installs were not huge.
pub fn tables(regions: &[RegionPrediction]) -> Vec<Table> {
    let groups = groups_of(regions);
    let by_use = by_use(&groups);
    [by_use].into_iter().chain(reasons(groups).map(|(table, _)| table)).collect()
}

impl Group {
    fn add_region(&mut self, region: &RegionPrediction) {
        self.mappings += 1;
        self.bytes += region.region.bytes;
        self.add((region.touches, region.traps, region.bytes_installed), &region.installs, &region.obstacles);
    }

    fn add_site(&mut self, site: &SitePrediction) {
        self.mappings += site.regions;
        self.rss_end += site.rss_bytes_end;
        self.huge_end += site.huge_bytes_end;
        self.add((site.touches, site.traps, site.bytes_installed), &site.installs, &site.obstacles);
    }

    fn add(&mut self, (touches, traps, installed): (u64, u64, u64), installs: &Installs, obstacles: &[ObstacleCount]) {
        self.touches += touches;
        self.traps += traps;
        self.huge += installs.by_kind.thp + installs.by_kind.hugetlb;
        self.installed += installed;
        for obstacle in obstacles {
            *self.obstacles.entry(reason(obstacle.obstacles)).or_default() += obstacle.installs;
        }
    }
}

/// The name of a region's group. Mappings of mmap are grouped by the power of two of their size.
fn group_name(region: &Region) -> String {
    match region.usage {
        Use::Mmap => {
            let from = 1u64 << region.bytes.max(4096).ilog2();
            format!("mmap of {} to {}", bytes(from).replace(".0", ""), bytes(from.saturating_mul(2)).replace(".0", ""))
        }
        usage => use_words(usage).to_string(),
    }
}

/// The use of a region in words.
pub fn use_words(usage: Use) -> &'static str {
    match usage {
        Use::Heap => "heap (brk)",
        Use::ThreadStack => "thread stacks",
        Use::ProgramData => "program data (bss)",
        Use::Kernel => "made by the kernel",
        Use::Mmap => "mmap",
    }
}

/// Whose memory a prediction is about, as tables for people. What they leave out is in the result.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The groups with the most touches.
    pub groups: Table,
    /// Groups that the table leaves out.
    pub groups_left_out: u64,
    /// The most frequent reasons why installs were not huge; `None` if there are none.
    pub reasons: Option<Table>,
    /// Reasons that the table leaves out.
    pub reasons_left_out: u64,
    /// Who asked for huge pages; `None` if nobody did, or if call sites are not asked for.
    pub advisers: Option<Table>,
    /// A note, if call sites lack callers.
    pub incomplete: Option<String>,
}

impl Groups {
    /// The groups of a prediction: by caller if its call sites are known, else by use.
    pub fn of(row: &MemoryRow) -> Groups {
        let groups = groups(row);
        let table = match row.sites {
            Some(_) => by_caller(&groups),
            None => by_use(&groups),
        };
        let groups_left_out = groups.len().saturating_sub(GROUPS_SHOWN) as u64;
        let (reasons, reasons_left_out) = reasons(groups).unzip();
        Groups {
            groups: table,
            groups_left_out,
            reasons,
            reasons_left_out: reasons_left_out.unwrap_or(0),
            advisers: row.advisers.as_deref().and_then(advisers_table),
            incomplete: row.sites.as_deref().and_then(incomplete),
        }
    }
}

/// How many call sites lack callers, if any do.
fn incomplete(sites: &[NamedSite]) -> Option<String> {
    let is_incomplete = |site: &&NamedSite| site.stack_end.is_some_and(StackEnd::is_incomplete);
    let number = sites.iter().filter(is_incomplete).count() as u64;
    let of = units::of(sites.iter().filter(|site| site.stack_end.is_some()).count() as u64, "call site");
    (number > 0).then(|| format!("{} of {of} have an incomplete stack (`hksim info --sites`)", count(number)))
}

fn by_use(groups: &[(String, Group)]) -> Table {
    let mut table = Table::new(["whose memory", "mappings", "size", "touches", "traps", "huge", "installed"], &[0]);
    for (name, group) in groups.iter().take(GROUPS_SHOWN) {
        let Group { mappings, bytes: size, touches, traps, huge, installed, .. } = group;
        table.push([
            name.clone(),
            count(*mappings),
            bytes(*size),
            count(*touches),
            count(*traps),
            count(*huge),
            bytes(*installed),
        ]);
    }
    table
}

/// Who asked for huge pages; `None` if nobody did.
pub fn advisers_table(advisers: &[NamedAdviser]) -> Option<Table> {
    let mut table =
        Table::new(["who asked for huge pages", "calls of madvise", "advised", "huge pages installed"], &[0]);
    for NamedAdviser { caller, advised, .. } in advisers.iter().take(GROUPS_SHOWN) {
        let figures = [count(advised.calls), bytes(advised.bytes_advised), count(advised.huge_pages_installed)];
        table.push([plain(caller).into_owned()].into_iter().chain(figures));
    }
    (!advisers.is_empty()).then_some(table)
}

fn by_caller(groups: &[(String, Group)]) -> Table {
    let head =
        ["whose memory", "mappings", "touches", "traps", "huge", "installed", "RSS at the end", "huge at the end"];
    let mut table = Table::new(head, &[0]);
    for (name, group) in groups.iter().take(GROUPS_SHOWN) {
        let Group { mappings, touches, traps, huge, installed, rss_end, huge_end, .. } = group;
        table.push([
            plain(name).into_owned(),
            count(*mappings),
            count(*touches),
            count(*traps),
            count(*huge),
            bytes(*installed),
            bytes(*rss_end),
            percent(*huge_end, *rss_end),
        ]);
    }
    table
}

/// Why installs were not huge, most frequent first, and how many reasons are left out. `None` if there are none.
fn reasons(groups: Vec<(String, Group)>) -> Option<(Table, u64)> {
    let mut reasons: Vec<(u64, String, String)> = Vec::new();
    for (name, group) in groups {
        let counts = group.obstacles.into_iter();
        reasons.extend(counts.map(|(reason, installs)| (installs, name.clone(), reason)));
    }
    reasons.sort_by(|a, b| b.cmp(a));
    if reasons.is_empty() {
        return None;
    }
    let mut table = Table::new(["installs", "why not huge", ""], &[1, 2]);
    for (installs, name, reason) in reasons.iter().take(REASONS_SHOWN) {
        table.push([count(*installs), name.clone(), reason.clone()]);
    }
    Some((table, reasons.len().saturating_sub(REASONS_SHOWN) as u64))
}

/// What split a mapping.
fn split_words(split: MappingSplit) -> &'static str {
    match split {
        MappingSplit::Protection => "mprotect",
        MappingSplit::HugePageAdvice => "MADV_HUGEPAGE or MADV_NOHUGEPAGE on a part",
        MappingSplit::Lock => "mlock",
        MappingSplit::ForkAdvice => "MADV_DONTFORK or MADV_WIPEONFORK on a part",
        MappingSplit::OtherAdvice => "other advice on a part, such as MADV_DONTDUMP",
        MappingSplit::Name => "a name (PR_SET_VMA) of a part",
    }
}

/// Obstacles in words.
fn reason(obstacles: Obstacles) -> String {
    let setting = obstacles.setting.map(SettingObstacle::words);
    let place = obstacles.place.map(PlaceObstacle::words);
    let place = place.map(|place| match obstacles.split {
        Some(split) => format!("{place}, split by {}", split_words(split)),
        None => place.to_string(),
    });
    match (setting, place, obstacles.place) {
        // Without the setting, an earlier touch would have installed the huge page.
        (Some(setting), Some(_), Some(PlaceObstacle::PagesPresent)) | (Some(setting), None, _) => setting.to_string(),
        (Some(setting), Some(place), _) => format!("{place}; also {setting}"),
        (None, Some(place), _) => place,
        (None, None, _) => "a huge page was possible".to_string(),
    }
}

/// The setting as flags that differ from the usual ones; always with the THP mode.
pub fn setting_words(setting: &Setting) -> Vec<(String, String)> {
    let kernel = &setting.kernel;
    let mut words = vec![("thp", kernel.thp.global.word().to_string())];
    if kernel.thp.sizes != usual_sizes() {
        words.push(("mthp", show_sizes(&kernel.thp.sizes)));
    }
    if !kernel.use_zero_page {
        words.push(("zero-page", "off".to_string()));
    }
    let khugepaged = &kernel.khugepaged;
    if khugepaged.work != KhugepagedWork::None {
        words.push(("khugepaged", khugepaged.work.word().to_string()));
    }
    if khugepaged.max_ptes_none != Khugepaged::default().max_ptes_none {
        words.push(("max-ptes-none", khugepaged.max_ptes_none.to_string()));
    }
    if khugepaged.pages_to_scan != Khugepaged::default().pages_to_scan {
        words.push(("pages-to-scan", khugepaged.pages_to_scan.to_string()));
    }
    if khugepaged.scan_sleep_ms != Khugepaged::default().scan_sleep_ms {
        words.push(("scan-sleep-millisecs", khugepaged.scan_sleep_ms.to_string()));
    }
    if setting.advise != Advise::Recorded {
        words.push(("advise", setting.advise.word()));
    }
    if setting.thp_prctl != ThpPrctl::Recorded {
        words.push(("thp-prctl", setting.thp_prctl.word().to_string()));
    }
    if setting.madv_free != MadvFree::Recorded {
        words.push(("madv-free", setting.madv_free.word().to_string()));
    }
    words.into_iter().map(|(flag, value)| (flag.to_string(), value)).collect()
}

/// What decides about huge pages in memory that is not modelled; `None` where nothing does.
fn lever(outside: Outside) -> Option<&'static str> {
    Some(match outside {
        Outside::SharedMemory => {
            "transparent_hugepage/shmem_enabled; for PostgreSQL huge_pages = on, with vm.nr_hugepages"
        }
        Outside::Shared => "the file system: on tmpfs its mount option huge=",
        Outside::PrivateFile => "the file system and khugepaged, for read-only code with MADV_HUGEPAGE",
        Outside::SharedHugetlb => "vm.nr_hugepages: they are huge already",
        Outside::OtherHugetlb => "the pool of their size: they are huge already",
        Outside::Special | Outside::Harness | Outside::Unmapped => return None,
    })
}

/// Whether a program that maps such memory uses all of it, as far as its size tells. Of a file it may read a small part.
fn is_used_whole(outside: Outside) -> bool {
    matches!(outside, Outside::SharedMemory | Outside::SharedHugetlb | Outside::OtherHugetlb)
}

/// Memory that is not modelled, by kind, with what decides about huge pages there; `None` without any. Told are kinds with a
/// tenth of the recorded traps, of which `traps_recorded` are in modelled memory, and memory that is used as a whole and as
/// large as a tenth of `rss_bytes_peak`: a process that was attached to may have touched it before. Kinds without room for
/// a huge page are left out.
pub fn outside_table(
    traps_outside: &BTreeMap<Outside, u64>,
    mapped_outside: &BTreeMap<Outside, MappedOutside>,
    traps_recorded: u64,
    rss_bytes_peak: u64,
) -> Option<Table> {
    let traps = |kind: &Outside| traps_outside.get(kind).copied().unwrap_or_default();
    let mapped = |kind: &Outside| mapped_outside.get(kind).copied().unwrap_or_default();
    let all = traps_recorded + traps_outside.values().sum::<u64>();
    let has_traps = |kind: &Outside| traps(kind) > 0 && traps(kind) * 10 >= all;
    let is_large = |kind: &Outside| is_used_whole(*kind) && mapped(kind).bytes >= rss_bytes_peak / 10;
    let is_told = |kind: &Outside| (has_traps(kind) || is_large(kind)) && mapped(kind).bytes >= PMD_PAGES * PAGE_BYTES;
    let kinds: BTreeSet<Outside> = traps_outside.keys().chain(mapped_outside.keys()).copied().collect();
    let kinds = kinds.into_iter().filter(is_told);
    let mut rows: Vec<_> = kinds.filter_map(|kind| Some((kind, lever(kind)?))).collect();
    rows.sort_by_key(|(kind, _)| std::cmp::Reverse((traps(kind), mapped(kind).bytes)));
    let mut table = Table::new(["not modelled", "mappings", "mapped", "traps", "huge pages are decided by"], &[0, 4]);
    for (kind, lever) in &rows {
        let mapped = mapped(kind);
        let figures = [count(mapped.mappings), bytes(mapped.bytes), count(traps(kind))];
        let name = outside_words(*kind).to_string();
        table.push([name].into_iter().chain(figures).chain([lever.to_string()]));
    }
    (!rows.is_empty()).then_some(table)
}

/// Traps outside modelled memory, by kind.
pub fn outside(traps_outside: &BTreeMap<Outside, u64>) -> String {
    let total: u64 = traps_outside.values().sum();
    let parts: Vec<String> =
        traps_outside.iter().map(|(outside, traps)| format!("{} {}", outside_words(*outside), count(*traps))).collect();
    if total == 0 {
        return "not modelled: no traps recorded".to_string();
    }
    format!("not modelled: {} recorded, the same under all settings ({})", units::of(total, "trap"), parts.join(", "))
}

fn outside_words(outside: Outside) -> &'static str {
    match outside {
        Outside::PrivateFile => "private file mappings",
        Outside::Shared => "shared file mappings",
        Outside::SharedMemory => "shared memory",
        Outside::SharedHugetlb => "shared hugetlb",
        Outside::OtherHugetlb => "hugetlb of other sizes",
        Outside::Special => "vdso and the like",
        Outside::Harness => "the replay's own memory",
        Outside::Unmapped => "no mapping (SIGSEGV)",
    }
}
