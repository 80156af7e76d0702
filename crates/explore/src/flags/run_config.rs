//! The configuration of one run: a policy, the program's behaviour and the kernel to simulate.

use hksim_conformance::{HostError, kernel_config};
use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{KernelConfig, KernelVersion, KhugepagedWork, MthpSupport, PMD_ORDER, Rules, SizeMode, ThpMode};
use hksim_policy::vocabulary::Huge;
use hksim_policy::{Policy, PolicyError};
use hksim_sim::SimReport;
use hksim_trace::header::TouchSource;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::mthp::{self, Sizes};
use super::table::{FLAGS, Flag, Subject};
use crate::described::Described;

/// The configuration of one run, which is one point of a sweep. Fields that are `None` were not given; the trace and
/// the command decide them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// The allocator's policy.
    pub policy: Policy,
    /// How the application touches its blocks.
    pub touch: Option<TouchRule>,
    /// Whether the program's recorded memory policies apply.
    pub memory_policy: MemoryPolicyRule,
    /// The kernel that `--kernel` names: `Some(Host)` is this machine's kernel with its modes.
    pub base: Option<BaseKernel>,
    /// The version whose rules the simulated kernel follows.
    pub kernel_version: Option<KernelVersion>,
    /// The simulated kernel's mode of transparent huge pages.
    pub thp: Option<ThpMode>,
    /// The simulated kernel's mode of each huge-page size.
    pub mthp: Option<Sizes>,
    /// Huge pages in the simulated kernel's hugetlb pool.
    pub hugetlb_pool_pages: Option<u64>,
    /// The limit of the program's memory control group.
    pub memory_limit_bytes: Option<u64>,
    /// Whether read faults may map the simulated kernel's huge zero page.
    pub use_zero_page: Option<bool>,
    /// What the prediction says about khugepaged's work.
    pub khugepaged: Option<KhugepagedWork>,
    /// khugepaged's limit of absent pages.
    pub max_ptes_none: Option<u64>,
    /// Pages that khugepaged scans at a time.
    pub pages_to_scan: Option<u64>,
    /// khugepaged's sleep between two scans.
    pub scan_sleep_ms: Option<u64>,
}

/// A run configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The kernel version has no huge pages of these sizes.
    #[error("--mthp {sizes}: Linux {version} has no huge pages below 2M; use --kernel 6.8 or newer")]
    NoMthp {
        /// The sizes with their modes.
        sizes: String,
        /// The version.
        version: &'static str,
    },
    /// The policy is invalid.
    #[error("{given}")]
    Policy {
        /// The flags that contradict each other, with their values.
        given: String,
        /// Why.
        #[source]
        why: PolicyError,
    },
}

/// Where the THP mode of a prediction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModesFrom {
    /// Not given: the kernel's default after boot, or the mode that the policy expects.
    Assumed,
    /// The command line.
    Flags,
    /// This machine.
    Host,
}

impl ModesFrom {
    /// The source to print if several run configurations are described in one line.
    pub fn of(configs: &[RunConfig]) -> ModesFrom {
        let is_host = |config: &RunConfig| config.base == Some(BaseKernel::Host);
        if configs.iter().all(|config| config.thp.is_some()) {
            ModesFrom::Flags
        } else if configs.iter().all(|config| config.thp.is_some() || is_host(config)) {
            ModesFrom::Host
        } else {
            ModesFrom::Assumed
        }
    }
}

/// The kernel that the flags modify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKernel {
    /// Linux 6.18 with default settings: THP by madvise (or as the policy expects) and an unlimited hugetlb pool. Used
    /// for predictions about any machine.
    AsItComes,
    /// This machine's modes, limits and pool. Used for predictions that are checked here.
    Host,
}

impl RunConfig {
    /// A run configuration with a policy only.
    pub fn of(policy: Policy) -> RunConfig {
        let memory_policy = MemoryPolicyRule::default();
        RunConfig {
            policy,
            touch: None,
            memory_policy,
            base: None,
            kernel_version: None,
            thp: None,
            mthp: None,
            hugetlb_pool_pages: None,
            memory_limit_bytes: None,
            use_zero_page: None,
            khugepaged: None,
            max_ptes_none: None,
            pages_to_scan: None,
            scan_sleep_ms: None,
        }
    }

    /// The complete run configuration of a report. That of a design has the default policy.
    pub fn of_report<P: Described>(report: &SimReport<P>) -> RunConfig {
        let (touch, memory_policy) = (Some(report.touch.rule), report.memory_policy.rule);
        RunConfig { touch, memory_policy, ..RunConfig::of(report.policy.of_modes()) }.on(&report.kernel)
    }

    /// A policy on the kernel that is simulated if no flag is about the kernel.
    pub fn on_expected_kernel(policy: Policy) -> RunConfig {
        RunConfig::of(policy).on(&expected_by(&policy))
    }

