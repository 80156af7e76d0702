//! What policy flags decide: a design, and what it is run under.

use anyhow::{Context, Result};
use hksim_drive::{Design, Huge, PolicyRule, TouchRule};
use hksim_sim::SimReport;
use hksim_sim::kernel::{BLOCK_ORDER, KernelConfig, KernelVersion, Rules, SizeMode, ThpMode};
use hksim_trace::header::Touch;

use super::table::{FLAGS, Subject};
use crate::host;

/// One point of a sweep. What is `None` was not said, and is decided by trace and command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The design.
    pub design: Design,
    /// How the application touches its blocks.
    pub touch: Option<TouchRule>,
    /// Whether the program's memory policies are in force.
    pub memory_policy: PolicyRule,
    /// Version whose rules the simulated kernel follows.
    pub kernel_version: Option<KernelVersion>,
    /// Mode of the simulated kernel's transparent huge pages.
    pub thp: Option<ThpMode>,
    /// Huge pages in the simulated kernel's hugetlb pool.
    pub hugetlb_pool: Option<u64>,
}

/// The kernel that flags start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKernel {
    /// Linux 6.18 as it comes, THP by madvise (or as the design needs it), hugetlb pool unlimited: for predictions about any machine.
    AsItComes,
    /// With this machine's modes, limits and pool: for predictions that are checked here.
    Host,
}

impl Choice {
    /// A choice that says nothing beyond its design.
    pub fn of(design: Design) -> Choice {
        let memory_policy = PolicyRule::default();
        Choice { design, touch: None, memory_policy, kernel_version: None, thp: None, hugetlb_pool: None }
    }

    /// What a report was made under, everything decided.
    pub fn of_report(report: &SimReport) -> Choice {
        Choice {
            design: report.policy.clone(),
            touch: Some(report.touch.rule),
            memory_policy: report.memory_policy.rule,
            kernel_version: Some(report.kernel.rules.version),
            thp: Some(report.kernel.thp.global),
            hugetlb_pool: report.kernel.hugetlb_pool,
        }
    }

    /// The touch rule for a trace of that knowledge: what was recorded, else every byte once.
    pub fn touch_rule(&self, knowledge: Touch) -> TouchRule {
        self.touch.unwrap_or(if knowledge == Touch::Assumed { TouchRule::All } else { TouchRule::Recorded })
    }

    /// The kernel to simulate.
    ///
    /// # Errors
    /// The host does not say how it is set up.
    pub fn kernel(&self, base: BaseKernel) -> Result<KernelConfig> {
        let mut kernel = match base {
            BaseKernel::AsItComes => asked_for(self.design.huge),
            BaseKernel::Host => host::kernel_config()?,
        };
        kernel.rules = self.kernel_version.map_or(kernel.rules, Rules::of);
        kernel.thp.global = self.thp.unwrap_or(kernel.thp.global);
        kernel.hugetlb_pool = self.hugetlb_pool.or(kernel.hugetlb_pool);
        Ok(kernel)
    }

    /// Checks that the design can be.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn check(&self) -> Result<()> {
        let sizes = ["superslab", "slab", "arena"].map(|name| format!("--{name} {}", self.word(name)));
        self.design.plan().map(drop).with_context(|| sizes.join(" "))
    }

    /// Every flag of the policy with its value, a few a line, for the head of a table.
    pub fn policy_lines(&self) -> Vec<String> {
        const FLAGS_PER_LINE: usize = 7;
        let policy = FLAGS.iter().filter(|flag| flag.subject == Subject::Policy);
        let words: Vec<String> = policy.map(|flag| format!("{} {}", flag.name, (flag.show)(self))).collect();
        let lines = words.chunks(FLAGS_PER_LINE).enumerate();
        lines
            .map(|(index, words)| format!("{:<9}{}", if index == 0 { "policy" } else { "" }, words.join(", ")))
            .collect()
    }

    /// The value of a flag in words; empty for an unknown flag.
    pub fn word(&self, flag: &str) -> String {
        FLAGS.iter().find(|known| known.name == flag).map(|known| (known.show)(self)).unwrap_or_default()
    }
}

/// The kernel as it comes, with the modes that a design is about.
fn asked_for(huge: Huge) -> KernelConfig {
    let mut kernel = KernelConfig::default();
    if let Some(order) = huge.mthp_order() {
        kernel.thp.sizes[order] = SizeMode::Madvise;
        kernel.thp.sizes[BLOCK_ORDER] = SizeMode::Never;
    }
    if huge == Huge::ThpAlways {
        kernel.thp.global = ThpMode::Always;
    }
    kernel
}

/// Flags in which choices differ, in the order of the table.
pub fn varied(choices: &[Choice]) -> Vec<&'static str> {
    let differs = |show: fn(&Choice) -> String| choices.windows(2).any(|pair| show(&pair[0]) != show(&pair[1]));
    FLAGS.iter().filter(|flag| differs(flag.show)).map(|flag| flag.name).collect()
}
