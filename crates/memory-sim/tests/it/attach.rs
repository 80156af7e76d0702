//! Recordings that begin in the middle of a running process: the program changes memory at random, before and after the
//! recorder attaches. What is predicted for the kernel's own settings is what the kernel shows at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use hksim_linux_mm::{KernelConfig, KernelVersion, PageState, Rules, SizeMode, ThpConfig, ThpMode};
use hksim_linux_probe::memory_group::MemoryGroup;
use hksim_memory_record::{AttachError, AttachOptions, HugePagesOfRunning, MemoryRecordError, RecordingReport, attach};
use hksim_memory_sim::{Detail, Family, MemorySimulation, Outside, Setting, groups, simulate};
use hksim_memory_trace::summarise;
use hksim_testkit::{compile, test_scale};
use tempfile::TempDir;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// `attach.c`, between its phases.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(path: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut program = Self { child, output };
        assert_eq!(program.line(), "ready\n");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// Lets it perform its second phase. Returns its own counts of calls.
    fn proceed(&mut self) -> Vec<u64> {
        self.child.stdin.as_mut().expect("its input").write_all(b"\n").expect("it waits");
        let line = self.line();
        line.split_whitespace().skip(1).map(|word| word.parse().expect("a number")).collect()
    }
}

fn options(output: PathBuf, huge_pages: HugePagesOfRunning) -> AttachOptions {
    AttachOptions { output, duration: None, huge_pages, stack_depth: None }
}

