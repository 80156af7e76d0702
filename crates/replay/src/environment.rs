//! The settings and events of this machine that affect results.

use std::fs;

use serde::{Deserialize, Serialize};

use hksim_linux_probe::damon;
use hksim_linux_probe::pressure::{reclaim_scanned_pages, thp_fallbacks};
use hksim_linux_probe::sysfs::{THP, choice, khugepaged_collapses, number, text};
use hksim_linux_probe::traps::TrapCounter;

/// The machine during a replay. Unknown values are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release.
    pub kernel_release: Option<String>,
    /// `transparent_hugepage/enabled`.
    pub thp_enabled: Option<String>,
    /// `transparent_hugepage/defrag`.
    pub thp_defrag: Option<String>,
    /// Huge-page sizes below 2 MiB that are not off, in the form `64kB=always`.
    pub mthp_enabled: Vec<String>,
    /// Whether read faults may map the huge zero page.
    pub use_zero_page: Option<u64>,
    /// `kernel.numa_balancing`.
    pub numa_balancing: Option<u64>,
    /// Bytes of swap.
    pub swap_bytes: Option<u64>,
    /// Limit of this process's memory cgroup, in bytes or `max`.
    pub memcg_max: Option<String>,
    /// Huge pages that khugepaged installed during the replay, on the whole machine.
    pub khugepaged_collapses: Option<u64>,
    /// Faults during the replay that fell back to smaller pages for lack of contiguous memory, on the whole machine.
    pub thp_fallbacks: Option<u64>,
    /// Pages that reclaim and compaction scanned during the replay, on the whole machine. A fault on a page that is
    /// being moved is taken twice.
    pub reclaim_scanned_pages: Option<u64>,
    /// Processor time of DAMON during the replay in nanoseconds, on the whole machine. It causes faults to be taken
    /// twice ([`damon`]).
    pub damon_ns: Option<u64>,
    /// Reserved huge pages of 2 MiB.
    pub nr_hugepages: Option<u64>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// `yes`, or why the trap counter cannot be opened.
    pub perf: String,
    /// Model name of the first CPU.
    pub cpu_model: Option<String>,
    /// Whether a hypervisor runs this machine.
    pub virtualised: Option<bool>,
    /// Modes and limits of the kernel that changed during the replay, in the form `thp_enabled: madvise, then always`.
    #[serde(default)]
    pub modes_changed: Vec<String>,
}

impl Environment {
    /// Reads the constant settings and the current counts.
    pub fn read() -> Environment {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
        let field = |key: &str| {
            let line = cpuinfo.as_deref()?.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        Environment {
            kernel_release: text("/proc/sys/kernel/osrelease"),
            thp_enabled: choice(&format!("{THP}/enabled")),
            thp_defrag: choice(&format!("{THP}/defrag")),
            mthp_enabled: mthp_enabled(),
            use_zero_page: number(&format!("{THP}/use_zero_page")),
            numa_balancing: number("/proc/sys/kernel/numa_balancing"),
            swap_bytes: swap_bytes(),
            memcg_max: memcg_max(),
            khugepaged_collapses: khugepaged_collapses(),
            thp_fallbacks: thp_fallbacks(),
            reclaim_scanned_pages: reclaim_scanned_pages(),
            damon_ns: damon::run_ns(),
            nr_hugepages: number("/proc/sys/vm/nr_hugepages"),
            max_map_count: number("/proc/sys/vm/max_map_count"),
            perf: TrapCounter::of_process().map_or_else(|why| why.to_string(), |_| "yes".into()),
            cpu_model: field("model name"),
            virtualised: field("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            modes_changed: Vec::new(),
        }
    }

    /// Modes and limits that changed since `earlier`, each with the old and the new value.
    pub fn changed_since(&self, earlier: &Environment) -> Vec<String> {
        let then = earlier.modes();
        let pairs = self.modes().into_iter().zip(then).filter(|(now, then)| now.1 != then.1);
        pairs.map(|((name, now), (_, then))| format!("{name}: {then}, then {now}")).collect()
    }

    /// The administrator's settings, with their names.
    fn modes(&self) -> [(&'static str, String); 7] {
        let word = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "unknown".into());
        let number = |mode: Option<u64>| mode.map_or_else(|| "unknown".into(), |mode| mode.to_string());
        let mthp = if self.mthp_enabled.is_empty() { "off".into() } else { self.mthp_enabled.join(" ") };
        [
            ("thp_enabled", word(&self.thp_enabled)),
            ("thp_defrag", word(&self.thp_defrag)),
            ("mthp_enabled", mthp),
            ("use_zero_page", number(self.use_zero_page)),
            ("numa_balancing", number(self.numa_balancing)),
            ("nr_hugepages", number(self.nr_hugepages)),
            ("max_map_count", number(self.max_map_count)),
        ]
    }

    /// Ends the observation: turns counts into differences since the start.
    pub fn finish(mut self) -> Environment {
        let since =
            |now: Option<u64>, before: Option<u64>| now.zip(before).map(|(now, before)| now.saturating_sub(before));
        // DAMON's time does not include its current time slice. Therefore this first checks whether DAMON is running,
        // and then reads the time.
        let current_slice_ns = u64::from(damon::is_running());
        let now = Environment::read();
        self.modes_changed = now.changed_since(&self);
        self.khugepaged_collapses = since(now.khugepaged_collapses, self.khugepaged_collapses);
        self.thp_fallbacks = since(now.thp_fallbacks, self.thp_fallbacks);
        self.reclaim_scanned_pages = since(now.reclaim_scanned_pages, self.reclaim_scanned_pages);
        self.damon_ns = since(now.damon_ns, self.damon_ns).map(|ns| ns.max(current_slice_ns));
        self
    }
}

/// Pages per folio, for every size between 4K and 2M that is not off.
pub(crate) fn folio_pages() -> Vec<u64> {
    let kilobytes = |size: &String| size.split_once("kB=")?.0.parse::<u64>().ok();
    mthp_enabled().iter().filter_map(kilobytes).map(|kilobytes| kilobytes / 4).collect()
}

/// The sizes are tried one by one: `opendir` would call the `malloc` that a replay measures.
fn mthp_enabled() -> Vec<String> {
    let sizes = (3..11).map(|order| format!("{}kB", 1 << order));
    let mut enabled: Vec<String> = sizes
        .filter_map(|size| {
            let mode = choice(&format!("{THP}/hugepages-{size}/enabled")).filter(|mode| mode != "never")?;
            Some(format!("{size}={mode}"))
        })
        .collect();
    enabled.sort();
    enabled
}

fn swap_bytes() -> Option<u64> {
    let meminfo = text("/proc/meminfo")?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("SwapTotal:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

fn memcg_max() -> Option<String> {
    let groups = text("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    text(&format!("/sys/fs/cgroup{}/memory.max", group.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_are_listed_and_changed_counts_are_not() {
        let before = Environment { thp_enabled: Some("madvise".into()), damon_ns: Some(1), ..Environment::default() };
        assert_eq!(before.changed_since(&before), [""; 0]);
        let mthp_enabled = vec!["64kB=always".into()];
        let after =
            Environment { thp_enabled: Some("always".into()), mthp_enabled, damon_ns: Some(9), ..before.clone() };
        assert_eq!(
            after.changed_since(&before),
            ["thp_enabled: madvise, then always", "mthp_enabled: off, then 64kB=always"]
        );
    }
}
