//! How this machine's kernel is set up, as far as a simulation of it needs to know.

use std::sync::Once;

use anyhow::{Result, bail};
use hksim_linux_mm::{Fit, KernelConfig, KernelVersion, PMD_ORDER, SizeMode, ThpConfig, ThpMode};
use hksim_linux_probe::sysfs::THP;
use hksim_policy::Policy;
use hksim_policy::vocabulary::Huge;

use crate::flags::Choice;
use crate::output::note;

/// This machine's modes, limits and hugetlb pool, with the rules of its version.
///
/// # Errors
/// The kernel does not say (no /sys or /proc), says something unknown, or is older than every version known.
pub fn kernel_config() -> Result<KernelConfig> {
    version()?;
    Ok(hksim_conformance::kernel_config()?)
}

/// The version whose rules stand for the running kernel. Where that is another version, the first call says so.
///
/// # Errors
/// A kernel older than every version known.
pub fn version() -> Result<KernelVersion> {
    static SAID: Once = Once::new();
    let release = hksim_conformance::release()?;
    let Some((version, fit)) = KernelVersion::nearest(&release) else {
        bail!("this machine's kernel, {release}, is older than those whose rules are known; name one with --kernel");
    };
    let word = version.word();
    match fit {
        Fit::Same => {}
        Fit::Between => {
            SAID.call_once(|| note(&format!("kernel {release}: by the rules of {word}, the nearest known")))
        }
        Fit::NewerThanAll => {
            SAID.call_once(|| note(&format!("kernel {release}: by the rules of {word}, the newest known")));
        }
    }
    Ok(version)
}

/// What a kernel in these modes lacks for a design's huge pages, with the mend; `None` where it can serve them. (That the
/// hugetlb pool may be empty is no lack: the design falls back.)
pub fn lacks(policy: &Policy, thp: &ThpConfig) -> Option<String> {
    let file = |order: usize| format!("{THP}/hugepages-{}kB/enabled", 4 << order);
    if let Some(order) = policy.mthp_order() {
        let larger: Vec<usize> = (order + 1..=PMD_ORDER).filter(|&larger| serves_advised(thp, larger)).collect();
        if serves_advised(thp, order) && larger.is_empty() {
            return None;
        }
        let off = larger.iter().map(|&larger| format!("`echo never > {}`", file(larger)));
        let mends: Vec<String> = [format!("`echo madvise > {}`", file(order))].into_iter().chain(off).collect();
        let size = 4 << order;
        return Some(format!("{size}K is not the largest size of huge pages that is on; {}", mends.join(" and ")));
    }
    match policy.huge {
        Huge::System if !serves_all(thp, PMD_ORDER) => {
            Some(format!("transparent huge pages are not in mode always; `echo always > {THP}/enabled`"))
        }
        Huge::Thp if !serves_advised(thp, PMD_ORDER) => {
            Some(format!("transparent huge pages are off; `echo madvise > {THP}/enabled`"))
        }
        _ => None,
    }
}

/// What this machine's kernel lacks for the native allocator to follow a policy, with the command that sets it. Plain advice
/// can be given anywhere; policies that expect certain modes need them.
///
/// # Errors
/// The kernel's modes cannot be read.
pub fn lacks_for(policy: &Policy) -> Result<Option<String>> {
    let needs_modes = policy.huge == Huge::System || policy.mthp_order().is_some();
    let lack = if needs_modes { lacks(policy, &kernel_config()?.thp) } else { None };
    Ok(lack.map(|lack| format!("--huge {}: {lack}", Choice::of(*policy).word("huge"))))
}

/// Refuses a choice whose policy expects other modes than this machine's kernel has.
///
/// # Errors
/// The kernel has other modes, or they cannot be read.
pub fn can_serve(choice: &Choice) -> Result<()> {
    match lacks_for(&choice.policy)? {
        Some(lack) => bail!(lack),
        None => Ok(()),
    }
}

/// Whether folios of an order go to mappings that ask for huge pages.
fn serves_advised(thp: &ThpConfig, order: usize) -> bool {
    match thp.sizes[order] {
        SizeMode::Always | SizeMode::Madvise => true,
        SizeMode::Inherit => thp.global != ThpMode::Never,
        SizeMode::Never => false,
    }
}

/// Whether folios of an order go to every mapping.
fn serves_all(thp: &ThpConfig, order: usize) -> bool {
    match thp.sizes[order] {
        SizeMode::Always => true,
        SizeMode::Inherit => thp.global == ThpMode::Always,
        SizeMode::Madvise | SizeMode::Never => false,
    }
}
