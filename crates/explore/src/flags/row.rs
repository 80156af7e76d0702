//! Reads a row of a JSON result back into its run configuration.

use std::collections::BTreeMap;

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{KernelVersion, KhugepagedWork, ThpMode};
use hksim_policy::Policy;
use serde::Deserialize;
use serde_json::Value;

use super::mthp::{self, Sizes};
use super::run_config::RunConfig;

/// The inputs of a row. Rows of replays have no kernel; rows of other allocators have no policy.
#[derive(Clone, Debug, Deserialize)]
pub struct Inputs {
    policy: Option<Policy>,
    touch: Touch,
    /// Absent in older results.
    #[serde(default)]
    memory_policy: MemoryPolicy,
    kernel: Option<Kernel>,
}

#[derive(Clone, Debug, Deserialize)]
struct Touch {
    rule: TouchRule,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct MemoryPolicy {
    rule: MemoryPolicyRule,
}

#[derive(Clone, Debug, Deserialize)]
struct Kernel {
    thp: Thp,
    rules: Rules,
    hugetlb_pool_pages: Option<u64>,
    memory_limit_bytes: Option<u64>,
    use_zero_page: Option<bool>,
    /// Absent in older results.
    #[serde(default)]
    khugepaged: KhugepagedRow,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct KhugepagedRow {
    work: Option<String>,
    max_ptes_none: Option<u64>,
    pages_to_scan: Option<u64>,
    scan_sleep_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Rules {
    /// Absent in older results.
    version: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Thp {
    global: String,
    /// Modes by size.
    #[serde(default)]
    sizes: BTreeMap<String, String>,
}

impl Inputs {
    /// The complete run configuration; `None` if the row has no policy.
    pub fn config(&self) -> Option<RunConfig> {
        let policy = self.policy?;
        let base =
            RunConfig { touch: Some(self.touch.rule), memory_policy: self.memory_policy.rule, ..RunConfig::of(policy) };
        Some(self.kernel.as_ref().map_or(base.clone(), |kernel| kernel.modify(base)))
    }
}

impl Kernel {
    fn modify(&self, base: RunConfig) -> RunConfig {
        RunConfig {
            kernel_version: self.rules.version.as_deref().and_then(KernelVersion::from_word),
            thp: ThpMode::from_word(&self.thp.global),
            mthp: sizes(&self.thp.sizes).and_then(|sizes| RunConfig::unexpected_sizes(&base.policy, sizes)),
            hugetlb_pool_pages: self.hugetlb_pool_pages,
            memory_limit_bytes: self.memory_limit_bytes,
            use_zero_page: self.use_zero_page,
            khugepaged: self.khugepaged.work.as_deref().and_then(KhugepagedWork::from_word),
            max_ptes_none: self.khugepaged.max_ptes_none,
            pages_to_scan: self.khugepaged.pages_to_scan,
            scan_sleep_ms: self.khugepaged.scan_sleep_ms,
            ..base
        }
    }
}

/// The run configuration with the `kernel` of a row, which is all that flags set for a memory recording.
pub fn of_kernel(kernel: &Value) -> Option<RunConfig> {
    let kernel = Kernel::deserialize(kernel).ok()?;
    Some(kernel.modify(RunConfig::of(Policy::DEFAULT)))
}

fn sizes(words: &BTreeMap<String, String>) -> Option<Sizes> {
    let words: Vec<String> = words.iter().map(|(size, mode)| format!("{size}={mode}")).collect();
    mthp::parse(&words.join(",")).ok()
}
