//! Reads a process, and sums up what was found.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use hksim_linux_mm::{PMD_PAGES, PlaceObstacle, ThpDisable, ThpMode};
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::page_flags::PageFlags;
use hksim_linux_probe::page_states::PageStates;
use hksim_linux_probe::smaps::{self, Mapping};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::error::InspectError;
use crate::machine::{HUGE_BYTES, Machine};
use crate::naming;
use crate::process::Process;
use crate::range::{PmdRange, Ranges};
use crate::region::{LargeMapping, Region, largest_anonymous};
use crate::remedy::{Remedy, remedies};
use crate::verdict::{Obstacle, Situation, Verdict, Way};

/// What memory a process has, and which of it can be in huge pages. Bytes are resident ones unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// The thread whose id was given, if it is not the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// Its threads.
    pub threads: u64,
    /// All of it, without hugetlb pages.
    pub rss_bytes: u64,
    /// Anonymous memory, with that of written pages of private file mappings.
    pub anonymous_bytes: u64,
    /// Anonymous memory in huge pages.
    pub huge_bytes: u64,
    /// Given up with `MADV_FREE`, and not reclaimed yet. The kernel counts it up to a few pages per processor late.
    pub lazy_free_bytes: u64,
    /// In swap; not resident.
    pub swap_bytes: u64,
    /// In pages of the hugetlb pool; not part of RSS.
    pub hugetlb_bytes: u64,
    /// Locked into memory.
    pub locked_bytes: u64,
    /// Page tables; not part of RSS.
    pub page_table_bytes: u64,
    /// The process's own setting (`PR_SET_THP_DISABLE`).
    pub thp_disable: ThpDisable,
    /// The machine's modes.
    pub machine: Machine,
    /// The limits of its control group; `None` if no group accounts memory.
    pub cgroup: Option<Cgroup>,
    /// The aligned 2 MiB ranges that its private anonymous mappings cover or touch, by what they can become.
    pub ranges: Vec<WayCount>,
    /// The same by address, in ascending order.
    pub map: Vec<MapRun>,
    /// Groups of mappings, those with most memory first.
    pub regions: Vec<Region>,
    /// Of the region `anonymous`, the mappings with most memory.
    #[serde(default)]
    pub largest_anonymous: Vec<LargeMapping>,
    /// What changes of advice and modes would give.
    pub remedies: Vec<Remedy>,
    /// What could not be read, with the reason; also a second look that there is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
}

/// Ranges that can become huge pages by one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayCount {
    /// The best way.
    pub way: Way,
    /// The number of ranges.
    pub ranges: u64,
    /// Memory in them, in pages of 4 KiB.
    pub small_bytes: u64,
}

/// Ranges that follow each other and are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRun {
    /// Address of the first one: a multiple of 2 MiB.
    pub address: u64,
    /// Their number.
    pub ranges: u64,
    /// The best way in which each can become a huge page.
    pub way: Way,
    /// What keeps each from being one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// Memory in them, in pages of 4 KiB.
    pub small_bytes: u64,
}

/// The mappings of a process, with what they hold.
pub(crate) struct Memory {
    pub mappings: Vec<Mapping>,
    /// One for each mapping; none of a mapping that is not anonymous.
    ranges: Vec<Ranges>,
}

impl Memory {
    /// Calls `each` with the index of the mapping, a range, its verdict, and how many ranges beginning with it are alike:
    /// more than one if they are empty.
    pub fn each(&self, situation: &Situation, mut each: impl FnMut(usize, &PmdRange, Verdict, u64)) {
        for (index, (mapping, ranges)) in self.mappings.iter().zip(&self.ranges).enumerate() {
            for range in &ranges.used {
                each(index, range, situation.verdict(mapping, range), 1);
            }
            for numbers in &ranges.empty {
                let empty = PmdRange { number: numbers.start, is_whole: true, ..PmdRange::default() };
                each(index, &empty, situation.verdict(mapping, &empty), numbers.end - numbers.start);
            }
        }
    }

