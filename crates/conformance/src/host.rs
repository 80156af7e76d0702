//! The settings of this machine's kernel that the model needs.

use hksim_linux_mm::{
    Defrag, KernelConfig, KernelVersion, Khugepaged, Overcommit, PMD_ORDER, Rules, SizeMode, ThpConfig, ThpMode,
};
use hksim_linux_probe::status::Status;
use hksim_linux_probe::sysfs::{HUGETLB, THP, choice, number, text};
use thiserror::Error;

/// The kernel's configuration cannot be read, or hksim does not know it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// A file is missing or has unexpected content.
    #[error("{path}: cannot read the host's mode or limit")]
    Unreadable {
        /// The file.
        path: String,
    },
    /// A mode that hksim does not know.
    #[error("{path}: unknown mode `{mode}`")]
    UnknownMode {
        /// The file.
        path: String,
        /// The mode.
        mode: String,
    },
    /// A kernel version without known rules.
    #[error("this machine's kernel, {release}, is older than all known versions; choose one with --kernel")]
    TooOld {
        /// The kernel's release.
        release: String,
    },
}

/// The running kernel's release: `6.18.44`.
///
/// # Errors
/// /proc is not mounted.
pub fn release() -> Result<String, HostError> {
    let path = "/proc/sys/kernel/osrelease";
    text(path).ok_or(HostError::Unreadable { path: path.into() })
}

/// This machine's modes, limits and hugetlb pool, with the rules of the nearest known version.
///
/// # Errors
/// The configuration cannot be read (no /sys or /proc) or is unknown, or the kernel is older than every known version.
pub fn kernel_config() -> Result<KernelConfig, HostError> {
    let global = mode(&format!("{THP}/enabled"), ThpMode::from_word)?;
    let release = release()?;
    let Some((version, _)) = KernelVersion::nearest(&release) else { return Err(HostError::TooOld { release }) };
    let limit = |path: String| number(&path).ok_or(HostError::Unreadable { path });
    Ok(KernelConfig {
        thp: ThpConfig { global, sizes: size_modes() },
        use_zero_page: limit(format!("{THP}/use_zero_page"))? != 0,
        defrag: mode(&format!("{THP}/defrag"), Defrag::from_word)?,
        overcommit: if limit("/proc/sys/vm/overcommit_memory".into())? == 2 {
            Overcommit::Never
        } else {
            Overcommit::Allowed
        },
        khugepaged: khugepaged(),
        max_map_count: limit("/proc/sys/vm/max_map_count".into())?,
        hugetlb_pool_pages: Some(free_hugetlb_pages()),
        rules: Rules::of(version),
        ..KernelConfig::default()
    })
}

/// Whether this kernel supports names of mappings (CONFIG_ANON_VMA_NAME).
pub(crate) fn may_name_mappings() -> bool {
    // Removing the names of no pages fails with EINVAL if names are not supported.
    // SAFETY: changes nothing.
    unsafe { libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, 0usize, 0usize, 0usize) == 0 }
}

/// The mode in a file of sysfs.
fn mode<M>(path: &str, from_word: impl Fn(&str) -> Option<M>) -> Result<M, HostError> {
    let word = choice(path).ok_or_else(|| HostError::Unreadable { path: path.into() })?;
    from_word(&word).ok_or_else(|| HostError::UnknownMode { path: path.into(), mode: word })
}

/// khugepaged's settings. Those that cannot be read get the kernel's defaults.
fn khugepaged() -> Khugepaged {
    let usual = Khugepaged::default();
    let setting = |name: &str, usual: u64| number(&format!("{THP}/khugepaged/{name}")).unwrap_or(usual);
    Khugepaged {
        pages_to_scan: setting("pages_to_scan", usual.pages_to_scan),
        scan_sleep_ms: setting("scan_sleep_millisecs", usual.scan_sleep_ms),
        max_ptes_none: setting("max_ptes_none", usual.max_ptes_none),
        max_ptes_shared: setting("max_ptes_shared", usual.max_ptes_shared),
        work: usual.work,
    }
}

/// The mode of every folio size. A size without a mode file is not used, except 2 MiB, which follows the global mode.
fn size_modes() -> [SizeMode; PMD_ORDER + 1] {
    let mut sizes = ThpConfig::new(ThpMode::Madvise).sizes;
    for (order, mode) in sizes.iter_mut().enumerate() {
        let word = choice(&format!("{THP}/hugepages-{}kB/enabled", 4 << order));
        *mode = word.as_deref().and_then(SizeMode::from_word).unwrap_or(*mode);
    }
    sizes
}

/// 2 MiB pages of the pool that are in use or reserved.
pub(crate) fn taken_hugetlb_pages() -> u64 {
    let count = |name: &str| number(&format!("{HUGETLB}/{name}")).unwrap_or(0);
    (count("nr_hugepages") + count("resv_hugepages")).saturating_sub(count("free_hugepages"))
}

/// Free 2 MiB pages of the pool, including surplus pages that may be added on demand; 0 without hugetlb.
pub(crate) fn free_hugetlb_pages() -> u64 {
    let count = |name: &str| number(&format!("{HUGETLB}/{name}")).unwrap_or(0);
    let unreserved = count("free_hugepages").saturating_sub(count("resv_hugepages"));
    unreserved + count("nr_overcommit_hugepages").saturating_sub(count("surplus_hugepages"))
}

/// `CAP_IPC_LOCK`, as a bit of the effective capabilities.
const MAY_LOCK: u64 = 1 << 14;

/// Whether this process may lock memory without limit.
pub(crate) fn may_lock_memory() -> bool {
    let status = Status::of_this_process().ok();
    let capabilities = status.as_ref().and_then(|status| u64::from_str_radix(status.field("CapEff")?, 16).ok());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes only to `limit`.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) == 0 };
    capabilities.unwrap_or(0) & MAY_LOCK != 0 || is_known && limit.rlim_cur == libc::RLIM_INFINITY
}
