//! Allocator designs in both worlds: simulated, replayed on real memory, and compared.
//!
//! The bump allocator's pages are also computed by an oracle of a few lines of arithmetic (`oracle.rs`), which shares no
//! code with the simulator. This program has its own test runner, because the children of a replay execute it again.

mod common;
mod contents;
mod errors;
mod listed;
mod oracle;
mod pairs;
mod runs;
mod settings;

use std::process::ExitCode;

use errors::Refusing;
use hksim_replay::{CHILD_ARGUMENT, KnownDesign, child_main_with};
use hksim_testkit::cases::{self, Case};

const CASES: &[(&str, Case)] = &[
    ("bump_touches_the_pages_that_arithmetic_says", oracle::bump_touches_the_pages_that_arithmetic_says),
    ("bump_agrees_with_the_oracle_on_random_traces", oracle::bump_agrees_with_the_oracle_on_random_traces),
    ("blocks_above_the_threshold_have_mappings", oracle::blocks_above_the_threshold_have_mappings),
    ("bump_is_predicted_exactly", pairs::bump_is_predicted_exactly),
    ("runs_are_predicted_exactly", pairs::runs_are_predicted_exactly),
    ("runs_are_predicted_exactly_with_huge_pages", pairs::runs_are_predicted_exactly_with_huge_pages),
    ("threads_and_settings_change_placements", pairs::threads_and_settings_change_placements),
    ("the_pages_of_a_wrong_prediction_differ", pairs::the_pages_of_a_wrong_prediction_differ),
    ("installs_of_a_design_are_explained", pairs::installs_of_a_design_are_explained),
    ("locked_memory_is_predicted", pairs::locked_memory_is_predicted),
    ("a_forked_child_is_predicted", pairs::a_forked_child_is_predicted),
    ("a_design_is_timed", pairs::a_design_is_timed),
    ("blocks_keep_what_a_design_promises", contents::blocks_keep_what_a_design_promises),
    ("a_full_memory_fails_requests_and_nothing_else", contents::a_full_memory_fails_requests_and_nothing_else),
    ("a_page_heap_gives_back_everything", contents::a_page_heap_gives_back_everything),
    ("every_design_is_predicted_exactly_on_random_traces", listed::every_design_is_predicted_exactly_on_random_traces),
    (
        "every_design_is_predicted_exactly_on_an_odd_program",
        listed::every_design_is_predicted_exactly_on_an_odd_program,
    ),
    ("a_fork_is_predicted_under_every_design", listed::a_fork_is_predicted_under_every_design),
    (
        "blocks_of_gibibytes_are_predicted_under_every_design",
        listed::blocks_of_gibibytes_are_predicted_under_every_design,
    ),
    ("bad_settings_and_unknown_designs_are_errors", errors::bad_settings_and_unknown_designs_are_errors),
    ("calls_that_cannot_be_made_are_refused_equally", errors::calls_that_cannot_be_made_are_refused_equally),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD_ARGUMENT) {
        let known = [listed::known(), vec![KnownDesign::of::<Refusing>()]].concat();
        return child_main_with(&known);
    }
    cases::run(CASES, &arguments)
}
