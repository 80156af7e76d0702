//! The least limit of a memory control group that a recorded process survives.

use std::path::Path;

use hksim_linux_mm::{KernelConfig, MemoryLimit, PAGE_BYTES, least_limit};

use crate::family::{Family, FamilyError};
use crate::setting::Setting;
use crate::simulate::{Detail, simulate_with};
use crate::unseen_writes::AfterFree;

/// Limits that are simulated in one pass over the recording.
const LIMITS_AT_A_TIME: u64 = 16;

/// The least limit that a recording survives under each setting (see [`least_limit`]); `None` for settings without a
/// limit. Settings that differ in their limit only are searched once. `after_free`: writes that the recording does not have.
///
/// # Errors
/// The recording cannot be read.
pub(crate) fn least_limits(
    path: &Path,
    settings: &[Setting],
    after_free: AfterFree,
) -> Result<Vec<Option<u64>>, FamilyError> {
    let mut known: Vec<(Setting, u64)> = Vec::new();
    let mut least = Vec::new();
    for setting in settings {
        if setting.kernel.memory_limit_bytes.is_none() {
            least.push(None);
            continue;
        }
        let unlimited = limited(setting, u64::MAX);
        let found = match known.iter().find(|(other, _)| *other == unlimited) {
            Some(&(_, bytes)) => bytes,
            None => search(path, &unlimited, after_free)?,
        };
        known.push((unlimited, found));
        least.push(Some(found));
    }
    Ok(least)
}

fn search(path: &Path, unlimited: &Setting, after_free: AfterFree) -> Result<u64, FamilyError> {
    let under = |settings: &[Setting]| -> Result<Vec<MemoryLimit>, FamilyError> {
        let result = simulate_with(Family::open(path)?, settings, Detail::Figures, after_free)?;
        Ok(result.predictions.into_iter().filter_map(|prediction| prediction.memory_limit).collect())
    };
    let met = under(std::slice::from_ref(unlimited))?;
    let peak_bytes = met.iter().map(|met| met.pressure.charged_bytes_peak).max().unwrap_or_default();
    let pages = least_limit(0, peak_bytes / PAGE_BYTES, LIMITS_AT_A_TIME, |pages| {
        let settings: Vec<Setting> = pages.iter().map(|pages| limited(unlimited, pages * PAGE_BYTES)).collect();
        Ok::<_, FamilyError>(under(&settings)?.iter().map(MemoryLimit::survives).collect())
    })?;
    Ok(pages * PAGE_BYTES)
}

fn limited(setting: &Setting, limit_bytes: u64) -> Setting {
    let kernel = KernelConfig { memory_limit_bytes: Some(limit_bytes), ..setting.kernel.clone() };
    Setting { kernel, ..setting.clone() }
}
