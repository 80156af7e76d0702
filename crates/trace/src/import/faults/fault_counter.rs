//! Counts page faults while the output of `perf script` is read.

use super::super::failure::Failure;
use super::REMEDY;
use super::line::{Fault, Line, Mapping, Stamp, What};
use super::mappings::{Change, MAPPINGS_MAX, Mappings, Region};
use super::pages::{Pages, Past};
use super::report::{CodeRow, FaultReport, MappingRow, Moment, Reasons, RegionKind, RegionRow};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

const PAGE_BYTES: u64 = 4096;
/// Lowest kernel address: the highest bit of an address is set in the kernel.
const KERNEL: u64 = 1 << 63;
/// Bit of an error code: the page was present.
const PRESENT: u64 = 1;

const PROCESSES_NAMED_MAX: usize = 16;
const ROWS_MAX: usize = 64;
/// Maximum number of distinct functions.
const NAMES_MAX: usize = 1 << 16;
/// Maximum number of threads.
const THREADS_MAX: usize = 1 << 20;
const MOMENTS_MAX: usize = 64;

/// Builds the report while the script is read.
pub(super) struct FaultCounter {
    /// The process to report: the selected one, or the first that faulted.
    process: Option<u64>,
    /// The process of each thread in the script's records of mappings and forks.
    threads: HashMap<u64, u64>,
    mappings: HashMap<u64, Mappings>,
    /// Mappings of the reported process, from a maps file.
    known: Mappings,
    pages: Pages,
    regions: HashMap<(RegionKind, Rc<str>), RegionRow>,
    /// Removed mappings with the most faults.
    gone: Vec<Region>,
    code: HashMap<String, u64>,
    timeline: Timeline,
    /// Whether the last sample still needs the instruction, which its first call-chain line has.
    awaits_caller: bool,
    /// Whether any faulting address was outside code.
    has_data: bool,
    other_processes: BTreeSet<u64>,
    report: FaultReport,
}

impl FaultCounter {
    pub(super) fn new(process: Option<u64>) -> FaultCounter {
        let report = FaultReport {
            archive_member: None,
            lines: 0,
            process: 0,
            command: String::new(),
            faults: 0,
            reasons: Reasons::default(),
            kernel_faults: 0,
            duration_ns: 0,
            other_process_faults: 0,
            other_processes: Vec::new(),
            records_lost: 0,
            other_lines: 0,
            has_mappings: false,
            has_error_codes: false,
            regions: Vec::new(),
            mappings: Vec::new(),
            functions: Vec::new(),
            timeline: Vec::new(),
        };
        FaultCounter {
            process,
            threads: HashMap::new(),
            mappings: HashMap::new(),
            known: Mappings::default(),
            pages: Pages::default(),
            regions: HashMap::new(),
            gone: Vec::new(),
            code: HashMap::new(),
            timeline: Timeline::default(),
            awaits_caller: false,
            has_data: false,
            other_processes: BTreeSet::new(),
            report,
        }
    }

    /// Adds a mapping from a maps file.
    pub(super) fn add_known(&mut self, mapping: Mapping) -> Result<(), Failure> {
        self.report.has_mappings = true;
        self.known.add(mapping, &mut |_| ()).map(drop)
    }

    pub(super) fn take(&mut self, line: Line) -> Result<(), Failure> {
        let (stamp, what) = match line {
            Line::Record { stamp, what } => (stamp, what),
            Line::Caller { ip, code } => {
                if std::mem::take(&mut self.awaits_caller) {
                    self.count_code(Some(ip), Some(code));
                }
                return Ok(());
            }
            Line::Foreign => {
                self.report.other_lines += 1;
                return Ok(());
            }
        };
        self.awaits_caller = false;
        match what {
            What::Fault(fault) => self.fault(&stamp, &fault)?,
            What::Mapped { process, thread, mapping } => {
                self.note_thread(thread, process)?;
                self.mapped(process, mapping)?;
            }
            What::Forked { process, thread, parent } => {
                self.note_thread(thread, process)?;
                self.forked(process, parent)?;
            }
            What::Exec { process } => self.exec(process),
            What::Dropped { start, end, unmapped } => self.dropped(&stamp, start, end, unmapped),
            What::Lost(records) => self.report.records_lost = self.report.records_lost.saturating_add(records),
            What::Other => self.report.other_lines += 1,
            What::NoEffect => {}
        }
        Ok(())
    }

