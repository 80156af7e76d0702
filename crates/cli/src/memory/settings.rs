//! The settings under which a memory recording is simulated, from the command line.

use anyhow::{Result, anyhow, bail};
use hksim_memory_sim::{Advise, MadvFree, Setting, ThpPrctl};

use crate::flags::{BaseKernel, HugeList, PolicyArgs, RunConfig};
use crate::host;

/// Flags for memory recordings only.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory recordings (.hkm)")]
pub struct MemoryArgs {
    /// Advise mappings with MADV_HUGEPAGE, beside the program's own advice: none, all, heap, >=SIZE; drop: leave out
    /// the program's own advice [default: none]
    #[arg(long, value_name = "WORD", hide_short_help = true)]
    advise: Option<String>,
    /// Apply the program's prctl(PR_SET_THP_DISABLE), ignore it, or disable huge pages from the start: recorded,
    /// ignored, disabled [default: recorded]
    #[arg(long, value_name = "WORD", hide_short_help = true)]
    thp_prctl: Option<String>,
    /// Apply the program's madvise(MADV_FREE), or drop its pages at once: recorded, dontneed [default: recorded]
    #[arg(long, value_name = "WORD", hide_short_help = true)]
    madv_free: Option<String>,
    /// Tell what the memory of each call site costs (record --memory --stacks); with `sweep --allocators`, the installs of
    /// each call site of the traces (record --stacks)
    #[arg(long, value_enum, hide_short_help = true)]
    pub by: Option<By>,
}

/// What memory is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The caller that asked for it, outside the C library and allocators
    Site,
}

/// One setting, with its words for tables.
#[derive(Clone, Debug)]
pub struct NamedSetting {
    /// The setting.
    pub setting: Setting,
    /// The kernel's part as flags.
    pub config: RunConfig,
}

impl MemoryArgs {
    /// The first of these flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("advise", self.advise.is_some()),
            ("thp-prctl", self.thp_prctl.is_some()),
            ("madv-free", self.madv_free.is_some()),
            ("by", self.by.is_some()),
        ];
        flags.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Refuses these flags for a trace of allocator calls.
    ///
    /// # Errors
    /// One was given.
    pub fn refuse_for_trace(&self) -> Result<()> {
        match self.given() {
            Some(flag) => bail!("--{flag} is for memory recordings (.hkm); leave it out for a trace (.hkt)"),
            None => Ok(()),
        }
    }

    /// Every combination of the values given, at least one. The flags modify the kernel `base`.
    ///
    /// # Errors
    /// A value is invalid, or a flag does not apply to memory recordings.
    pub fn settings(&self, flags: &PolicyArgs, base: BaseKernel) -> Result<Vec<NamedSetting>> {
        if let Some(flag) = flags.policy_flag().or_else(|| flags.program_flag()) {
            bail!(
                "--{flag} is about hksim's allocator, and a memory recording (.hkm) has its own; leave it out, or use a \
                 trace (.hkt)"
            );
        }
        let advises = words(self.advise.as_deref().unwrap_or("none"), "advise", Advise::parse)?;
        let prctls = words(self.thp_prctl.as_deref().unwrap_or("recorded"), "thp-prctl", ThpPrctl::parse)?;
        let frees = words(self.madv_free.as_deref().unwrap_or("recorded"), "madv-free", MadvFree::parse)?;
        let edits = advises.iter().flat_map(|advise| prctls.iter().map(move |prctl| (*advise, *prctl)));
        let edits: Vec<_> = edits.flat_map(|edit| frees.iter().map(move |free| (edit, *free))).collect();
        if base == BaseKernel::Host {
            host::version()?;
        }
        let mut settings = Vec::new();
        for config in flags.configs(HugeList::All)? {
            let kernel =
                RunConfig { base: config.base.or(Some(base)), ..config.clone() }.kernel(BaseKernel::AsItComes)?;
            for &((advise, thp_prctl), madv_free) in &edits {
                let setting = Setting { kernel: kernel.clone(), advise, thp_prctl, madv_free };
                settings.push(NamedSetting { setting, config: config.clone() });
            }
        }
        Ok(settings)
    }

    /// The only setting given.
    ///
    /// # Errors
    /// As for [`MemoryArgs::settings`]; a flag has a list of values.
    pub fn setting(&self, flags: &PolicyArgs, base: BaseKernel) -> Result<NamedSetting> {
        let mut settings = self.settings(flags, base)?;
        match (settings.pop(), settings.is_empty()) {
            (Some(setting), true) => Ok(setting),
            _ => bail!("this command takes one setting; use `hksim sweep` for lists"),
        }
    }
}

fn words<T>(list: &str, flag: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>> {
    list.split(',').map(|word| parse(word).map_err(|why| anyhow!("--{flag} `{word}`: {why}"))).collect()
}