    /// The ranges by the way in which they can become huge pages.
    pub fn ways(&self, situation: &Situation) -> BTreeMap<Way, WayCount> {
        let mut ways = BTreeMap::new();
        self.each(situation, |_, range, verdict, number| {
            let way = verdict.way;
            let count = ways.entry(way).or_insert(WayCount { way, ranges: 0, small_bytes: 0 });
            count.ranges += number;
            count.small_bytes += number * range.small_bytes();
        });
        ways
    }

    /// The ranges by address.
    fn map(&self, situation: &Situation) -> Vec<MapRun> {
        let mut runs = Vec::new();
        self.each(situation, |_, range, Verdict { way, obstacle }, ranges| {
            let (address, small_bytes) = (range.number * HUGE_BYTES, range.small_bytes());
            runs.push(MapRun { address, ranges, way, obstacle, small_bytes });
        });
        runs.sort_by_key(|run| run.address);
        runs.dedup_by(|run, before| {
            let is_next = before.address + before.ranges * HUGE_BYTES == run.address;
            let alike = |run: &MapRun| (run.way, run.obstacle, run.small_bytes == 0);
            let is_alike = is_next && alike(before) == alike(run);
            if is_alike {
                before.ranges += run.ranges;
                before.small_bytes += run.small_bytes;
            }
            is_alike
        });
        runs
    }

    fn sum(&self, figure: impl Fn(&Mapping) -> u64) -> u64 {
        self.mappings.iter().map(figure).sum()
    }
}

/// Inspects a process.
///
/// Each mapping's figures are of one moment, but different mappings are read one after the other while the process runs.
///
/// # Errors
/// There is no such process, this user may not read it, or it ended meanwhile.
pub fn inspect(pid: u32) -> Result<Inspection, InspectError> {
    of(Process::open(pid)?)
}

/// Two looks at a process.
#[derive(Debug)]
pub struct TwoLooks {
    /// The first one.
    pub first: Inspection,
    /// The second one; or why there is none.
    pub second: Result<Inspection, InspectError>,
}

/// Inspects a process, and once more after this time.
///
/// # Errors
/// It cannot be inspected the first time.
pub fn inspect_twice(pid: u32, wait: Duration) -> Result<TwoLooks, InspectError> {
    let process = Process::open(pid)?;
    let began = process.began;
    let first = of(process)?;
    sleep(wait);
    let second = Process::open(pid).and_then(|process| match process.began == began {
        true => of(process),
        // Another one with the same id, or another program.
        false => Err(InspectError::Vanished { pid: first.pid, name: first.program.clone() }),
    });
    Ok(TwoLooks { first, second })
}

fn of(process: Process) -> Result<Inspection, InspectError> {
    let mut skipped = Vec::new();
    let memory = read(&process, &mut skipped)?;
    let machine = Machine::read();
    let cgroup = Cgroup::of(&process.read("cgroup")?);
    process.is_the_same()?;
    let situation = Situation {
        disable: thp_disable(&process, &memory.mappings, machine.huge_mode()),
        mode: machine.huge_mode(),
        khugepaged: machine.khugepaged.clone(),
        advises_all: false,
    };
    let names = naming::names(&memory.mappings);
    let mut regions = regions(&memory, &names, &situation);
    regions.sort_by_key(|region| std::cmp::Reverse((region.rss_bytes + region.hugetlb_bytes, region.bytes)));
    Ok(Inspection {
        pid: process.pid,
        threads: process.status.number("Threads").unwrap_or_default(),
        rss_bytes: memory.sum(|mapping| mapping.rss_bytes),
        anonymous_bytes: memory.sum(|mapping| mapping.anonymous_bytes),
        huge_bytes: memory.sum(|mapping| mapping.huge_bytes),
        lazy_free_bytes: memory.sum(|mapping| mapping.lazy_free_bytes),
        swap_bytes: memory.sum(|mapping| mapping.swap_bytes),
        hugetlb_bytes: memory.sum(|mapping| mapping.hugetlb_bytes),
        locked_bytes: memory.sum(|mapping| mapping.locked_bytes),
        page_table_bytes: process.status.bytes("VmPTE").unwrap_or_default(),
        thp_disable: situation.disable,
        ranges: memory.ways(&situation).into_values().collect(),
        map: memory.map(&situation),
        remedies: remedies(&memory, &situation),
        largest_anonymous: largest_anonymous(&memory.mappings, &names),
        program: process.name,
        thread: process.thread,
        machine,
        cgroup,
        regions,
        skipped,
    })
}

