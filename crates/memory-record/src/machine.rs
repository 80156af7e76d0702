//! What a recording says about its machine and environment.

use std::collections::BTreeMap;

use hksim_linux_probe::sysfs;
use hksim_memory_trace::{Inherited, Limits, Machine, ThpDisabled};

use crate::recorder::HugePages;

/// Variables that configure an allocator or a runtime, and cannot name code: names, or beginnings of names.
const ALLOCATOR_VARIABLES: [&str; 10] = [
    "GLIBC_TUNABLES",
    "GODEBUG",
    "GOGC",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "MALLOC_",
    "MIMALLOC_",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
    "TCMALLOC_",
];

/// Other variables that change how a program uses memory. They can make it load code.
const LOADER_VARIABLES: [&str; 5] =
    ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LD_LIBRARY_PATH", "LD_PRELOAD", "NODE_OPTIONS"];

/// What programs inherit from this process.
pub fn inherited_here() -> Inherited {
    inherited(HugePages::Off)
}

/// What recorded programs inherit from this process, with the setting that the recording gives them if it leaves huge pages on.
pub(crate) fn inherited(huge_pages: HugePages) -> Inherited {
    // SAFETY: calls without pointers that change nothing.
    let (thp, personality) =
        unsafe { (libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0), libc::personality(0xffff_ffff)) };
    let thp_disable = match huge_pages {
        HugePages::Off => ThpDisabled::of_number(thp),
        HugePages::With(setting) => setting,
    };
    let limits = Limits {
        stack_bytes: limit(libc::RLIMIT_STACK),
        locked_bytes: limit(libc::RLIMIT_MEMLOCK),
        address_space_bytes: limit(libc::RLIMIT_AS),
    };
    Inherited { thp_disable, thp_chosen: false, personality: personality.max(0) as u32, limits: Some(limits) }
}

/// A soft limit of this process; `None` without one.
fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel writes to the value.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Whether a personality switches random addresses off.
pub fn has_fixed_addresses(personality: u32) -> bool {
    personality & libc::ADDR_NO_RANDOMIZE as u32 != 0
}

/// The machine, for a recording with or without random addresses and huge pages.
pub fn machine(random_addresses: bool, disables_thp: bool) -> Machine {
    let randomize = sysfs::number("/proc/sys/kernel/randomize_va_space");
    let overcommit = sysfs::number("/proc/sys/vm/overcommit_memory");
    Machine {
        kernel_release: sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        thp_mode: sysfs::choice(&format!("{}/enabled", sysfs::THP)),
        addresses_random: random_addresses && randomize != Some(0),
        overcommit_memory: overcommit.and_then(|mode| u32::try_from(mode).ok()),
        thp_disabled: disables_thp,
    }
}

/// The variables of this process that change how a program uses memory.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars().filter(|(name, _)| is_recorded_variable(name)).collect()
}

/// Whether a variable changes how a program uses memory.
pub fn is_recorded_variable(name: &str) -> bool {
    is_allocator_variable(name) || LOADER_VARIABLES.contains(&name)
}

/// Whether a variable only configures an allocator or a runtime, so that it may come from a file that is not trusted.
pub fn is_allocator_variable(name: &str) -> bool {
    let is = |known: &str| if known.ends_with('_') { name.starts_with(known) } else { name == known };
    ALLOCATOR_VARIABLES.iter().any(|known| is(known)) || name.ends_with("MALLOC_CONF")
}

#[cfg(test)]
mod tests {
    use super::is_allocator_variable;

    #[test]
    fn variables_that_load_code_do_not_come_from_files() {
        for name in ["GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MIMALLOC_ALLOW_THP", "_RJEM_MALLOC_CONF", "GOGC"] {
            assert!(is_allocator_variable(name), "{name}");
        }
        for name in ["LD_PRELOAD", "LD_AUDIT", "JAVA_TOOL_OPTIONS", "NODE_OPTIONS", "PATH", "GOGCX", "XMALLOC_", ""] {
            assert!(!is_allocator_variable(name), "{name}");
        }
    }
}
