//! The machine that costs belong to.

use hksim_linux_probe::sysfs;

use crate::profile::Profile;

/// What distinguishes machines whose costs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Number of processors.
    pub processors: u32,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        Machine {
            processor: processor(),
            processors: std::thread::available_parallelism().map_or(1, |number| number.get() as u32),
            kernel: sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string(),
        }
    }
}

fn processor() -> String {
    let info = sysfs::text("/proc/cpuinfo").unwrap_or_default();
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.trim() == "model name").map_or("unknown".into(), |(_, name)| name.trim().to_string())
}

impl Profile {
    /// Whether this is a profile of a machine: the same processor and kernel. A process that may use fewer processors is
    /// on the same machine.
    pub fn is_of(&self, machine: &Machine) -> bool {
        self.machine == machine.processor && self.kernel == machine.kernel
    }
}
