//! The allocators whose predictions a replay can check.

use hksim_designs::{Label, Listed, Visitor, each};
use hksim_explore::described::Described;
use hksim_explore::host;
use hksim_policy::Policy;
use hksim_policy::vocabulary::{Align, Huge, Purge};
use hksim_replay::{KnownDesign, Replayed, Target};
use hksim_sim::SimReport;

/// An allocator that can be simulated and replayed: SuperSlab, or a design.
pub trait Checked: Described {
    /// The allocator of the replay.
    fn target(&self) -> Target;

    /// What this machine lacks for the prediction to hold, if anything.
    fn lacks_here(predicted: &SimReport<Self>, measured: &Replayed) -> Option<String>;

    /// Whether the kernel chooses the addresses of its mappings, which may then use page tables of others.
    fn has_chosen_addresses(&self) -> bool;

    /// Whether it takes pages of the hugetlb pool, so that the pool must not change meanwhile.
    fn uses_pool(&self) -> bool;

    /// Whether it may purge by `MADV_FREE`.
    fn may_purge_lazily(&self) -> bool;
}

impl Checked for Policy {
    fn target(&self) -> Target {
        Target::Native(Box::new(*self))
    }

    fn lacks_here(predicted: &SimReport, measured: &Replayed) -> Option<String> {
        if let Some(lack) = host::lacks(&predicted.policy, &predicted.kernel.thp) {
            return Some(format!("on this machine {lack}"));
        }
        let is_empty = measured.environment.nr_hugepages.unwrap_or(0) == 0;
        (predicted.policy.uses_pool() && is_empty)
            .then(|| "no hugetlb pool on this machine (vm.nr_hugepages is 0)".to_string())
    }

    fn has_chosen_addresses(&self) -> bool {
        self.align != Align::Arena
    }

    fn uses_pool(&self) -> bool {
        matches!(self.huge, Huge::Hugetlb | Huge::HugetlbPlain)
    }

    fn may_purge_lazily(&self) -> bool {
        self.purge == Purge::Free
    }
}

impl Checked for Label {
    fn target(&self) -> Target {
        Target::Design { name: self.design.clone(), settings: self.settings.clone() }
    }

    /// A design gives advice and expects no mode.
    fn lacks_here(_: &SimReport<Label>, _: &Replayed) -> Option<String> {
        None
    }

    fn has_chosen_addresses(&self) -> bool {
        false
    }

    /// A design may map pages of the pool.
    fn uses_pool(&self) -> bool {
        true
    }

    fn may_purge_lazily(&self) -> bool {
        true
    }
}

/// Collects the designs of the list.
#[derive(Default)]
struct Known(Vec<KnownDesign>);

impl Visitor for Known {
    fn visit<D: Listed>(&mut self) {
        self.0.push(KnownDesign::of::<D>());
    }
}

/// The designs that the children of a replay must know ([`child_main_with`](hksim_replay::child_main_with)).
pub fn known_designs() -> Vec<KnownDesign> {
    let mut known = Known::default();
    each(&mut known);
    known.0
}
