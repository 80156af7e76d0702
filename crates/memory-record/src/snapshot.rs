//! The memory of a program and of its children at the moment of their exit, from /proc.
//!
//! The program is traced (ptrace) so that it stops when it exits; it is not stopped at system calls.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::thread;

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::pagemap::{PageMap, PresentPages};
use hksim_linux_probe::scans::Scans;
use hksim_linux_probe::status::Status;
use libc::{c_int, c_long, pid_t};

use crate::interpreter::ZERO_DEVICE;
use crate::levels::Levels;

/// How often the call of a thread is read that has not left its processor yet.
const RUNNING_READS_MAX: u32 = 1000;

/// A mapping of private anonymous memory, from smaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredMapping {
    /// Its pages.
    pub pages: Range<u64>,
    /// `Rss`.
    pub rss_bytes: u64,
    /// `AnonHugePages`.
    pub huge_bytes: u64,
    /// `Private_Hugetlb`.
    pub hugetlb_bytes: u64,
}

/// The private anonymous memory of a program.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Its mappings, in order of addresses, without stacks that grow.
    pub mappings: Vec<MeasuredMapping>,
    /// Its stacks that grow: the main stack, and mappings of `MAP_GROWSDOWN`.
    pub stacks: Vec<MeasuredMapping>,
    /// The present pages of these mappings; `None` if the kernel cannot scan page tables (before Linux 6.7).
    pub present: Option<Vec<PresentPages>>,
    /// Faults that the kernel charged to the process without input or output (`minflt`).
    pub minor_faults: u64,
    /// All anonymous memory of the process.
    pub anonymous: Anonymous,
    /// Written pages of private mappings of files, those of the program itself excluded.
    pub library_bytes: u64,
    /// The same over time; empty if only its peak was measured, or nothing.
    pub anonymous_levels: Levels,
}

/// Resident anonymous memory of a process, that of stacks and of written pages of private file mappings included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anonymous {
    /// At the exit (`RssAnon`).
    pub bytes: u64,
    /// Highest so far; `None` if it was not measured.
    pub peak: Option<Peak>,
}

/// A highest number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Reported by the kernel.
    pub bytes: u64,
    /// By which the true one may be higher or lower.
    pub error_bytes: u64,
}

/// Whose memory is read at the exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotsOf {
    /// Nobody's.
    #[default]
    Nothing,
    /// The started program's.
    Program,
    /// The started program's, once khugepaged has scanned it. The scans are waited for at a pace set for this purpose:
    /// the caller restores it if this process is killed.
    SettledProgram,
    /// That of every process that ends before the started program.
    Processes,
}

/// Snapshots by process id.
pub type Snapshots = BTreeMap<u32, Snapshot>;

/// Lets the parent trace this process. Called between fork and exec.
pub fn trace_me() -> io::Result<()> {
    // SAFETY: a request without addresses.
    checked(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) })
}

/// Runs a traced program from its first exec to its exit, and takes a snapshot there, or at the exit of each process. The exit status is left for `wait`. Must be called by the thread that created the process.
///
/// # Errors
/// The process cannot be traced.
pub fn at_exits(pid: pid_t, whose: SnapshotsOf) -> io::Result<Snapshots> {
    let mut tracer = Tracer { pid, whose, known: HashSet::from([pid]), snapshots: Snapshots::new() };
    // A traced child runs later than its parent, so the two race differently. It is not traced needlessly.
    let children = match whose {
        SnapshotsOf::Processes => libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK,
        SnapshotsOf::Program | SnapshotsOf::SettledProgram | SnapshotsOf::Nothing => 0,
    };
    let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACECLONE | children;
    let (_, status) = tracer.next_stop()?;
    if libc::WIFSTOPPED(status) {
        // SAFETY: the process is stopped and traced by this thread.
        checked(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) })?;
        resume(pid, 0)?;
        tracer.run()?;
    }
    Ok(tracer.snapshots)
}

