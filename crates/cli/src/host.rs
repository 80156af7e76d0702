//! Notes about this machine's kernel, and refusals of what it cannot serve.

use std::sync::Once;

use anyhow::{Result, bail};
use hksim_explore::flags::RunConfig;
use hksim_explore::host;
use hksim_linux_mm::{KernelConfig, KernelVersion, ThpConfig};
use hksim_policy::Policy;
use hksim_policy::vocabulary::Huge;

use crate::output::warn;

/// This machine's modes, limits and hugetlb pool, with the rules of its kernel version.
///
/// # Errors
/// /sys or /proc is missing or has unknown contents, or the kernel is older than all known versions.
pub fn kernel_config() -> Result<KernelConfig> {
    version()?;
    Ok(host::kernel_config()?)
}

/// The version whose rules are used for the running kernel. If the versions differ, the first call prints a note.
///
/// # Errors
/// The kernel is older than all known versions.
pub fn version() -> Result<KernelVersion> {
    static SAID: Once = Once::new();
    let here = host::version()?;
    if let Some(note) = here.note {
        SAID.call_once(|| warn(&note));
    }
    Ok(here.version)
}

/// Prints a note, once, if a policy asks for no huge pages but a kernel in these modes gives them.
pub fn note_unasked(policy: &Policy, thp: &ThpConfig) {
    static SAID: Once = Once::new();
    if let Some(note) = host::unasked(policy, thp) {
        SAID.call_once(|| warn(&note));
    }
}

/// What this machine's kernel lacks for the native allocator to follow a policy, with the command that sets it. Policies
/// that only give advice run anywhere; policies that expect certain modes need them.
///
/// # Errors
/// The kernel's modes cannot be read.
pub fn lacks_for(policy: &Policy) -> Result<Option<String>> {
    let lack = host::lacks_for(policy)?;
    if policy.huge == Huge::Never
        && let Ok(kernel) = kernel_config()
    {
        note_unasked(policy, &kernel.thp);
    }
    Ok(lack)
}

/// Refuses a run configuration whose policy expects other modes than this machine's kernel has.
///
/// # Errors
/// The kernel has other modes, or they cannot be read.
pub fn can_serve(config: &RunConfig) -> Result<()> {
    match lacks_for(&config.policy)? {
        Some(lack) => bail!(lack),
        None => Ok(()),
    }
}
