//! Compares the model and the executor with the running kernel.
//!
//! The oracle for the executor is an independent C program that executes the same scripts. The tests need root, perf
//! events and frame numbers in pagemap; without them a test is skipped and prints the reason. The test harness is
//! custom, because this program also runs as the child process that executes scripts. Tests run one at a time, because
//! they compare machine-wide counters.

mod directed;
mod failures;
mod obstacles;
mod oracle;
mod random;
mod scans;
mod text;

use std::process::ExitCode;

use hksim_testkit::cases::{self, Case};

const CASES: &[(&str, Case)] = &[
    ("printed_scripts_parse_to_the_same_script", text::printed_scripts_parse_to_the_same_script),
    ("invalid_lines_are_reported_with_their_numbers", text::invalid_lines_are_reported_with_their_numbers),
    ("each_rule_gives_its_figures", directed::each_rule_gives_its_figures),
    ("each_rule_holds_on_the_running_kernel", directed::each_rule_holds_on_the_running_kernel),
    (
        "a_write_installs_a_huge_page_exactly_without_obstacles",
        obstacles::a_write_installs_a_huge_page_exactly_without_obstacles,
    ),
    (
        "the_model_enforces_max_map_count_as_the_kernel_does",
        directed::the_model_enforces_max_map_count_as_the_kernel_does,
    ),
    ("multiples_of_2_mib_are_placed_on_2_mib_boundaries", directed::multiples_of_2_mib_are_placed_on_2_mib_boundaries),
    ("a_c_program_makes_the_same_observations", oracle::a_c_program_makes_the_same_observations),
    ("random_scripts_match_the_running_kernel", random::random_scripts_match_the_running_kernel),
    (
        "an_unprivileged_user_observes_less_and_finds_no_difference",
        random::an_unprivileged_user_observes_less_and_finds_no_difference,
    ),
    ("each_rule_of_scans_holds_on_the_running_kernel", scans::each_rule_of_scans_holds_on_the_running_kernel),
    ("random_scripts_with_scans_match_the_running_kernel", scans::random_scripts_with_scans_match_the_running_kernel),
    (
        "random_ranges_collapse_by_the_number_of_written_pages",
        scans::random_ranges_collapse_by_the_number_of_written_pages,
    ),
    ("a_wrong_model_is_found_and_shrunk", random::a_wrong_model_is_found_and_shrunk),
    ("a_killed_child_is_an_error", failures::a_killed_child_is_an_error),
    ("modes_are_restored_after_a_kill", failures::modes_are_restored_after_a_kill),
    ("concurrent_runs_set_modes_one_after_the_other", failures::concurrent_runs_set_modes_one_after_the_other),
    ("a_run_killed_while_waiting_leaves_no_guard", failures::a_run_killed_while_waiting_leaves_no_guard),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(hksim_conformance::CHILD_ARGUMENT) => return hksim_conformance::child_main(),
        Some(hksim_conformance::GUARD_ARGUMENT) => return hksim_conformance::guard_main(),
        Some(failures::SETS_MODES_ARGUMENT) => return failures::sets_modes(),
        Some(random::AS_NOBODY_ARGUMENT) => return random::as_nobody(),
        _ => {}
    }
    cases::run(CASES, &arguments)
}