/// Records the second phase. `None`, with the reason printed, where this machine does not permit it.
fn recorded(program: &mut Program, options: &AttachOptions) -> Option<(RecordingReport, Vec<u64>)> {
    let pid = program.child.id();
    let (started, has_started) = mpsc::channel();
    let (end, must_end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let recorder = scope
            .spawn(move || attach(options, pid, || started.send(()).expect("a test"), || must_end.try_recv().is_ok()));
        // The recorder drops the channel if it fails.
        let counts = has_started.recv().ok().map(|()| program.proceed());
        let _ = end.send(());
        match recorder.join().expect("the recorder") {
            Ok(report) => Some((report, counts.expect("the second phase"))),
            Err(
                why @ (MemoryRecordError::NotPermitted { .. } | MemoryRecordError::Attach(AttachError::NoPageScan)),
            ) => {
                eprintln!("skipped: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    })
}

/// The kernel of this machine with its modes; `None`, with the reason printed, if the model does not know it.
fn this_kernel() -> Option<KernelConfig> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let (version, _) = KernelVersion::nearest(release.trim())?;
    let chosen = |path: &str| {
        let text = fs::read_to_string(path).ok()?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_string())
    };
    let global = match chosen(&format!("{THP}/enabled")).as_deref() {
        Some("always") => ThpMode::Always,
        Some("madvise") => ThpMode::Madvise,
        _ => ThpMode::Never,
    };
    let mut thp = ThpConfig::new(global);
    for (order, mode) in thp.sizes.iter_mut().enumerate().skip(2) {
        *mode = match chosen(&format!("{THP}/hugepages-{}kB/enabled", 4 << order)).as_deref() {
            Some("always") => SizeMode::Always,
            Some("madvise") => SizeMode::Madvise,
            Some("inherit") => SizeMode::Inherit,
            _ => SizeMode::Never,
        };
    }
    Some(KernelConfig { thp, rules: Rules::of(version), ..KernelConfig::default() })
}

fn simulated(path: &Path, kernel: KernelConfig) -> MemorySimulation {
    let setting = Setting::recorded(kernel);
    simulate(Family::open(path).expect("a recording"), &[setting], Detail::Pages).expect("a prediction")
}

/// Resident and huge bytes of a process's private anonymous mappings without stacks that grow, by smaps.
fn measured_bytes(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let (mut is_counted, mut rss, mut huge) = (false, 0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let kib = || words[1].parse::<u64>().expect("a size") << 10;
        match words[0] {
            "Rss:" if is_counted => rss += kib(),
            "AnonHugePages:" if is_counted => huge += kib(),
            word if !word.ends_with(':') => {
                let name = words.get(5).copied().unwrap_or("");
                is_counted = words[1].ends_with('p') && words[4] == "0" && name != "[stack]" && !name.starts_with("[v");
            }
            _ => {}
        }
    }
    (rss, huge)
}

/// Which pages of these ranges are present, by pagemap.
fn measured_pages(pid: u32, ranges: &[Range<u64>]) -> Vec<u64> {
    let file = File::open(format!("/proc/{pid}/pagemap")).expect("pagemap");
    let mut present = Vec::new();
    for page in ranges.iter().flat_map(Clone::clone) {
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, page * 8).expect("an entry");
        if u64::from_le_bytes(entry) >> 63 == 1 {
            present.push(page);
        }
    }
    present
}

/// Huge pages that khugepaged made so far on this machine.
fn collapsed() -> u64 {
    let text = fs::read_to_string(format!("{THP}/khugepaged/pages_collapsed")).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn program(directory: &TempDir) -> Option<PathBuf> {
    compiled(directory, "attach")
}

fn compiled(directory: &TempDir, name: &str) -> Option<PathBuf> {
    let path = directory.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/{name}.c"));
    compile(&source, &path, &["-O1", "-w", "-pthread"])?;
    Some(path)
}

/// One random program. False if khugepaged, which is not recorded, changed memory meanwhile, or if nothing can be recorded.
fn is_as_predicted(path: &Path, directory: &Path, seed: u64, way: &str, threads: &str) -> bool {
    let Some(kernel) = this_kernel() else { return false };
    let before = collapsed();
    let mut program = Program::start(path, &[&seed.to_string(), "150", way, threads]);
    let file = directory.join("a.hkm");
    let Some((report, counts)) = recorded(&mut program, &options(file.clone(), HugePagesOfRunning::Unchanged)) else {
        return false;
    };
    let what = format!("seed {seed}, {way}, {threads} threads");
    assert_eq!((report.lost_events, report.left_out.len()), (0, 0), "{what}");
    // The calls that it counted itself. A heap that shrinks is recorded as munmap.
    let summary = summarise(&file).expect("a recording");
    let calls = |name: &str| summary.calls.get(name).copied().unwrap_or_default();
    assert_eq!(
        [calls("mmap"), calls("mprotect"), calls("madvise"), calls("mremap")],
        [counts[0], counts[2], counts[3], counts[4]],
        "{what}"
    );
    assert!(calls("munmap") >= counts[1] && calls("munmap") + calls("brk") <= counts[1] + counts[5], "{what}");
    // Pages and resident memory at the end.
    let result = simulated(&file, kernel);
    let prediction = &result.predictions[0];
    let pid = program.child.id();
    let (pages, bytes) = (measured_pages(pid, &result.modelled_end), measured_bytes(pid));
    if collapsed() != before {
        eprintln!("{what}: khugepaged worked meanwhile; not compared");
        return false;
    }
    let is_present = |state: PageState| state != PageState::None;
    let runs = prediction.pages.iter().filter(|run| is_present(run.state));
    let predicted: Vec<u64> = runs.flat_map(|run| run.first_page..run.first_page + run.pages).collect();
    assert_eq!((prediction.rss_bytes_end, prediction.huge_pages_end << 21), bytes, "{what}");
    assert!(predicted == pages, "{what}: {} pages predicted, {} present", predicted.len(), pages.len());
    assert_eq!((prediction.traps, prediction.calls_failed), (result.traps_recorded, 0), "{what}");
    let start = result.at_start.expect("a start");
    assert!(
        start.resident_bytes > 1 << 20 && (way != "huge" || has_huge_mode() == (start.huge_bytes > 0)),
        "{start:?}"
    );
    true
}

fn has_huge_mode() -> bool {
    this_kernel().is_some_and(|kernel| kernel.thp.global != ThpMode::Never)
}

#[test]
fn the_pages_at_the_end_are_those_that_the_kernel_shows() {
    let directory = TempDir::new().expect("a directory");
    let Some(path) = program(&directory) else { return };
    let mut compared: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=2 * test_scale() {
        for (way, threads) in [("huge", "1"), ("lazy", "2"), ("forks", "1"), ("huge", "8")] {
            let done = is_as_predicted(&path, directory.path(), seed, way, threads);
            *compared.entry(way).or_default() += u64::from(done);
        }
    }
    eprintln!("compared: {compared:?}");
}

#[test]
fn forked_processes_are_recorded_whether_they_were_there_or_come_later() {
    let directory = TempDir::new().expect("a directory");
    let (Some(path), Some(kernel)) = (program(&directory), this_kernel()) else { return };
    let mut program = Program::start(&path, &["5", "150", "forks"]);
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
    let Some((report, _)) = recorded(&mut program, &options) else { return };
    let attached = report.files.iter().filter(|file| file.beginning.is_attached()).count();
    assert_eq!((attached, report.files.len()), (4, 7), "the program, 3 children that were there, and 3 later ones");
    let mut total = 0;
    for file in &report.files {
        let result = simulated(&file.path, kernel.clone());
        let (rss, _) = measured_bytes(file.pid);
        assert_eq!(result.predictions[0].rss_bytes_end, rss, "{}", file.path.display());
        total += rss;
    }
    let family = simulated(&report.files[0].path, kernel).predictions[0].family.expect("a family");
    assert_eq!(family.processes, 7);
    assert!(family.rss_bytes_peak >= total, "{family:?}, {total} at the end");
}

/// The frames of a process's private anonymous memory other than its stack, by pagemap; empty unless this user is root.
fn frames(pid: u32, found: &mut BTreeSet<u64>) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).expect("pagemap");
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[1].ends_with('p') && words[4] == "0" && words.get(5).is_none_or(|name| *name == "[heap]") {
            let (start, end) = words[0].split_once('-').expect("a range");
            let page = |word| u64::from_str_radix(word, 16).expect("an address") / 4096;
            for page in page(start)..page(end) {
                let mut entry = [0; 8];
                pagemap.read_exact_at(&mut entry, page * 8).expect("an entry");
                let entry = u64::from_le_bytes(entry);
                if entry >> 63 == 1 && entry & ((1 << 55) - 1) != 0 {
                    found.insert(entry & ((1 << 55) - 1));
                }
            }
        }
    }
}

