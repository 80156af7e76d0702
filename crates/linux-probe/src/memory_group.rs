//! A memory control group (cgroup) of one's own, with a limit: created for a measurement, removed after it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// What the names of these groups begin with; the process id and a number follow.
const PREFIX: &str = "hksim-memory-limit-";
/// How often a removal or a reading is tried again: processes leave a group, and charges are returned, asynchronously.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(2);

/// The interface of the control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupVersion {
    /// `memory.limit_in_bytes`.
    V1,
    /// `memory.max`.
    V2,
}

/// A group. Processes in it are killed when it is dropped, and the group is removed.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    version: GroupVersion,
}

impl MemoryGroup {
    /// Creates an empty group without a limit and without swap.
    ///
    /// # Errors
    /// The reason why this machine or user cannot have one.
    pub fn create() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|why| format!("/proc/self/mounts: {why}"))?;
        let (root, version) = root_of(&mounts).ok_or("no memory control groups are mounted (cgroup v1 or v2)")?;
        remove_abandoned(&root);
        let pid = std::process::id();
        let folder = (0..u32::MAX).map(|number| root.join(format!("{PREFIX}{pid}-{number}")));
        let folder = folder.into_iter().find(|folder| !folder.exists()).ok_or("no name for a control group")?;
        fs::create_dir(&folder)
            .map_err(|why| format!("cannot create a memory control group in {}: {why}", root.display()))?;
        let group = Self { folder, version };
        group.without_swap().map_err(|why| format!("the control group cannot be set up: {why}"))?;
        Ok(group)
    }

    /// Its interface.
    pub fn version(&self) -> GroupVersion {
        self.version
    }

    /// Moves a process into the group. What it has was charged to its old group and stays there: only later requests
    /// are charged to this one.
    ///
    /// # Errors
    /// The process does not exist, or may not be moved.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }

    /// Sets the limit; `None` for no limit.
    ///
    /// # Errors
    /// More than the limit is charged already.
    pub fn set_limit(&self, bytes: Option<u64>) -> io::Result<()> {
        let (file, none) = match self.version {
            GroupVersion::V1 => ("memory.limit_in_bytes", "-1"),
            GroupVersion::V2 => ("memory.max", "max"),
        };
        fs::write(self.folder.join(file), bytes.map_or(none.to_string(), |bytes| bytes.to_string()))
    }

    /// Bytes charged, with up to 64 pages for each CPU that the kernel has charged in advance.
    ///
    /// # Errors
    /// The group cannot be read.
    pub fn charged_bytes(&self) -> io::Result<u64> {
        self.number(match self.version {
            GroupVersion::V1 => "memory.usage_in_bytes",
            GroupVersion::V2 => "memory.current",
        })
    }

    /// The most bytes that were ever charged, with what the kernel had charged in advance then.
    ///
    /// # Errors
    /// The group cannot be read, or the kernel does not count them (v2 before Linux 5.19).
    pub fn charged_bytes_peak(&self) -> io::Result<u64> {
        self.number(match self.version {
            GroupVersion::V1 => "memory.max_usage_in_bytes",
            GroupVersion::V2 => "memory.peak",
        })
    }

    /// Processes of the group that were killed because of its limit.
    ///
    /// # Errors
    /// The group cannot be read.
    pub fn kills(&self) -> io::Result<u64> {
        let file = match self.version {
            GroupVersion::V1 => "memory.oom_control",
            GroupVersion::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.folder.join(file))?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        kills.ok_or_else(|| io::Error::other(format!("{file} has no count of kills")))
    }

    fn without_swap(&self) -> io::Result<()> {
        match self.version {
            GroupVersion::V1 => fs::write(self.folder.join("memory.swappiness"), "0"),
            // A kernel without swap has no such file.
            GroupVersion::V2 => match fs::write(self.folder.join("memory.swap.max"), "0") {
                Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
                _ => Ok(()),
            },
        }
    }

    fn number(&self, file: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.folder.join(file))?;
        text.trim().parse().map_err(|_| io::Error::other(format!("{file} is not a number")))
    }

    /// Kills the processes in the group.
    pub fn kill(&self) {
        let pids = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in pids.lines().filter_map(|pid| pid.parse::<libc::pid_t>().ok()) {
            // SAFETY: sends a signal; touches no memory.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            match fs::remove_dir(&self.folder) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => {}
                _ => return,
            }
            self.kill();
            thread::sleep(PAUSE);
        }
    }
}