    fn note_thread(&mut self, thread: u64, process: u64) -> Result<(), Failure> {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread) {
            return Err(Failure::new("more than 1048576 threads", "cut the script"));
        }
        self.threads.insert(thread, process);
        Ok(())
    }

    fn process_of(&self, stamp: &Stamp) -> u64 {
        stamp.process.or_else(|| self.threads.get(&stamp.thread).copied()).unwrap_or_else(|| {
            // A thread without such a record belongs to the only known process, if there is just one.
            let mut known = self.mappings.keys();
            match (known.next(), known.next()) {
                (Some(&only), None) => only,
                _ => stamp.thread,
            }
        })
    }

    /// The mappings of a process. For the reported process they are initialised from the maps file.
    fn mappings(&mut self, process: u64) -> &mut Mappings {
        let takes = self.process.is_none_or(|taken| taken == process);
        let known = &self.known;
        self.mappings.entry(process).or_insert_with(|| if takes { known.clone() } else { Mappings::default() })
    }

    fn mapped(&mut self, process: u64, mapping: Mapping) -> Result<(), Failure> {
        if mapping.start >= KERNEL {
            return Ok(());
        }
        // A stack is mapped once, when a program starts.
        if mapping.name == "[stack]" {
            self.exec(process);
        }
        self.report.has_mappings = true;
        let mut gone = Vec::new();
        let change = self.mappings(process).add(mapping, &mut |region| gone.push(region))?;
        if self.process == Some(process) {
            gone.into_iter().for_each(|region| self.retire(region));
            if change == Change::Fresh {
                self.pages.forget(mapping.start / PAGE_BYTES, mapping.end.div_ceil(PAGE_BYTES));
            }
        }
        self.check_mappings()
    }

    /// Copies the parent's mappings to a child.
    fn forked(&mut self, process: u64, parent: u64) -> Result<(), Failure> {
        if process != parent
            && let Some(mappings) = self.mappings.get(&parent)
        {
            self.mappings.insert(process, mappings.clone());
        }
        self.check_mappings()
    }

    fn check_mappings(&self) -> Result<(), Failure> {
        // This also bounds the number of processes, as each has mappings.
        if self.mappings.len() > 1 && self.mappings.values().map(Mappings::len).sum::<usize>() > MAPPINGS_MAX {
            let why = "more than 1048576 mappings at the same time";
            return Err(Failure::new(why, "print one process: perf script --pid N"));
        }
        Ok(())
    }

    /// Handles exec: forgets the old program's mappings.
    fn exec(&mut self, process: u64) {
        let old = self.mappings.insert(process, Mappings::default());
        if self.process == Some(process) {
            old.iter().flat_map(Mappings::regions).for_each(|region| self.retire(region.clone()));
            self.pages = Pages::default();
        }
    }

    fn dropped(&mut self, stamp: &Stamp, start: u64, end: u64, unmapped: bool) {
        if self.process != Some(self.process_of(stamp)) {
            return;
        }
        let (first, last) = (start / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        if unmapped { self.pages.forget(first, last) } else { self.pages.drop_range(first, last) }
    }

    fn fault(&mut self, stamp: &Stamp, fault: &Fault) -> Result<(), Failure> {
        let process = self.process_of(stamp);
        if *self.process.get_or_insert(process) != process {
            self.report.other_process_faults += 1;
            if self.other_processes.len() < PROCESSES_NAMED_MAX {
                self.other_processes.insert(process);
            }
            return Ok(());
        }
        let past = self.pages.fault(fault.address / PAGE_BYTES)?;
        let mut reason = Reasons::default();
        *match (past, fault.error_code) {
            (_, Some(code)) if code & PRESENT != 0 => &mut reason.page_present,
            (Past::New, _) => &mut reason.first_touch,
            (Past::Dropped, _) => &mut reason.after_drop,
            (Past::Faulted, Some(_)) => &mut reason.page_not_present,
            (Past::Faulted, None) => &mut reason.repeated,
        } += 1;
        self.report.has_error_codes |= fault.error_code.is_some();
        if self.report.command != stamp.command {
            self.report.command = stamp.command.to_string();
        }
        let (kind, name, is_code) = match self.mappings(process).find(fault.address) {
            Some(region) => {
                region.faults += 1;
                region.first_touch += reason.first_touch;
                (region.kind, Rc::clone(&region.name), region.is_code())
            }
            None => (RegionKind::Unknown, RegionKind::Unknown.word().into(), false),
        };
        self.has_data |= !is_code;
        self.report.faults += 1;
        add(&mut self.report.reasons, &reason);
        let time_ns = self.timeline.count(stamp.time_ns, kind);
        self.report.duration_ns = self.report.duration_ns.max(time_ns);
        self.count_region(kind, name, &reason, time_ns);
        match fault.ip {
            Some(_) => self.count_code(fault.ip, fault.code),
            None => self.awaits_caller = true,
        }
        Ok(())
    }

    fn count_region(&mut self, region: RegionKind, name: Rc<str>, reason: &Reasons, time_ns: u64) {
        let full = self.regions.len() >= NAMES_MAX && !self.regions.contains_key(&(region, Rc::clone(&name)));
        let name = if full { "others".into() } else { name };
        let row = self.regions.entry((region, Rc::clone(&name))).or_insert_with(|| RegionRow {
            region,
            name: name.to_string(),
            faults: 0,
            reasons: Reasons::default(),
            first_ns: time_ns,
            last_ns: time_ns,
        });
        row.faults += 1;
        row.last_ns = row.last_ns.max(time_ns);
        add(&mut row.reasons, reason);
    }

    /// Counts the function that faulted: its symbol without the offset, and its object.
    fn count_code(&mut self, ip: Option<u64>, code: Option<&str>) {
        self.report.kernel_faults += u64::from(ip.is_some_and(|ip| ip >= KERNEL));
        let Some(code) = code else { return };
        let (symbol, object) = code.rsplit_once(" (").unwrap_or((code, ""));
        let symbol = symbol.rsplit_once("+0x").map_or(symbol, |(symbol, _)| symbol);
        let name = if object.is_empty() { symbol.to_string() } else { format!("{symbol} ({object}") };
        let full = self.code.len() >= NAMES_MAX && !self.code.contains_key(&name);
        *self.code.entry(if full { "others".to_string() } else { name }).or_default() += 1;
    }

    /// Adds a removed mapping. Only those with the most faults are kept.
    fn retire(&mut self, region: Region) {
        if region.faults > 0 {
            self.gone.push(region);
            if self.gone.len() > 2 * ROWS_MAX {
                keep_most(&mut self.gone, |region| region.faults);
            }
        }
    }

    /// Checks at the end that the input was usable.
    pub(super) fn check_usable(&self) -> Result<(), Failure> {
        if self.report.faults == 0 {
            return Err(match self.process.filter(|_| self.report.other_process_faults > 0) {
                Some(process) => {
                    let known: Vec<String> = self.other_processes.iter().map(u64::to_string).collect();
                    let why = format!("no faults of process {process}; processes are {}", known.join(", "));
                    Failure::new(why, "name one of them, or omit --pid")
                }
                None => Failure::new("the script contains no page faults", REMEDY),
            });
        }
        // Every program writes at least one page of data, so faults in code alone are addresses of instructions.
        if self.report.has_mappings && !self.has_data && self.report.faults > 1 {
            return Err(Failure::new("all addresses are in code: only instruction addresses were printed", REMEDY));
        }
        Ok(())
    }

    pub(super) fn report(mut self) -> FaultReport {
        let process = self.process.unwrap_or_default();
        let mut mappings = std::mem::take(&mut self.gone);
        let live = self.mappings.get(&process).into_iter().flat_map(Mappings::regions);
        mappings.extend(live.filter(|region| region.faults > 0).cloned());
        keep_most(&mut mappings, |region| region.faults);
        let mut code: Vec<CodeRow> =
            self.code.into_iter().map(|(code, faults)| CodeRow { function: code, faults }).collect();
        code.sort_by(|one, other| one.function.cmp(&other.function));
        keep_most(&mut code, |row| row.faults);
        let mut regions: Vec<RegionRow> = self.regions.into_values().collect();
        regions.sort_by(|one, other| other.faults.cmp(&one.faults).then_with(|| one.name.cmp(&other.name)));
        let row = |region: Region| MappingRow {
            start: region.start,
            end: region.end,
            region: region.kind,
            name: region.name.to_string(),
            faults: region.faults,
            first_touch: region.first_touch,
        };
        FaultReport {
            process,
            other_processes: self.other_processes.into_iter().collect(),
            regions,
            mappings: mappings.into_iter().map(row).collect(),
            functions: code,
            timeline: self.timeline.moments(),
            ..self.report
        }
    }
}

