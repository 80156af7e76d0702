//! Reads a row of a JSON result back into its run configuration.

use std::collections::BTreeMap;

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::KernelVersion;
use hksim_policy::Policy;
use serde::Deserialize;

use super::mthp::{self, Sizes};
use super::run_config::RunConfig;
use super::table::{defrag_from_word, thp_from_word};

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
    use_zero_page: Option<bool>,
    defrag: Option<String>,
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
        let kernel = self.kernel.as_ref();
        let sizes = kernel.and_then(|kernel| sizes(&kernel.thp.sizes));
        Some(RunConfig {
            touch: Some(self.touch.rule),
            memory_policy: self.memory_policy.rule,
            base: None,
            kernel_version: kernel.and_then(|kernel| KernelVersion::from_word(kernel.rules.version.as_deref()?)),
            thp: kernel.and_then(|kernel| thp_from_word(&kernel.thp.global)),
            mthp: sizes.and_then(|sizes| RunConfig::unexpected_sizes(&policy, sizes)),
            hugetlb_pool_pages: kernel.and_then(|kernel| kernel.hugetlb_pool_pages),
            use_zero_page: kernel.and_then(|kernel| kernel.use_zero_page),
            defrag: kernel.and_then(|kernel| defrag_from_word(kernel.defrag.as_deref()?)),
            policy,
        })
    }
}

fn sizes(words: &BTreeMap<String, String>) -> Option<Sizes> {
    let words: Vec<String> = words.iter().map(|(size, mode)| format!("{size}={mode}")).collect();
    mthp::parse(&words.join(",")).ok()
}