struct Tracer {
    pid: pid_t,
    whose: SnapshotsOf,
    /// Threads that have reported their first stop.
    known: HashSet<pid_t>,
    snapshots: Snapshots,
}

impl Tracer {
    /// Handles stops until the process is about to be gone.
    fn run(&mut self) -> io::Result<()> {
        loop {
            let (tid, status) = self.next_stop()?;
            if !libc::WIFSTOPPED(status) {
                // A thread that ended has been reaped. The process itself has not: see `next_stop`.
                if tid == self.pid {
                    return Ok(());
                }
                continue;
            }
            let signal = match (status >> 16, libc::WSTOPSIG(status)) {
                // The threads that an exec ended may have looked like the end of the process.
                (libc::PTRACE_EVENT_EXEC, _) => {
                    self.snapshots.remove(&(tid as u32));
                    0
                }
                (libc::PTRACE_EVENT_EXIT, _) => {
                    take_at_exit(tid, self.whose, &mut self.snapshots);
                    0
                }
                (0, libc::SIGSTOP) if self.known.insert(tid) => 0,
                (0, signal) => signal,
                _ => 0,
            };
            self.known.insert(tid);
            // The thread may have been killed meanwhile.
            let _ = resume(tid, signal);
        }
    }

    /// The next stop or end of a traced thread. The end of the process is reported but not reaped.
    fn next_stop(&self) -> io::Result<(pid_t, c_int)> {
        loop {
            // SAFETY: plain data, valid when zeroed.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: the kernel writes to the value.
            if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) } != 0 {
                match io::Error::last_os_error() {
                    why if why.kind() == io::ErrorKind::Interrupted => continue,
                    why => return Err(why),
                }
            }
            // SAFETY: waitid has filled the value.
            let tid = unsafe { info.si_pid() };
            let ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
            if ended && tid == self.pid {
                return Ok((tid, 0));
            }
            let mut status: c_int = 0;
            // SAFETY: the kernel writes to the value.
            if unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::__WNOTHREAD) } == tid {
                return Ok((tid, status));
            }
        }
    }
}

/// Takes the snapshot of a process of which a traced thread has stopped at its exit. The first thread whose process ends
/// gives the snapshot: it called exit_group, a signal ended it, or another thread ends it. An exec also ends threads;
/// remove the snapshot then.
pub fn take_at_exit(tid: pid_t, whose: SnapshotsOf, snapshots: &mut Snapshots) {
    let Ok(status) = Status::of(tid as u32) else { return };
    let Some(pid) = status.number("Tgid") else { return };
    let is_last_thread = status.number("Threads") == Some(1);
    // A thread that ends by itself calls exit.
    let is_ended = exiting_call(pid as pid_t, tid).is_some_and(|call| call != libc::SYS_exit);
    if !(is_ended || is_last_thread || is_killed(tid)) || snapshots.contains_key(&pid) {
        return;
    }
    if whose == SnapshotsOf::SettledProgram && !is_scanned() {
        return;
    }
    // By the stopped thread: the first thread may be gone, and then /proc shows no memory for it.
    if let Ok(snapshot) = Snapshot::take(tid) {
        snapshots.insert(pid, snapshot);
    }
}

/// Waits until khugepaged has scanned all memory. The second scan sees what the first may have missed while it began.
fn is_scanned() -> bool {
    Scans::open().and_then(|mut scans| scans.wait(2)).unwrap_or(false)
}

/// Whether a thread that stopped at its exit is ended by a signal.
fn is_killed(tid: pid_t) -> bool {
    let mut status: libc::c_ulong = 0;
    // SAFETY: the thread is stopped and traced by this thread; the kernel writes to the value.
    let got = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut status) };
    got == 0 && libc::WIFSIGNALED(status as c_int)
}