fn read(process: &Process, skipped: &mut Vec<String>) -> Result<Memory, InspectError> {
    let mappings = smaps::parse(&process.read("smaps")?);
    let states = match PageStates::of_process(process.entry) {
        Ok(states) => states,
        // ENOTTY: the request is unknown.
        Err(why) if why.raw_os_error() == Some(libc::ENOTTY) => {
            skipped.push("which 2 MiB ranges can be huge pages: that needs PAGEMAP_SCAN (Linux 6.7)".to_string());
            let ranges = mappings.iter().map(|_| Ranges::default()).collect();
            return Ok(Memory { mappings, ranges });
        }
        Err(why) => return Err(process.failed("pagemap", why)),
    };
    let flags = PageFlags::open().ok();
    let ranges = mappings.iter().map(|mapping| match mapping.is_anonymous() {
        true => Ranges::read(mapping, &states, flags.as_ref()),
        false => Ok(Ranges::default()),
    });
    let ranges: Result<Vec<Ranges>, _> = ranges.collect();
    Ok(Memory { ranges: ranges.map_err(|why| process.failed("pagemap", why))?, mappings })
}

/// The process's own setting. `status` shows only whether huge pages are off altogether. That only advised memory gets them
/// shows in the mode `always`, where the kernel then calls other mappings not eligible.
fn thp_disable(process: &Process, mappings: &[Mapping], mode: ThpMode) -> ThpDisable {
    let is_refused = |mapping: &&Mapping| {
        let holds_range = mapping.addresses.start.next_multiple_of(HUGE_BYTES) + HUGE_BYTES <= mapping.addresses.end;
        let is_unadvised = !mapping.has(b"hg") && !mapping.has(b"nh");
        mapping.is_anonymous() && holds_range && is_unadvised && mapping.is_thp_eligible == Some(false)
    };
    match process.status.number("THP_enabled") {
        Some(0) => ThpDisable::All,
        _ if mode == ThpMode::Always && mappings.iter().any(|mapping| is_refused(&mapping)) => {
            ThpDisable::ExceptAdvised
        }
        _ => ThpDisable::Off,
    }
}

/// The mappings in groups, with the obstacles of their memory.
fn regions(memory: &Memory, names: &[String], situation: &Situation) -> Vec<Region> {
    let mut regions: BTreeMap<&str, Region> = BTreeMap::new();
    for (name, mapping) in names.iter().zip(&memory.mappings) {
        let region = regions.entry(name).or_insert_with(|| Region::new(name));
        region.add(mapping);
        if !mapping.is_anonymous() && mapping.rss_bytes > 0 {
            region.hinder(Obstacle::Place(PlaceObstacle::NotAnonymous), mapping.rss_bytes);
        }
    }
    memory.each(situation, |index, range, verdict, number| {
        let Some(region) = regions.get_mut(names[index].as_str()) else { return };
        region.count(verdict.way, number);
        if let Some(obstacle) = verdict.obstacle.filter(|_| range.written_pages > 0) {
            region.hinder(obstacle, range.written_pages.min(PMD_PAGES) * PAGE_BYTES);
        }
    });
    regions.into_values().map(Region::sorted).collect()
}
