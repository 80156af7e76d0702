//! The machine's processors, and pinning to one of them.

use std::ffi::c_int;

/// Pins the calling thread, and the processes that it forks later, to its current processor. They then use only that
/// processor's per-CPU batches (pages on their way to the kernel's lists). False if the system does not allow it.
pub fn pin_to_current_processor() -> bool {
    pin_here(0)
}

/// Pins another process, and those that it forks later, to the current processor of the calling thread. False if the
/// system does not allow it.
pub fn pin_process_here(pid: u32) -> bool {
    libc::pid_t::try_from(pid).is_ok_and(|pid| pid > 0 && pin_here(pid))
}

fn pin_here(pid: libc::pid_t) -> bool {
    // SAFETY: the call has no arguments.
    let here = unsafe { libc::sched_getcpu() };
    let Ok(here) = usize::try_from(here) else { return false };
    // SAFETY: a set is plain bits, and empty when zeroed.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if here >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: the set has a bit for each number below CPU_SETSIZE.
    unsafe { libc::CPU_SET(here, &mut set) };
    // SAFETY: the set is initialised and outlives the call.
    unsafe { libc::sched_setaffinity(pid, size_of_val(&set), &raw const set) == 0 }
}

/// The processors in use, from a list such as `0-3,6`.
pub fn online() -> Vec<c_int> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let known: Vec<c_int> = text.trim().split(',').filter_map(range).flatten().collect();
    if known.is_empty() { vec![0] } else { known }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pinned_thread_stays_on_its_processor() {
        std::thread::spawn(|| {
            if !super::pin_to_current_processor() {
                return eprintln!("skipped: sched_setaffinity is not allowed");
            }
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("the thread's status");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
            assert!(list.trim().parse::<u32>().is_ok(), "one processor: {list}");
        })
        .join()
        .expect("no panic");
    }
}
