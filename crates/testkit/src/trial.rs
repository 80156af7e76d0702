//! One random program on one design, under some hardship.

use hksim_policy::Geometry;

use crate::spread::SmallDesign;
use crate::{Failing, Limits, PlainMemory, Player, Tally};

/// What is done to the world beside the program's own operations.
#[derive(Clone, Copy, Debug)]
pub struct Hardship {
    /// Which OS calls fail.
    pub failing: Failing,
    /// Reserved huge pages that there are.
    pub hugetlb_pages: u64,
}

/// Nothing.
pub const EASY: Hardship = Hardship { failing: Failing::Nothing, hugetlb_pages: u64::MAX };

/// Every panic of the world or the policy must name the seed, too.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

/// Plays it.
///
/// # Errors
/// The first promise that was broken, with the seed and the design.
pub fn play(
    design: &SmallDesign,
    geometry: impl Geometry,
    hardship: Hardship,
    limits: Limits,
    seed: u64,
) -> Result<Tally, String> {
    let what = format!("seed {seed:#x}: {hardship:?}, {limits:?}, {design:?}");
    let _named = Named(&what);
    let memory = PlainMemory::new(design.layout(), &geometry, design.ordinals, seed);
    memory.set_failing(hardship.failing);
    memory.set_hugetlb_pages(hardship.hugetlb_pages);
    Player::new(memory, geometry, design, limits, seed).run().map_err(|error| format!("{error}, in {what}"))
}
