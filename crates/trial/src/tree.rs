//! The processes below a keeper: which they are, their processor time, and their memory.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use crate::keeper::KEEPER_ARGUMENT;

/// Numbers of all descendants of a process, the process itself excluded.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let mut found = children(of);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// The children of all threads of a process.
fn children(of: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{of}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

/// The nearest keeper above a process.
pub(crate) fn keeper_above(pid: u32) -> Option<u32> {
    let mut above = iter::successors(parent(pid), |&pid| parent(pid));
    above.find(|&pid| is_keeper(pid))
}

/// The parent of a process; `None` if it has none that this process can see.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    fields_after_name(&stat)?.nth(1)?.parse().ok().filter(|&pid| pid > 0)
}

fn is_keeper(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).nth(1) == Some(KEEPER_ARGUMENT.as_bytes())
}

/// The fields of `/proc/PID/stat` from the third, the state. The name before them, in parentheses, may contain spaces.
fn fields_after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace())
}

/// Processor time so far of all processes below a keeper: of those that live to the nanosecond, of those that have ended
/// to the clock tick.
pub(crate) fn cpu_ns(keeper: u32) -> u64 {
    let living = descendants(keeper);
    let ended = living.iter().chain([&keeper]).map(|&pid| ended_children_ns(pid));
    living.iter().map(|&pid| clock_ns(pid)).chain(ended).sum()
}

/// Processor time of a process; 0 if it has ended.
fn clock_ns(pid: u32) -> u64 {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid places for the clock and the time.
    let is_read = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if is_read { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

/// Processor time of the children for which a process has waited (`cutime` and `cstime`, proc_pid_stat(5)).
fn ended_children_ns(pid: u32) -> u64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    let Some(fields) = fields_after_name(&stat) else { return 0 };
    let ticks: u64 = fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // SAFETY: asks for a constant.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    ticks * 1_000_000_000 / ticks_per_s
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident bytes.
    pub(crate) rss_bytes: u64,
    /// Resident bytes, of which those shared with n processes count as an nth.
    pub(crate) shared_out_bytes: u64,
    /// Anonymous memory in huge pages.
    pub(crate) huge_bytes: u64,
}

/// The memory of all processes below a keeper.
pub(crate) fn memory_of_all(keeper: u32) -> Memory {
    memory_of(descendants(keeper))
}

/// The memory of some processes. Of those that may not be looked at it has nothing.
pub(crate) fn memory_of(processes: impl IntoIterator<Item = u32>) -> Memory {
    processes.into_iter().filter_map(memory).fold(Memory::default(), |sum, one| Memory {
        rss_bytes: sum.rss_bytes + one.rss_bytes,
        shared_out_bytes: sum.shared_out_bytes + one.shared_out_bytes,
        huge_bytes: sum.huge_bytes + one.huge_bytes,
    })
}

/// The memory of a process; `None` if it has ended or may not be looked at.
pub(crate) fn memory(pid: u32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    memory_in(&text)
}

fn memory_in(smaps_rollup: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = smaps_rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(Memory { rss_bytes: bytes("Rss")?, shared_out_bytes: bytes("Pss")?, huge_bytes: bytes("AnonHugePages")? })
}

/// The file that a process executes.
pub(crate) fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether a process has mapped a file; `None` if it has ended or may not be looked at.
pub(crate) fn has_mapped(pid: u32, file: &Path) -> Option<bool> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty())?;
    let name = file.as_os_str().as_encoded_bytes();
    Some(maps.split(|&byte| byte == b'\n').any(|line| line.ends_with(name)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn figures_are_read_in_bytes() {
        let text = "55d0-7ffc ---p 0 00:00 0   [rollup]\nRss:      1234 kB\nPss:       100 kB\nPss_Anon:  7 kB\n\
                    AnonHugePages:  2048 kB\n";
        let expected = Memory { rss_bytes: 1234 << 10, shared_out_bytes: 100 << 10, huge_bytes: 2 << 20 };
        assert_eq!(memory_in(text), Some(expected));
        assert_eq!(memory_in("Rss: 1 kB"), None);
    }

    #[test]
    fn grandchildren_and_their_time_are_found() {
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", &format!("({busy}; echo done; sleep 30; :) & wait")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
        let begin = Instant::now();
        let found = loop {
            let found = descendants(shell.id());
            if found.len() == 2 || begin.elapsed() > Duration::from_secs(10) {
                break found;
            }
        };
        let time = cpu_ns(shell.id());
        found.iter().for_each(|&pid| {
            // SAFETY: touches no memory; both are descendants of this test's shell, which has not waited for them.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        });
        let _ = shell.wait();
        assert_eq!(found.len(), 2, "the subshell and its sleep");
        assert!(time > 1_000_000, "{time} ns");
    }
}
