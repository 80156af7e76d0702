//! The settings of this machine's kernel that a simulation needs.

pub use hksim_conformance::{HostError, kernel_config};
use hksim_linux_mm::{Fit, KernelVersion, PMD_ORDER, SizeMode, ThpConfig, ThpMode};
use hksim_linux_probe::sysfs::THP;
use hksim_policy::Policy;
use hksim_policy::units::Size;
use hksim_policy::vocabulary::Huge;
use hksim_sim::report::huge_bytes_unasked;

use crate::flags::RunConfig;

/// The version whose rules are used for the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The version.
    pub version: KernelVersion,
    /// What to tell the user, if the kernel is another version.
    pub note: Option<String>,
}

/// The version whose rules are used for the running kernel.
///
/// # Errors
/// The kernel is older than all known versions.
pub fn version() -> Result<Version, HostError> {
    let release = hksim_conformance::release()?;
    let Some((version, fit)) = KernelVersion::nearest(&release) else { return Err(HostError::TooOld { release }) };
    let word = version.word();
    let note = match fit {
        Fit::Same => None,
        Fit::Between => Some(format!("kernel {release}: using the rules of {word}, the nearest known version")),
        Fit::NewerThanAll => Some(format!("kernel {release}: using the rules of {word}, the newest known version")),
    };
    Ok(Version { version, note })
}

/// What a kernel in these modes lacks for a policy's huge pages, with the command that sets it; `None` if nothing is
/// missing. An empty hugetlb pool is allowed, because the policy falls back.
pub fn lacks(policy: &Policy, thp: &ThpConfig) -> Option<String> {
    let file = |order: usize| format!("{THP}/hugepages-{}kB/enabled", 4 << order);
    if let Some(order) = policy.mthp_order() {
        let larger: Vec<usize> = (order + 1..=PMD_ORDER).filter(|&larger| serves_advised(thp, larger)).collect();
        if serves_advised(thp, order) && larger.is_empty() {
            return None;
        }
        let off = larger.iter().map(|&larger| format!("`echo never > {}`", file(larger)));
        let remedies: Vec<String> = [format!("`echo madvise > {}`", file(order))].into_iter().chain(off).collect();
        let size = 4 << order;
        return Some(format!("{size}K is not the largest size of huge pages that is on; {}", remedies.join(" and ")));
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

/// What to tell the user if a policy asks for no huge pages but a kernel in these modes gives them: only advice against
/// them would prevent that, and the allocator gives none.
pub fn unasked(policy: &Policy, thp: &ThpConfig) -> Option<String> {
    let bytes = huge_bytes_unasked(policy, thp)?;
    Some(format!(
        "--huge never only asks for no huge pages: in these modes the kernel gives pages of {} unasked; compare under \
         --thp madvise",
        Size(bytes)
    ))
}

/// What this machine's kernel lacks for the native allocator to follow a policy, with the command that sets it. Policies
/// that only give advice run anywhere; policies that expect certain modes need them.
///
/// # Errors
/// The kernel's modes cannot be read.
pub fn lacks_for(policy: &Policy) -> Result<Option<String>, HostError> {
    let needs_modes = policy.huge == Huge::System || policy.mthp_order().is_some();
    let lack = if needs_modes { lacks(policy, &kernel_config()?.thp) } else { None };
    Ok(lack.map(|lack| format!("--huge {}: {lack}", RunConfig::of(*policy).word("huge"))))
}

/// Whether mappings that request huge pages get folios of an order.
fn serves_advised(thp: &ThpConfig, order: usize) -> bool {
    match thp.sizes[order] {
        SizeMode::Always | SizeMode::Madvise => true,
        SizeMode::Inherit => thp.global != ThpMode::Never,
        SizeMode::Never => false,
    }
}

/// Whether all mappings get folios of an order.
fn serves_all(thp: &ThpConfig, order: usize) -> bool {
    match thp.sizes[order] {
        SizeMode::Always => true,
        SizeMode::Inherit => thp.global == ThpMode::Always,
        SizeMode::Madvise | SizeMode::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_that_nobody_asked_for_are_named() {
        let never = Policy { huge: Huge::Never, ..Policy::DEFAULT };
        let said = |policy: &Policy, mode| unasked(policy, &ThpConfig::new(mode)).unwrap_or_default();
        assert!(said(&never, ThpMode::Always).contains("pages of 2M unasked"));
        assert_eq!([said(&never, ThpMode::Madvise), said(&never, ThpMode::Never)], ["", ""]);
        assert_eq!(said(&Policy { huge: Huge::Thp, ..never }, ThpMode::Always), "");
        let mut folios = ThpConfig::new(ThpMode::Madvise);
        folios.sizes[4] = SizeMode::Always;
        assert!(unasked(&never, &folios).is_some_and(|text| text.contains("pages of 64K unasked")));
    }
}
