//! Touches belong to the call site that mapped their page: random calls against a model that keeps the site of each page.
//! The sums over all sites are the totals.

use std::collections::BTreeMap;
use std::path::Path;

use hksim_linux_mm::{KernelConfig, ThpConfig, ThpMode};
use hksim_memory_sim::{Detail, Family, RegionPrediction, Setting, SiteUse, simulate};
use hksim_memory_trace::{
    Event, Footer, Frame, Header, MapOp, MappingKind, Op, Origin, SiteId, StackEnd, TouchKind, Writer,
};

/// Pages of the mmap area of the test, and the first page of the heap.
const AREA: u64 = 0x7f00_0000;
const AREA_PAGES: u64 = 8192;
const HEAP: u64 = 0x1000;

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The site of each mapped page, and the touches of each site.
#[derive(Default)]
struct Naive {
    sites: BTreeMap<u64, Option<u64>>,
    touches: BTreeMap<Option<u64>, u64>,
    /// Mappings that nothing has changed since they were made.
    intact: Vec<std::ops::Range<u64>>,
    heap_end: u64,
    /// Where mremap moved memory to.
    moved: Vec<std::ops::Range<u64>>,
}

impl Naive {
    fn map(&mut self, pages: std::ops::Range<u64>, site: Option<u64>) {
        self.unmap(pages.clone());
        self.sites.extend(pages.clone().map(|page| (page, site)));
        self.intact.push(pages);
    }

    fn unmap(&mut self, pages: std::ops::Range<u64>) {
        for page in pages.clone() {
            self.sites.remove(&page);
        }
        self.intact.retain(|other| other.end <= pages.start || pages.end <= other.start);
    }

    /// The next random operation with its site.
    fn next(&mut self, random: &mut Random) -> Option<(Op, Option<u64>)> {
        let site = Some(random.below(20)).filter(|&site| site > 2);
        let range = |random: &mut Random| {
            let start = AREA + random.below(AREA_PAGES - 2000);
            start..start + 1 + random.below(1500)
        };
        let map = |pages, origin| {
            let (hint_page, kind, flags, name) = (0, MappingKind::Anonymous, 0x22, None);
            Op::Map(Box::new(MapOp { pages, hint_page, kind, origin, protection: 3, flags, name }))
        };
        match random.below(40) {
            0 => {
                let pages = range(random);
                self.map(pages.clone(), site);
                Some((map(pages, Origin::Mmap), site))
            }
            1 => {
                let pages = range(random);
                self.unmap(pages.clone());
                Some((Op::Unmap(pages), None))
            }
            2 => {
                let pages = self.heap_end..self.heap_end + 1 + random.below(400);
                self.heap_end = pages.end;
                self.map(pages.clone(), site);
                self.intact.pop();
                Some((map(pages, Origin::Brk), site))
            }
            3 if !self.intact.is_empty() => {
                // Moves above all others, and grows or shrinks.
                let old = self.intact.swap_remove(random.below(self.intact.len() as u64) as usize);
                let start = AREA + 2 * AREA_PAGES + random.below(1 << 20) * 8192;
                let new = start..start + 1 + random.below(2000);
                let sites: Vec<_> = old.clone().map(|page| self.sites[&page]).collect();
                self.unmap(old.clone());
                self.unmap(new.clone());
                self.moved.push(new.clone());
                for (at, page) in new.clone().enumerate() {
                    self.sites.insert(page, sites.get(at).copied().unwrap_or(site));
                }
                Some((Op::Remap { old, new, flags: 3 }, site))
            }
            // Calls that populate.
            4 => Some((Op::Advise { pages: range(random), advice: 23, errno: 0 }, None)),
            5 => {
                let pages = range(random);
                // mremap moves no mapping that a lock has split.
                self.intact.retain(|other| other.end <= pages.start || pages.end <= other.start);
                Some((Op::Lock { pages, flags: 0, errno: 0 }, None))
            }
            6 => Some((Op::UnlockAll, None)),
            7 => Some((Op::LockAll(random.below(4) as u32), None)),
            _ => {
                let moved = || self.moved.last().cloned().unwrap_or(AREA..AREA + 1);
                let pages = [AREA..AREA + AREA_PAGES, HEAP..self.heap_end + 1, moved()];
                let pages = &pages[random.below(3) as usize];
                let page = pages.start + random.below(pages.end - pages.start);
                self.sites.get(&page)?;
                *self.touches.entry(self.sites[&page]).or_default() += 1;
                Some((Op::Touch { page, kind: TouchKind::Write }, None))
            }
        }
    }
}