    /// The same with every setting of a kernel.
    fn on(self, kernel: &KernelConfig) -> RunConfig {
        RunConfig {
            base: None,
            kernel_version: Some(kernel.rules.version),
            thp: Some(kernel.thp.global),
            mthp: RunConfig::unexpected_sizes(&self.policy, kernel.thp.sizes),
            hugetlb_pool_pages: kernel.hugetlb_pool_pages,
            memory_limit_bytes: kernel.memory_limit_bytes,
            use_zero_page: Some(kernel.use_zero_page),
            khugepaged: Some(kernel.khugepaged.work),
            max_ptes_none: Some(kernel.khugepaged.max_ptes_none),
            pages_to_scan: Some(kernel.khugepaged.pages_to_scan),
            scan_sleep_ms: Some(kernel.khugepaged.scan_sleep_ms),
            ..self
        }
    }

    /// The modes of sizes, if they differ from those that the policy's `--huge` expects.
    pub fn unexpected_sizes(policy: &Policy, sizes: Sizes) -> Option<Sizes> {
        (sizes != expected_by(policy).thp.sizes).then_some(sizes)
    }

    /// The touch rule for a trace: recorded touches if it has any, else every byte once.
    pub fn touch_rule(&self, source: TouchSource) -> TouchRule {
        self.touch.unwrap_or(TouchRule::usual(source))
    }

    /// The kernel to simulate: `base`, modified by the flags.
    ///
    /// # Errors
    /// The host's settings cannot be read.
    pub fn kernel(&self, base: BaseKernel) -> Result<KernelConfig, HostError> {
        if base == BaseKernel::Host {
            return kernel_config();
        }
        let mut kernel = match self.base.unwrap_or(base) {
            BaseKernel::AsItComes => expected_by(&self.policy),
            BaseKernel::Host => kernel_config()?,
        };
        kernel.rules = self.kernel_version.map_or(kernel.rules, Rules::of);
        kernel.thp.global = self.thp.unwrap_or(kernel.thp.global);
        kernel.thp.sizes = self.mthp.unwrap_or(kernel.thp.sizes);
        kernel.hugetlb_pool_pages = self.hugetlb_pool_pages.or(kernel.hugetlb_pool_pages);
        kernel.memory_limit_bytes = self.memory_limit_bytes.or(kernel.memory_limit_bytes);
        kernel.use_zero_page = self.use_zero_page.unwrap_or(kernel.use_zero_page);
        let khugepaged = &mut kernel.khugepaged;
        khugepaged.work = self.khugepaged.unwrap_or(khugepaged.work);
        khugepaged.max_ptes_none = self.max_ptes_none.unwrap_or(khugepaged.max_ptes_none);
        khugepaged.pages_to_scan = self.pages_to_scan.unwrap_or(khugepaged.pages_to_scan);
        khugepaged.scan_sleep_ms = self.scan_sleep_ms.unwrap_or(khugepaged.scan_sleep_ms);
        Ok(kernel)
    }

    /// Checks that the policy and its kernel are valid.
    ///
    /// # Errors
    /// Names the invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rules = Rules::of(self.kernel_version.unwrap_or(KernelVersion::USUAL));
        if let Some(sizes) = self.mthp.filter(mthp::has_mthp_sizes)
            && rules.mthp_support == MthpSupport::Unsupported
        {
            return Err(ConfigError::NoMthp { sizes: mthp::show(&sizes), version: rules.version.word() });
        }
        let flags = |why: &PolicyError| -> &[&str] {
            match why {
                PolicyError::FrontCache(_) => &["front-cache"],
                PolicyError::HeaderBytes(_) => &["header"],
                PolicyError::HugeFill(_) => &["huge-fill"],
                PolicyError::HugePageBytes(_) => &["huge"],
                PolicyError::Arena(_) => &["arena"],
                PolicyError::AlignHugetlb => &["align", "huge"],
                PolicyError::AlignCount(_) => &["align", "superslab", "arena"],
                PolicyError::StartTooLarge => &["prewarm", "startup-touch", "superslab", "arena"],
                PolicyError::Geometry(_) => &["superslab", "slab", "arena"],
            }
        };
        self.policy.prepare().map(drop).map_err(|why| {
            let given: Vec<String> = flags(&why).iter().map(|name| format!("--{name} {}", self.word(name))).collect();
            ConfigError::Policy { given: given.join(" "), why }
        })
    }

    /// All policy flags with their values, in the form that the native allocator reads from its environment.
    pub fn native_words(&self) -> String {
        let flags = FLAGS.iter().filter(|flag| flag.subject == Subject::Policy);
        let words: Vec<String> = flags.map(|flag| format!("{}={}", flag.name, flag.show(self))).collect();
        words.join(" ")
    }

    /// The value of a flag as text; empty for an unknown flag.
    pub fn word(&self, flag: &str) -> String {
        FLAGS.iter().find(|known| known.name == flag).map(|known| known.show(self)).unwrap_or_default()
    }
}

/// The default kernel, with the modes that a policy expects.
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

/// Flags whose values differ between run configurations, in the order of the table.
pub fn varied(configs: &[RunConfig]) -> Vec<&'static str> {
    let differs = |flag: &&Flag| configs.windows(2).any(|pair| flag.show(&pair[0]) != flag.show(&pair[1]));
    FLAGS.iter().filter(differs).map(|flag| flag.name).collect()
}