/// Where groups with a memory limit can be created, and how.
fn root_of(mounts: &str) -> Option<(PathBuf, GroupVersion)> {
    let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let of_type = |wanted: &'static str| {
        mounts.iter().filter_map(move |mount| match mount[..] {
            [_, folder, kind, options, ..] if kind == wanted => Some((PathBuf::from(folder), options)),
            _ => None,
        })
    };
    let has_memory = |options: &str| options.split(',').any(|option| option == "memory");
    let first = of_type("cgroup").find(|(_, options)| has_memory(options)).map(|(root, _)| (root, GroupVersion::V1));
    let delegates = |root: &Path| {
        let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == "memory")
    };
    let second = || of_type("cgroup2").find(|(root, _)| delegates(root)).map(|(root, _)| (root, GroupVersion::V2));
    first.or_else(second)
}

/// Removes groups whose creator was killed. Groups that hold processes cannot be removed.
fn remove_abandoned(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // If this fails, the group is not in the way.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    #[test]
    fn the_first_version_is_used_where_it_has_the_memory_controller() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n";
        assert_eq!(root_of(mounts), Some((PathBuf::from("/c/memory"), GroupVersion::V1)));
        assert_eq!(root_of("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\nproc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn the_second_version_is_used_where_its_root_gives_the_memory_controller_to_groups() {
        let root = std::env::temp_dir().join(format!("hksim-cgroup2-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder");
        let write = |name: &str, text: &str| fs::write(root.join(name), text).expect("a file");
        let mounts = format!("cgroup2 {} cgroup2 rw,nsdelegate 0 0\n", root.display());
        write("cgroup.subtree_control", "cpu pids\n");
        assert_eq!(root_of(&mounts), None, "the root gives groups other controllers");
        write("cgroup.subtree_control", "cpu memory pids\n");
        assert_eq!(root_of(&mounts), Some((root.clone(), GroupVersion::V2)));
        // The files of a group; no process is in it, and nothing is removed.
        write("memory.current", "4096\n");
        write("memory.peak", "8192\n");
        write("memory.events", "low 0\nhigh 0\nmax 5\noom 3\noom_kill 2\noom_group_kill 1\n");
        let group = ManuallyDrop::new(MemoryGroup { folder: root.clone(), version: GroupVersion::V2 });
        let figures = [group.charged_bytes(), group.charged_bytes_peak(), group.kills()];
        assert_eq!(figures.map(|figure| figure.expect("a figure")), [4096, 8192, 2]);
        group.set_limit(Some(1 << 20)).expect("a limit");
        assert_eq!(fs::read_to_string(root.join("memory.max")).expect("a file"), "1048576");
        group.set_limit(None).expect("no limit");
        assert_eq!(fs::read_to_string(root.join("memory.max")).expect("a file"), "max");
        fs::remove_dir_all(&root).expect("the folder");
    }

    #[test]
    fn a_group_is_removed_with_the_processes_in_it() {
        let group = match MemoryGroup::create() {
            Ok(group) => group,
            Err(why) => return println!("skipped: {why}"),
        };
        let folder = group.folder.clone();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep starts");
        group.add(child.id()).expect("the child can be moved");
        group.set_limit(Some(1 << 20)).expect("a limit can be set");
        assert_eq!((folder.exists(), group.kills().expect("kills can be read")), (true, 0));
        let charged = [group.charged_bytes_peak(), group.charged_bytes()].map(|bytes| bytes.expect("a charge"));
        assert!(charged[0] >= charged[1], "{charged:?}");
        drop(group);
        assert!(!folder.exists());
        assert!(!child.wait().expect("the child ends").success());
    }
}
