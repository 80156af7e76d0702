//! What a recording says about its machine and environment.

use std::collections::BTreeMap;

use hksim_linux_probe::sysfs;
use hksim_memory_trace::Machine;

/// Variables that change how a program uses memory: names, or beginnings of names.
const VARIABLES: [&str; 15] = [
    "GLIBC_TUNABLES",
    "GODEBUG",
    "GOGC",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_",
    "MIMALLOC_",
    "NODE_OPTIONS",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
    "TCMALLOC_",
];

/// The machine, for a recording with or without random addresses and huge pages.
pub fn machine(fixes_addresses: bool, disables_thp: bool) -> Machine {
    let randomize = sysfs::number("/proc/sys/kernel/randomize_va_space");
    let overcommit = sysfs::number("/proc/sys/vm/overcommit_memory");
    Machine {
        kernel_release: sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        thp_mode: sysfs::choice(&format!("{}/enabled", sysfs::THP)),
        addresses_random: !fixes_addresses && randomize != Some(0),
        overcommit_memory: overcommit.and_then(|mode| u32::try_from(mode).ok()),
        thp_disabled: disables_thp,
    }
}

/// The variables of this process that configure allocators and huge pages.
pub fn environment() -> BTreeMap<String, String> {
    let matches = |name: &str| {
        let exact = |known: &str| if known.ends_with('_') { name.starts_with(known) } else { name == known };
        VARIABLES.iter().any(|known| exact(known)) || name.ends_with("MALLOC_CONF")
    };
    std::env::vars().filter(|(name, _)| matches(name)).collect()
}
