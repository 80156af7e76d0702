//! How this machine's kernel is set up, as far as a simulation of it needs to know.

use std::fs;
use std::sync::Once;

use anyhow::{Context, Result, bail};
use hksim_drive::Huge;
use hksim_sim::kernel::{BLOCK_ORDER, Fit, KernelConfig, KernelVersion, Rules, SizeMode, ThpConfig, ThpMode};

use crate::output::note;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// This machine's modes, limits and hugetlb pool, with the rules of its version.
///
/// # Errors
/// The kernel does not say (no /sys or /proc), or says something unknown.
pub fn kernel_config() -> Result<KernelConfig> {
    let mode = match chosen(&format!("{THP}/enabled"))?.as_str() {
        "always" => ThpMode::Always,
        "madvise" => ThpMode::Madvise,
        "never" => ThpMode::Never,
        other => bail!("{THP}/enabled: unknown mode `{other}`; name one with --thp"),
    };
    Ok(KernelConfig {
        thp: ThpConfig { global: mode, sizes: size_modes() },
        use_zero_page: number(&format!("{THP}/use_zero_page"))? != 0,
        max_map_count: number("/proc/sys/vm/max_map_count")?,
        hugetlb_pool: Some(free_hugetlb_pages()),
        rules: Rules::of(version()?),
        ..KernelConfig::default()
    })
}

/// The version whose rules stand for the running kernel. Where that is another version, the first call says so.
///
/// # Errors
/// A kernel older than every version known.
pub fn version() -> Result<KernelVersion> {
    static SAID: Once = Once::new();
    let path = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(path).with_context(|| format!("{path}: cannot read this kernel's version"))?;
    let release = release.trim();
    let Some((version, fit)) = KernelVersion::nearest(release) else {
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
pub fn lacks(huge: Huge, thp: &ThpConfig) -> Option<String> {
    let file = |order: usize| format!("{THP}/hugepages-{}kB/enabled", 4 << order);
    if let Some(order) = huge.mthp_order() {
        let larger: Vec<usize> = (order + 1..=BLOCK_ORDER).filter(|&larger| serves_advised(thp, larger)).collect();
        if serves_advised(thp, order) && larger.is_empty() {
            return None;
        }
        let off = larger.iter().map(|&larger| format!("`echo never > {}`", file(larger)));
        let mends: Vec<String> = [format!("`echo madvise > {}`", file(order))].into_iter().chain(off).collect();
        let size = 4 << order;
        return Some(format!("{size}K is not the largest size of huge pages that is on; {}", mends.join(" and ")));
    }
    match huge {
        Huge::ThpAlways if !serves_all(thp, BLOCK_ORDER) => {
            Some(format!("transparent huge pages are not in mode always; `echo always > {THP}/enabled`"))
        }
        Huge::Thp if !serves_advised(thp, BLOCK_ORDER) => {
            Some(format!("transparent huge pages are off; `echo madvise > {THP}/enabled`"))
        }
        _ => None,
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

/// Modes of every folio size; kernels without such a file never use the size (2 MiB: follow the global mode).
fn size_modes() -> [SizeMode; BLOCK_ORDER + 1] {
    let mut sizes = ThpConfig::new(ThpMode::Madvise).sizes;
    for (order, mode) in sizes.iter_mut().enumerate() {
        let word = chosen(&format!("{THP}/hugepages-{}kB/enabled", 4 << order));
        *mode = match word.as_deref() {
            Ok("always") => SizeMode::Always,
            Ok("madvise") => SizeMode::Madvise,
            Ok("inherit") => SizeMode::Inherit,
            Ok("never") => SizeMode::Never,
            _ => continue,
        };
    }
    sizes
}

/// Free 2 MiB pages of the pool, those that may be added on demand included; 0 without hugetlb.
fn free_hugetlb_pages() -> u64 {
    let folder = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let count = |name: &str| number(&format!("{folder}/{name}")).unwrap_or(0);
    let reserved = count("free_hugepages").saturating_sub(count("resv_hugepages"));
    reserved + count("nr_overcommit_hugepages").saturating_sub(count("surplus_hugepages"))
}

/// The word in brackets of a file like `always [madvise] never`.
fn chosen(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("{path}: cannot read the host's mode"))?;
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    Ok(word.unwrap_or(text.trim()).to_string())
}

fn number(path: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("{path}: cannot read the host's limit"))?;
    text.trim().parse().with_context(|| format!("{path}: not a number"))
}
