//! What policy flags decide: a design, and what it is run under.

use anyhow::{Context, Result, bail};
use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{KernelConfig, KernelVersion, MidSizes, PMD_ORDER, Rules, SizeMode, ThpMode};
use hksim_policy::Policy;
use hksim_policy::vocabulary::Huge;
use hksim_sim::SimReport;
use hksim_trace::header::TouchKnowledge;

use super::mthp::{self, Sizes};
use super::table::{FLAGS, Flag, Subject};
use crate::host;

/// One point of a sweep. What is `None` was not said, and is decided by trace and command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The allocator's policy.
    pub policy: Policy,
    /// How the application touches its blocks.
    pub touch: Option<TouchRule>,
    /// Whether the program's memory policies are in force.
    pub memory_policy: MemoryPolicyRule,
    /// The kernel that `--kernel` names: `Some(Host)` is this machine's with its modes.
    pub base: Option<BaseKernel>,
    /// Version whose rules the simulated kernel follows.
    pub kernel_version: Option<KernelVersion>,
    /// Mode of the simulated kernel's transparent huge pages.
    pub thp: Option<ThpMode>,
    /// Modes of its sizes of huge pages.
    pub mthp: Option<Sizes>,
    /// Huge pages in the simulated kernel's hugetlb pool.
    pub hugetlb_pool: Option<u64>,
}

/// Whose THP mode a prediction is made under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModesFrom {
    /// Nobody said: the kernel's own after boot, or what the design is about.
    Assumed,
    /// The command line.
    Flags,
    /// This machine.
    Host,
}

impl ModesFrom {
    /// Of choices that are told of in one line: what holds for all of them.
    pub fn of(choices: &[Choice]) -> ModesFrom {
        let is_host = |choice: &Choice| choice.base == Some(BaseKernel::Host);
        if choices.iter().all(|choice| choice.thp.is_some()) {
            ModesFrom::Flags
        } else if choices.iter().all(|choice| choice.thp.is_some() || is_host(choice)) {
            ModesFrom::Host
        } else {
            ModesFrom::Assumed
        }
    }
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
    pub fn of(policy: Policy) -> Choice {
        let memory_policy = MemoryPolicyRule::default();
        Choice {
            policy,
            touch: None,
            memory_policy,
            base: None,
            kernel_version: None,
            thp: None,
            mthp: None,
            hugetlb_pool: None,
        }
    }

    /// What a report was made under, everything decided.
    pub fn of_report(report: &SimReport) -> Choice {
        Choice {
            policy: report.policy,
            touch: Some(report.touch.rule),
            memory_policy: report.memory_policy.rule,
            base: None,
            kernel_version: Some(report.kernel.rules.version),
            thp: Some(report.kernel.thp.global),
            mthp: Choice::unexpected_sizes(&report.policy, report.kernel.thp.sizes),
            hugetlb_pool: report.kernel.hugetlb_pool,
        }
    }

    /// Modes of sizes that are not those which the design's `--huge` stands for.
    pub fn unexpected_sizes(policy: &Policy, sizes: Sizes) -> Option<Sizes> {
        (sizes != expected_by(policy).thp.sizes).then_some(sizes)
    }

    /// The touch rule for a trace of that knowledge: what was recorded, else every byte once.
    pub fn touch_rule(&self, knowledge: TouchKnowledge) -> TouchRule {
        self.touch.unwrap_or(if knowledge == TouchKnowledge::Assumed { TouchRule::All } else { TouchRule::Recorded })
    }

    /// The kernel to simulate: `base`, unless flags say otherwise.
    ///
    /// # Errors
    /// The host does not say how it is set up.
    pub fn kernel(&self, base: BaseKernel) -> Result<KernelConfig> {
        if base == BaseKernel::Host {
            return host::kernel_config();
        }
        let mut kernel = match self.base.unwrap_or(base) {
            BaseKernel::AsItComes => expected_by(&self.policy),
            BaseKernel::Host => host::kernel_config()?,
        };
        kernel.rules = self.kernel_version.map_or(kernel.rules, Rules::of);
        kernel.thp.global = self.thp.unwrap_or(kernel.thp.global);
        kernel.thp.sizes = self.mthp.unwrap_or(kernel.thp.sizes);
        kernel.hugetlb_pool = self.hugetlb_pool.or(kernel.hugetlb_pool);
        Ok(kernel)
    }

    /// Checks that the design and its kernel can be.
    ///
    /// # Errors
    /// Names what cannot be.
    pub fn check(&self) -> Result<()> {
        let rules = Rules::of(self.kernel_version.unwrap_or(KernelVersion::NEWEST));
        if let Some(sizes) = self.mthp.filter(mthp::has_mid_sizes)
            && rules.mid_sizes == MidSizes::Absent
        {
            let version = rules.version.word();
            bail!(
                "--mthp {}: Linux {version} has no huge pages below 2M; take --kernel 6.8 or newer",
                mthp::show(&sizes)
            );
        }
        let sizes = ["superslab", "slab", "arena"].map(|name| format!("--{name} {}", self.word(name)));
        self.policy.prepare().map(drop).with_context(|| sizes.join(" "))
    }

    /// Every flag of the policy with its value, a few a line, for the head of a table.
    pub fn policy_lines(&self) -> Vec<String> {
        const FLAGS_PER_LINE: usize = 7;
        let policy = FLAGS.iter().filter(|flag| flag.subject == Subject::Policy);
        let words: Vec<String> = policy.map(|flag| format!("{} {}", flag.name, flag.show(self))).collect();
        let lines = words.chunks(FLAGS_PER_LINE).enumerate();
        lines
            .map(|(index, words)| format!("{:<9}{}", if index == 0 { "policy" } else { "" }, words.join(", ")))
            .collect()
    }

    /// The value of a flag in words; empty for an unknown flag.
    pub fn word(&self, flag: &str) -> String {
        FLAGS.iter().find(|known| known.name == flag).map(|known| known.show(self)).unwrap_or_default()
    }
}

/// The kernel as it comes, with the modes that a policy expects.
fn expected_by(policy: &Policy) -> KernelConfig {
    let mut kernel = KernelConfig::default();
    if let Some(order) = policy.mthp_order() {
        kernel.thp.sizes[order] = SizeMode::Madvise;
        kernel.thp.sizes[PMD_ORDER] = SizeMode::Never;
    }
    if policy.huge == Huge::System {
        kernel.thp.global = ThpMode::Always;
    }
    kernel
}

/// Flags in which choices differ, in the order of the table.
pub fn varied(choices: &[Choice]) -> Vec<&'static str> {
    let differs = |flag: &&Flag| choices.windows(2).any(|pair| flag.show(&pair[0]) != flag.show(&pair[1]));
    FLAGS.iter().filter(differs).map(|flag| flag.name).collect()
}
