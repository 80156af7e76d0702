//! Allocator designs in both worlds: simulated, replayed on real memory, and compared.
//!
//! The bump allocator's pages are also computed by an oracle of a few lines of arithmetic (`oracle.rs`), which shares no
//! code with the simulator. This program has its own test runner, because the children of a replay execute it again.

mod common;
mod errors;
mod oracle;
mod pairs;
mod runs;

use std::process::ExitCode;

use errors::Refusing;
use hksim_designs::bump::Bump;
use hksim_replay::{CHILD_ARGUMENT, KnownDesign, child_main_with};
use hksim_testkit::cases::{self, Case};
use runs::Runs;

const CASES: &[(&str, Case)] = &[
    ("bump_touches_the_pages_that_arithmetic_says", oracle::bump_touches_the_pages_that_arithmetic_says),
    ("bump_agrees_with_the_oracle_on_random_traces", oracle::bump_agrees_with_the_oracle_on_random_traces),
    ("bump_is_predicted_exactly", pairs::bump_is_predicted_exactly),
    ("runs_are_predicted_exactly", pairs::runs_are_predicted_exactly),
    ("runs_are_predicted_exactly_with_huge_pages", pairs::runs_are_predicted_exactly_with_huge_pages),
    ("threads_and_settings_change_placements", pairs::threads_and_settings_change_placements),
    ("the_pages_of_a_wrong_prediction_differ", pairs::the_pages_of_a_wrong_prediction_differ),
    ("installs_of_a_design_are_explained", pairs::installs_of_a_design_are_explained),
    ("locked_memory_is_predicted", pairs::locked_memory_is_predicted),
    ("a_forked_child_is_predicted", pairs::a_forked_child_is_predicted),
    ("a_design_is_timed", pairs::a_design_is_timed),
    ("bad_settings_and_unknown_designs_are_errors", errors::bad_settings_and_unknown_designs_are_errors),
    ("calls_that_cannot_be_made_are_refused_equally", errors::calls_that_cannot_be_made_are_refused_equally),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD_ARGUMENT) {
        let known = [KnownDesign::of::<Bump>(), KnownDesign::of::<Runs>(), KnownDesign::of::<Refusing>()];
        return child_main_with(&known);
    }
    cases::run(CASES, &arguments)
}