/// The group's charge of a service, with its processes as they are now, is as predicted from the file of each: pages count
/// once, however many processes share them. Returns the bytes in their frames.
fn assert_charged(report: &RecordingReport, kernel: &KernelConfig) -> u64 {
    let (mut distinct, mut sum) = (BTreeSet::new(), 0);
    for file in &report.files {
        frames(file.pid, &mut distinct);
        sum += measured_bytes(file.pid).0;
    }
    let charged = distinct.len() as u64 * 4096;
    // Page tables, and the kernel's records of mappings.
    let more = 2 << 20;
    for file in &report.files {
        let limited = |bytes| {
            let kernel = KernelConfig { memory_limit_bytes: Some(bytes), ..kernel.clone() };
            simulated(&file.path, kernel).predictions.remove(0)
        };
        let prediction = limited(charged + more);
        let family = prediction.family.expect("a family");
        assert_eq!(family.processes, report.files.len() as u64, "{}", file.path.display());
        assert!(family.rss_bytes_peak.abs_diff(sum) < 1 << 20, "{family:?}, {sum} by smaps");
        let limit = prediction.memory_limit.as_ref().expect("a limit");
        assert!(limit.survives() && limit.pressure.charged_bytes_peak >= charged, "{limit:?}, {charged} by frames");
        assert!(!limited(charged - more).memory_limit.expect("a limit").survives(), "{}", file.path.display());
    }
    charged
}

/// The processes of a service that were there are one family with those that come later: each counts in the total, and
/// what they share counts once in their group.
#[test]
fn a_service_is_one_family_with_the_children_that_it_had() {
    let directory = TempDir::new().expect("a directory");
    let (Some(path), Some(kernel)) = (compiled(&directory, "family"), this_kernel()) else { return };
    let mut program = Program::start(&path, &["grows", "64"]);
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
    let Some((report, _)) = recorded(&mut program, &options) else { return };
    assert_eq!((report.files.len(), report.lost_events), (3, 0));
    let charged = assert_charged(&report, &kernel);
    assert!((88 << 20..90 << 20).contains(&charged), "{charged}: 64, 16 and 8 MiB");
    // Touched before: told by its size, with what decides about it.
    let result = simulated(&report.files[0].path, kernel);
    let (traps, mapped) = (&result.traps_outside, &result.mapped_outside);
    assert_eq!(traps.get(&Outside::SharedMemory), None);
    let rss_bytes_peak = result.predictions[0].rss_bytes_peak;
    assert!(groups::outside_table(traps, mapped, result.traps_recorded, rss_bytes_peak).is_some(), "{mapped:?}");
}