/// The call in which a thread stopped at its exit: exit, exit_group, or the one in which it was ended; -1 for none. `None`
/// if the kernel does not say.
fn exiting_call(pid: pid_t, tid: pid_t) -> Option<i64> {
    for _ in 0..RUNNING_READS_MAX {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        // The thread has reported its stop, but has not left the processor yet.
        if !text.starts_with("running") {
            return text.split_ascii_whitespace().next()?.parse().ok();
        }
        thread::yield_now();
    }
    None
}

fn resume(tid: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: the thread is stopped and traced by this thread; no memory is touched.
    checked(unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0, signal) })
}

fn checked(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Snapshot {
    /// The memory of a process, by a thread of it that is stopped.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn take(tid: pid_t) -> io::Result<Self> {
        let smaps = fs::read_to_string(format!("/proc/{tid}/smaps"))?;
        let (stacks, mappings): (Vec<_>, Vec<_>) =
            anonymous_mappings(&smaps).into_iter().partition(|(_, is_stack)| *is_stack);
        let [stacks, mappings] = [stacks, mappings].map(|all| all.into_iter().map(|(mapping, _)| mapping).collect());
        let mappings: Vec<MeasuredMapping> = mappings;
        let ranges = mappings.iter().map(|mapping| mapping.pages.clone());
        let present = match PageMap::of_process(tid) {
            Ok(mut map) => Some(map.scan_each(ranges).collect()),
            Err(why) if matches!(why.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => None,
            Err(why) => return Err(why),
        };
        let stat = fs::read_to_string(format!("/proc/{tid}/stat"))?;
        let anonymous = Anonymous { bytes: anonymous_bytes(tid).unwrap_or_default(), peak: None };
        let minor_faults = minor_faults(&stat).unwrap_or_default();
        let program = fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default();
        let library_bytes = written_bytes_of_files(&smaps, &program.to_string_lossy());
        let anonymous_levels = Levels::default();
        Ok(Self { mappings, stacks, present, minor_faults, anonymous, library_bytes, anonymous_levels })
    }

    /// The part of the snapshot in mappings that begin in one of these ranges, which must be in ascending order.
    pub fn within(&self, ranges: &[Range<u64>]) -> Self {
        let is_within = |page: u64| {
            let after = ranges.partition_point(|range| range.start <= page);
            after > 0 && page < ranges[after - 1].end
        };
        let mappings: Vec<MeasuredMapping> =
            self.mappings.iter().filter(|mapping| is_within(mapping.pages.start)).cloned().collect();
        let is_inside = |run: &&PresentPages| {
            let after = mappings.partition_point(|mapping| mapping.pages.start <= run.first_page);
            after > 0 && run.first_page < mappings[after - 1].pages.end
        };
        let present = self.present.as_ref().map(|runs| runs.iter().filter(is_inside).copied().collect());
        Self { present, mappings, ..self.clone() }
    }

    /// Resident bytes, hugetlb included.
    pub fn rss_bytes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.rss_bytes + mapping.hugetlb_bytes).sum()
    }

    /// Between which bytes the highest of these mappings so far lie, without hugetlb; `None` if it was not measured. The
    /// kernel counts all anonymous memory together. Of other memory there was at most as much as at the exit: stacks and
    /// written pages of files stay until then.
    pub fn rss_bytes_peak(&self) -> Option<[u64; 2]> {
        let peak = self.anonymous.peak?;
        let own = self.rss_bytes_without_hugetlb();
        let other = self.anonymous.bytes.saturating_sub(own);
        let least = peak.bytes.saturating_sub(other + peak.error_bytes).max(own);
        Some([least, (peak.bytes + peak.error_bytes).max(own)])
    }

    /// The same within a time (CLOCK_MONOTONIC), of mappings of which nothing was removed between its end and the exit. Other
    /// mappings did not change within it, and of further memory `further_bytes` may have become present.
    pub fn rss_bytes_peak_within(&self, time_ns: RangeInclusive<u64>, further_bytes: u64) -> Option<[u64; 2]> {
        let error_bytes = self.anonymous.peak?.error_bytes;
        let at_end = self.anonymous_levels.at(*time_ns.end())?;
        // What became present after the end may be part of these mappings, and what was dropped then of others.
        let added = self.anonymous_levels.rises_after(*time_ns.end());
        let above_end = self.anonymous_levels.highest_within(time_ns)?.saturating_sub(at_end);
        let most = self.rss_bytes_without_hugetlb() + above_end;
        Some([most.saturating_sub(added + error_bytes), most + error_bytes + further_bytes])
    }

    /// Resident bytes of these mappings, hugetlb excluded.
    fn rss_bytes_without_hugetlb(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.rss_bytes).sum()
    }

    /// Resident bytes of stacks that grow.
    pub fn stack_rss_bytes(&self) -> u64 {
        self.stacks.iter().map(|mapping| mapping.rss_bytes).sum()
    }

    /// Bytes in transparent huge pages.
    pub fn huge_bytes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.huge_bytes).sum()
    }
}

