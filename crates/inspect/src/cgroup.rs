//! The limits of memory of a process's control group.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_linux_probe::sysfs::number;
use serde::{Deserialize, Serialize};

/// The control group that accounts a process's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// 1 or 2.
    pub version: u32,
    /// Its path, as the process's own namespace shows it.
    pub path: String,
    /// Memory that its processes use; `None` if its files are not visible here.
    pub used_bytes: Option<u64>,
    /// The smallest limit of the group and of those above it; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// The group with that limit.
    pub limit_path: Option<String>,
    /// From which use on processes are slowed down (`memory.high`, version 2).
    pub high_bytes: Option<u64>,
    /// What happened at the limits: `memory.events` of version 2; `failcnt` and `oom_kill` of version 1.
    pub events: BTreeMap<String, u64>,
}

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// Limits from here on are none: version 1 writes the largest multiple of a page.
const UNLIMITED: u64 = i64::MAX as u64 / 4096 * 4096;

impl Cgroup {
    /// The group in `/proc/PID/cgroup`; `None` if no group accounts memory.
    pub fn of(text: &str) -> Option<Self> {
        let line = |wanted: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            lines.find(|(controllers, _)| controllers.split(',').any(|each| each == wanted)).map(|(_, path)| path)
        };
        let root = Path::new(ROOT);
        match line("memory") {
            Some(path) => Some(Self::read(1, path, &root.join("memory"))),
            None => {
                let root = [root.to_path_buf(), root.join("unified")].into_iter().find(|root| has_memory(root))?;
                Some(Self::read(2, line("")?, &root))
            }
        }
    }

    fn read(version: u32, path: &str, root: &Path) -> Self {
        let [used, limit] = match version {
            1 => ["memory.usage_in_bytes", "memory.limit_in_bytes"],
            _ => ["memory.current", "memory.max"],
        };
        let folder = under(root, path);
        let above = folder.ancestors().take_while(|folder| folder.starts_with(root));
        let limits = above.filter_map(|folder| Some((bytes(&folder.join(limit))?, folder)));
        let least = limits.min_by_key(|(bytes, _)| *bytes);
        let shown = |folder: &Path| format!("/{}", folder.strip_prefix(root).unwrap_or(folder).display());
        Self {
            version,
            path: path.to_string(),
            used_bytes: bytes(&folder.join(used)),
            limit_bytes: least.map(|(bytes, _)| bytes),
            limit_path: least.map(|(_, folder)| shown(folder)),
            high_bytes: bytes(&folder.join("memory.high")),
            events: events(&folder),
        }
    }
}

fn has_memory(root: &Path) -> bool {
    fs::read_to_string(root.join("cgroup.controllers")).is_ok_and(|text| text.split_whitespace().any(|c| c == "memory"))
}

/// The folder of a group. A path that leads out of this namespace is that of the root.
fn under(root: &Path, path: &str) -> PathBuf {
    let path = path.trim_start_matches('/');
    if path.split('/').any(|part| part == "..") { root.to_path_buf() } else { root.join(path) }
}

/// The number in a file; `None` for `max`, and for what version 1 writes instead.
fn bytes(path: &Path) -> Option<u64> {
    number(path.to_str()?).filter(|&bytes| bytes < UNLIMITED)
}

fn events(folder: &Path) -> BTreeMap<String, u64> {
    let mut events: BTreeMap<String, u64> = ["memory.events", "memory.oom_control"]
        .into_iter()
        .filter_map(|file| fs::read_to_string(folder.join(file)).ok())
        .flat_map(|text| {
            let pair = |line: &str| Some((line.split_once(' ')?.0.to_string(), line.split_once(' ')?.1.parse().ok()?));
            text.lines().filter_map(pair).collect::<Vec<_>>()
        })
        .collect();
    // Settings, not events.
    events.retain(|name, _| name != "oom_kill_disable" && name != "under_oom");
    events.extend(bytes(&folder.join("memory.failcnt")).map(|count| ("failcnt".to_string(), count)));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_above_a_group_counts() {
        let root = std::env::temp_dir().join(format!("hksim-cgroup-{}", std::process::id()));
        let folder = root.join("a/b");
        fs::create_dir_all(&folder).expect("a folder");
        let write = |path: &str, text: &str| fs::write(root.join(path), text).expect("a file");
        write("a/memory.max", "4096000\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "8192\n");
        write("a/b/memory.events", "low 0\noom_kill 2\n");
        let group = Cgroup::read(2, "/a/b", &root);
        let old = Cgroup::read(1, "/a/b", &root);
        fs::remove_dir_all(&root).expect("the folder");
        assert_eq!((group.limit_bytes, group.limit_path.as_deref()), (Some(4_096_000), Some("/a")));
        assert_eq!((group.used_bytes, group.high_bytes, group.events["oom_kill"]), (Some(8192), None, 2));
        assert_eq!((old.used_bytes, old.limit_bytes), (None, None));
    }

    #[test]
    fn a_path_out_of_the_namespace_is_the_root() {
        assert_eq!(under(Path::new("/r"), "/../x"), Path::new("/r"));
        assert_eq!(under(Path::new("/r"), "/a"), Path::new("/r/a"));
    }
}