/// A process maps huge pages as a whole, and its child parts of them.
#[test]
fn huge_pages_that_are_shared_in_parts_are_charged_once() {
    let directory = TempDir::new().expect("a directory");
    let (Some(path), Some(kernel)) = (compiled(&directory, "family"), this_kernel()) else { return };
    let mut program = Program::start(&path, &["parts", "32"]);
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
    let Some((report, _)) = recorded(&mut program, &options) else { return };
    assert_eq!(report.files.len(), 2);
    let charged = assert_charged(&report, &kernel);
    assert!((32 << 20..33 << 20).contains(&charged), "{charged}");
    let huge: Vec<u64> = report.files.iter().map(|file| measured_bytes(file.pid).1).collect();
    eprintln!("{huge:?} bytes in whole huge pages");
}

/// Whether `family ends` survives a limit; an error where there are no control groups.
fn survives(path: &Path, mib: &str, limit_bytes: u64) -> Result<bool, String> {
    let group = MemoryGroup::create()?;
    group.set_limit(Some(limit_bytes)).map_err(|why| why.to_string())?;
    let mut program = Program::start(path, &["ends", mib]);
    group.add(program.child.id()).map_err(|why| why.to_string())?;
    program.child.stdin.as_mut().expect("its input").write_all(b"\n").expect("it waits");
    Ok(program.line().starts_with("done"))
}

/// A program writes 16 MiB, its child copies 8 MiB and ends, and it writes 12 MiB elsewhere. The file of the child tells the
/// same limit as its own: 28 MiB, which the kernel confirms.
#[test]
fn the_limit_of_a_family_is_that_of_each_file_also_of_one_that_ends_early() {
    const MIB: u64 = 1 << 20;
    let directory = TempDir::new().expect("a directory");
    let (Some(path), Some(kernel)) = (compiled(&directory, "family"), this_kernel()) else { return };
    let mut program = Program::start(&path, &["ends", "16"]);
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::Unchanged);
    let Some((report, _)) = recorded(&mut program, &options) else { return };
    assert_eq!(report.files.len(), 2);
    let charged = report.files.iter().map(|file| {
        let kernel = KernelConfig { memory_limit_bytes: Some(1 << 40), ..kernel.clone() };
        let limit = simulated(&file.path, kernel).predictions.remove(0).memory_limit;
        limit.expect("a limit").pressure.charged_bytes_peak
    });
    let charged: Vec<u64> = charged.collect();
    assert!(charged[0] == charged[1] && (28 * MIB..29 * MIB).contains(&charged[0]), "{charged:?}");
    for (limit_bytes, is_met) in [(charged[0] + MIB, true), (26 * MIB, false)] {
        match survives(&path, "16", limit_bytes) {
            Ok(survives) => assert_eq!(survives, is_met, "{limit_bytes}"),
            Err(why) => return eprintln!("skipped: {why}"),
        }
    }
}

/// With huge pages off, each touch is seen, so that other settings can be predicted; afterwards they are on again.
#[test]
fn huge_pages_are_off_only_while_it_is_recorded() {
    let directory = TempDir::new().expect("a directory");
    let Some(path) = program(&directory) else { return };
    let mut program = Program::start(&path, &["9", "150", "huge", "2"]);
    let pid = program.child.id();
    let enabled = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).map(str::trim);
        line.map(str::to_string)
    };
    let before = enabled();
    let options = options(directory.path().join("a.hkm"), HugePagesOfRunning::SwitchedOff);
    let Some((report, _)) = recorded(&mut program, &options) else { return };
    assert_eq!(enabled(), before);
    let result = simulated(&report.files[0].path, this_kernel().expect("a known kernel"));
    assert!(result.header.machine.thp_disabled && !result.header.inherited.thp_chosen);
    let never = KernelConfig { thp: ThpConfig::new(ThpMode::Never), ..this_kernel().expect("a known kernel") };
    let never = simulated(&report.files[0].path, never);
    let (rss, huge) = measured_bytes(pid);
    // What was huge stays so; what follows is recorded and predicted page by page.
    assert_eq!((never.predictions[0].rss_bytes_end, never.predictions[0].huge_pages_end << 21), (rss, huge));
}