/// Writes a random recording. Returns the touches of each site.
fn recording(path: &Path, seed: u64) -> BTreeMap<Option<u64>, u64> {
    let header = Header { stack_depth: Some(8), ..Header::example(&["random"]) };
    let mut writer = Writer::create(path, &header).expect("a file");
    let (mut naive, mut random) = (Naive { heap_end: HEAP, ..Naive::default() }, Random(seed));
    for number in 0..4_000 {
        let Some((op, site)) = naive.next(&mut random) else { continue };
        let frame = |address| Frame { module: None, address, function: None, source: None };
        let site = site.map_or(SiteId::UNKNOWN, |site| writer.site([frame(site)], StackEnd::Outermost));
        writer.push(Event { time_ns: number, thread: 0, op, site }).expect("an event");
    }
    writer.finish(&Footer::default()).expect("the end");
    naive.touches
}

fn sum_of(regions: &[RegionPrediction], figure: impl Fn(&RegionPrediction) -> u64) -> u64 {
    regions.iter().map(figure).sum()
}

#[test]
fn touches_belong_to_the_site_of_their_page_and_sums_are_totals() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    let settings = [ThpMode::Never, ThpMode::Always]
        .map(|mode| Setting::recorded(KernelConfig { thp: ThpConfig::new(mode), ..KernelConfig::default() }));
    for seed in 1..=10 {
        let expected = recording(&path, seed);
        let result = simulate(Family::open(&path).expect("a recording"), &settings, Detail::Figures).expect("a result");
        let sites = result.sites.expect("call sites");
        let address = |site: SiteId| sites.frames_of(site).next().expect("a frame").address;
        for prediction in &result.predictions {
            let of = prediction.sites.as_ref().expect("call sites");
            let mut touches: BTreeMap<Option<u64>, u64> = BTreeMap::new();
            for site in of {
                let key = match site.site {
                    SiteUse::Site(id) => Some(address(id)),
                    SiteUse::Unknown(_) => None,
                };
                *touches.entry(key).or_default() += site.touches;
            }
            touches.retain(|_, touches| *touches > 0);
            assert_eq!(touches, expected, "seed {seed}");
            let sum = |figure: fn(&hksim_memory_sim::SitePrediction) -> u64| of.iter().map(figure).sum::<u64>();
            assert_eq!(sum(|site| site.touches), result.traps_recorded, "seed {seed}");
            assert_eq!(sum(|site| site.traps), prediction.traps, "seed {seed}");
            assert_eq!(sum(|site| site.installs.total), prediction.installs.total, "seed {seed}");
            assert_eq!(sum(|site| site.installs.by_kind.thp), prediction.installs.by_kind.thp, "seed {seed}");
            assert_eq!(sum(|site| site.rss_bytes_end), prediction.rss_bytes_end, "seed {seed}");
            let huge_bytes = prediction.huge_pages_end << 21;
            assert_eq!(sum(|site| site.huge_bytes_end), huge_bytes, "seed {seed}");
            let obstacles = |obstacles: &[hksim_memory_sim::ObstacleCount]| -> u64 {
                obstacles.iter().map(|obstacle| obstacle.installs).sum()
            };
            let huge = prediction.installs.by_kind.thp + prediction.installs.by_kind.hugetlb;
            assert_eq!(sum_of(&prediction.regions, |region| region.installs.total), prediction.installs.total);
            let reasons = sum_of(&prediction.regions, |region| obstacles(&region.obstacles));
            assert_eq!(reasons, prediction.installs.total - huge, "seed {seed}: no read maps a huge zero page");
            let by_region: u64 = prediction.regions.iter().map(|region| obstacles(&region.obstacles)).sum();
            assert_eq!(of.iter().map(|site| obstacles(&site.obstacles)).sum::<u64>(), by_region, "seed {seed}");
        }
        assert!(result.predictions[1].installs.by_kind.thp > 0, "seed {seed}: huge pages occur");
    }
}