/// Resident anonymous bytes now of the process of a thread that still runs.
pub fn anonymous_bytes(tid: pid_t) -> Option<u64> {
    Status::of(tid as u32).ok()?.bytes("RssAnon")
}

/// Written pages of private mappings of files other than the program, from the text of smaps.
fn written_bytes_of_files(smaps: &str, program: &str) -> u64 {
    let mut is_counted = false;
    let mut kib = 0;
    for line in smaps.lines() {
        if head(line).is_some() {
            let name = line.split_ascii_whitespace().nth(5).unwrap_or_default();
            is_counted = name.starts_with('/') && name != program;
        } else if let (true, Some(value)) = (is_counted, line.strip_prefix("Anonymous:")) {
            kib += value.trim().strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    kib * 1024
}

/// The private anonymous mappings in the text of smaps, each with whether it is a stack that grows.
fn anonymous_mappings(smaps: &str) -> Vec<(MeasuredMapping, bool)> {
    let mut mappings: Vec<(MeasuredMapping, bool)> = Vec::new();
    let mut is_anonymous = false;
    for line in smaps.lines() {
        if let Some((pages, is_private_anonymous)) = head(line) {
            is_anonymous = is_private_anonymous;
            if is_anonymous {
                mappings.push((MeasuredMapping { pages, rss_bytes: 0, huge_bytes: 0, hugetlb_bytes: 0 }, false));
            }
        } else if let (true, Some((mapping, is_stack))) = (is_anonymous, mappings.last_mut()) {
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let kib = value.trim().strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
            match key {
                "Rss" => mapping.rss_bytes = kib * 1024,
                "AnonHugePages" => mapping.huge_bytes = kib * 1024,
                "Private_Hugetlb" => mapping.hugetlb_bytes = kib * 1024,
                "VmFlags" if value.split(' ').any(|flag| flag == "gd") => *is_stack = true,
                _ => {}
            }
        }
    }
    mappings
}

/// The pages of a mapping's first line, and whether it is private anonymous memory. `None` for other lines.
fn head(line: &str) -> Option<(Range<u64>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |word: &str| u64::from_str_radix(word, 16).ok();
    let pages = address(start)? / PAGE_BYTES..address(end)? / PAGE_BYTES;
    let permissions = words.next()?;
    let name = words.nth(3).unwrap_or_default();
    let is_named_anonymous = matches!(name, "" | "[heap]" | "[stack]" | ZERO_DEVICE) || name.starts_with("[anon:");
    let is_hugetlb = name.starts_with("/anon_hugepage");
    Some((pages, permissions.ends_with('p') && (is_named_anonymous || is_hugetlb)))
}

/// Faults charged to a process so far.
pub fn minor_faults_of(pid: pid_t) -> Option<u64> {
    minor_faults(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `minflt` of /proc/PID/stat: the tenth field. The second one, the name, may hold spaces.
fn minor_faults(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_is_parsed() {
        let text = "55d1d21bf000-55d1d21c3000 r--p 00000000 fe:00 123   /usr/bin/ls\nRss:                 16 kB\n\
            55d206a17000-55d206a38000 rw-p 00000000 00:00 0        [heap]\nRss:                 44 kB\n\
            AnonHugePages:      2048 kB\n7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nRss:       8 kB\n\
            7f0000300000-7f0000301000 rw-p 00000000 00:00 0 \nRss:       4 kB\nVmFlags: rd wr gd ac \n\
            7f0000400000-7f0000600000 rw-s 00000000 00:01 7  /dev/zero (deleted)\nRss:       4 kB\n\
            7f0000700000-7f0000800000 rw-p 00000000 00:06 4  /dev/zero\nRss:       12 kB\n\
            7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0  [stack]\nRss:      12 kB\nVmFlags: rd wr gd ac \n";
        let mappings = anonymous_mappings(text);
        let figures = |stacks: bool| -> Vec<_> {
            let chosen = mappings.iter().filter(|(_, is_stack)| *is_stack == stacks);
            chosen.map(|(mapping, _)| (mapping.pages.start, mapping.rss_bytes, mapping.huge_bytes)).collect()
        };
        assert_eq!(
            figures(false),
            [(0x55d206a17, 44 << 10, 2 << 20), (0x7f0000000, 8 << 10, 0), (0x7f0000700, 12 << 10, 0)]
        );
        assert_eq!(figures(true), [(0x7f0000300, 4 << 10, 0), (0x7ffd00000, 12 << 10, 0)]);
    }

    #[test]
    fn written_pages_of_libraries_are_counted() {
        let text = "1000-2000 rw-p 00000000 fe:00 123   /usr/bin/ls\nAnonymous:            16 kB\n\
            3000-4000 rw-p 00000000 fe:00 124   /usr/lib/libc.so.6\nRss:       8 kB\nAnonymous:       4 kB\n\
            5000-6000 rw-p 00000000 00:00 0 \nAnonymous:       32 kB\n\
            7000-8000 rw-p 00000000 fe:00 125   /tmp/my.so\nAnonymous:       8 kB\n";
        assert_eq!(written_bytes_of_files(text, "/usr/bin/ls"), 12 << 10);
    }

    #[test]
    fn the_peak_leaves_out_other_memory() {
        let mapping = MeasuredMapping { pages: 0..60, rss_bytes: 240 << 10, huge_bytes: 0, hugetlb_bytes: 0 };
        let snapshot = |peak: Option<(u64, u64)>| {
            let peak = peak.map(|(kib, error)| Peak { bytes: kib << 10, error_bytes: error << 10 });
            let anonymous = Anonymous { bytes: 300 << 10, peak };
            Snapshot { mappings: vec![mapping.clone()], anonymous, ..Snapshot::default() }
        };
        let peak = |peak| snapshot(peak).rss_bytes_peak().map(|range| range.map(|bytes| bytes >> 10));
        assert_eq!(peak(None), None);
        assert_eq!(peak(Some((1000, 0))), Some([1000 - 60, 1000]));
        assert_eq!(peak(Some((310, 8))), Some([310 - 60 - 8, 318]));
        assert_eq!(peak(Some((250, 0))), Some([240, 250]), "not below the end");
        let mut within = snapshot(Some((1000, 0)));
        let changes = [(1, 1000), (5, 700), (7, 900), (8, 600), (9, 300)];
        changes.iter().for_each(|&(time, kib)| within.anonymous_levels.take(time, kib << 10));
        let peak = within.rss_bytes_peak_within(6..=8, 60 << 10).map(|range| range.map(|bytes| bytes >> 10));
        assert_eq!(peak, Some([240 + 300, 240 + 300 + 60]), "300 KiB above the end of the time");
    }

    #[test]
    fn a_name_with_spaces_does_not_move_the_fields() {
        assert_eq!(minor_faults("7 (a b) c) S 1 2 3 4 5 6 777 8 9"), Some(777));
    }
}
