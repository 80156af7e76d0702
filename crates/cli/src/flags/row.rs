//! Reads a row of a JSON result back into its run configuration.

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{KernelVersion, PMD_ORDER};
use hksim_policy::Policy;
use serde::Deserialize;

use super::mthp::{self, Sizes};
use super::run_config::RunConfig;
use super::table::thp_from_word;

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
    hugetlb_pool: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Rules {
    /// Absent in older results.
    version: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Thp {
    global: String,
    /// By folio order.
    #[serde(default)]
    sizes: Vec<String>,
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
            hugetlb_pool: kernel.and_then(|kernel| kernel.hugetlb_pool),
            policy,
        })
    }
}

fn sizes(words: &[String]) -> Option<Sizes> {
    let modes: Vec<_> = words.iter().map(|word| mthp::mode_from_word(word)).collect::<Option<_>>()?;
    <[_; PMD_ORDER + 1]>::try_from(modes).ok()
}
