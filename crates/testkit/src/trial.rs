//! One random program on one design, with injected faults.

use hksim_policy::Geometry;

use crate::spread::SmallDesign;
use crate::{Failing, Limits, PlainMemory, Player, PlayerCounts};

/// The faults that are injected.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// The OS calls that fail.
    pub failing: Failing,
    /// Number of reserved huge pages.
    pub hugetlb_pages: u64,
}

/// No faults.
pub const NO_FAULTS: FaultPlan = FaultPlan { failing: Failing::Nothing, hugetlb_pages: u64::MAX };

/// Prints the seed and the design if the memory or the policy panics.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

/// Runs a random program.
///
/// # Errors
/// Describes the first violated guarantee, with the seed and the design.
pub fn play(
    design: &SmallDesign,
    geometry: impl Geometry,
    faults: FaultPlan,
    limits: Limits,
    seed: u64,
) -> Result<PlayerCounts, String> {
    let what = format!("seed {seed:#x}: {faults:?}, {limits:?}, {design:?}");
    let _named = Named(&what);
    let memory = PlainMemory::new(design.layout(), &geometry, design.ordinals, seed);
    memory.set_failing(faults.failing);
    memory.set_hugetlb_pages(faults.hugetlb_pages);
    Player::new(memory, geometry, design, limits, seed).run().map_err(|error| format!("{error}, in {what}"))
}