/// Sorts by faults, descending, and keeps the first rows.
fn keep_most<T>(rows: &mut Vec<T>, faults: impl Fn(&T) -> u64) {
    rows.sort_by_key(|row| std::cmp::Reverse(faults(row)));
    rows.truncate(ROWS_MAX);
}

fn add(sum: &mut Reasons, reason: &Reasons) {
    sum.first_touch += reason.first_touch;
    sum.after_drop += reason.after_drop;
    sum.page_present += reason.page_present;
    sum.page_not_present += reason.page_not_present;
    sum.repeated += reason.repeated;
}

/// Faults over time, in spans of equal length. The length doubles when there are too many spans.
#[derive(Default)]
struct Timeline {
    first_ns: Option<u64>,
    /// log2 of the length of a span in ns.
    shift: u32,
    moments: Vec<[u64; RegionKind::ALL.len()]>,
}

impl Timeline {
    /// Counts a fault and returns its time since the first counted fault; 0 for a fault with an earlier timestamp.
    fn count(&mut self, time_ns: u64, kind: RegionKind) -> u64 {
        let time_ns = time_ns.saturating_sub(*self.first_ns.get_or_insert(time_ns));
        while (time_ns >> self.shift) as usize >= MOMENTS_MAX {
            self.shift += 1;
            let halves = self.moments.chunks(2);
            self.moments =
                halves.map(|pair| std::array::from_fn(|kind| pair.iter().map(|moment| moment[kind]).sum())).collect();
        }
        let index = (time_ns >> self.shift) as usize;
        if self.moments.len() <= index {
            self.moments.resize(index + 1, Default::default());
        }
        self.moments[index][kind as usize] += 1;
        time_ns
    }

    fn moments(self) -> Vec<Moment> {
        let shift = self.shift;
        let moment = |(index, faults)| Moment { from_ns: (index as u64) << shift, faults };
        self.moments.into_iter().enumerate().map(moment).collect()
    }
}
