//! Who asked for huge pages: the call sites of `MADV_HUGEPAGE` and `MADV_COLLAPSE`, and the huge pages that they got.

use std::collections::BTreeMap;

use hksim_linux_mm::{Advice, Install, InstallKind, RemapSource};
use hksim_memory_trace::{PAGE_BYTES, SiteId};
use serde::{Deserialize, Serialize};

use crate::ranges::Ranges;
use crate::steps::Action;

/// What one call site of advice did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvisedUse {
    /// Calls.
    pub calls: u64,
    /// Bytes that they advised; a byte counts in each call.
    pub bytes_advised: u64,
    /// Huge pages installed in memory while the advice of these calls was the last one for it.
    pub huge_pages_installed: u64,
}

/// The advice in force in an address space, and what each call site's brought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advisers {
    advised: Ranges<SiteId>,
    uses: BTreeMap<SiteId, AdvisedUse>,
}

impl Advisers {
    /// Notes a call that has an effect.
    pub fn apply(&mut self, action: &Action) {
        match action {
            Action::Advise { pages, advice: advice @ (Advice::HugePage | Advice::Collapse), site } => {
                if *advice == Advice::HugePage {
                    self.advised.insert(pages.clone(), *site);
                }
                let used = self.uses.entry(*site).or_default();
                used.calls += 1;
                used.bytes_advised += (pages.end - pages.start) * PAGE_BYTES;
            }
            Action::Advise { pages, advice: Advice::NoHugePage, .. }
            | Action::Unmap(pages)
            | Action::Map { pages, .. }
            | Action::MapOutside { pages } => self.advised.remove(pages),
            Action::Remap { old, new, source } => self.advised.relocate(old, new, *source == RemapSource::Kept),
            _ => {}
        }
    }

    /// Counts an install, by a touch or by the advice itself.
    pub fn count(&mut self, install: &Install, action: &Action) {
        let site = match action {
            _ if install.kind != InstallKind::Thp => return,
            Action::Advise { advice: Advice::Collapse, site, .. } => Some(*site),
            _ => self.advised.at(install.first_page),
        };
        if let Some(used) = site.and_then(|site| self.uses.get_mut(&site)) {
            used.huge_pages_installed += 1;
        }
    }

    /// A forked child's: the same advice in force, nothing counted yet.
    pub fn forked(&self) -> Self {
        let uses = self.uses.keys().map(|site| (*site, AdvisedUse::default())).collect();
        Self { advised: self.advised.clone(), uses }
    }

    /// What each call site's advice brought, most huge pages first.
    pub fn uses(&self) -> Vec<(SiteId, AdvisedUse)> {
        let mut uses: Vec<_> = self.uses.iter().map(|(site, used)| (*site, *used)).collect();
        uses.retain(|(_, used)| *used != AdvisedUse::default());
        uses.sort_by_key(|(_, used)| std::cmp::Reverse((used.huge_pages_installed, used.bytes_advised)));
        uses
    }
}
