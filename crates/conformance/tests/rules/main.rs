//! The model and the executor compared with the running kernel.
//!
//! The oracle for the executor is an independent C program that executes the same scripts. All of it needs root, perf
//! events and frame numbers in pagemap; without them tests are skipped with the reason. The test harness is custom,
//! because the executing processes are this program. Tests run one at a time, because machine-wide counters are
//! compared.

mod directed;
mod failures;
mod oracle;
mod random;
mod text;

use std::process::ExitCode;

use hksim_testkit::cases::{self, Case};

const CASES: &[(&str, Case)] = &[
    ("printed_scripts_parse_to_the_same_script", text::printed_scripts_parse_to_the_same_script),
    ("bad_lines_are_reported_by_number", text::bad_lines_are_reported_by_number),
    ("each_rule_gives_its_figures", directed::each_rule_gives_its_figures),
    ("each_rule_holds_on_the_running_kernel", directed::each_rule_holds_on_the_running_kernel),
    ("max_map_count_is_enforced_as_by_the_kernel", directed::max_map_count_is_enforced_as_by_the_kernel),
    ("multiples_of_2_mib_are_placed_on_2_mib_boundaries", directed::multiples_of_2_mib_are_placed_on_2_mib_boundaries),
    ("a_c_program_observes_the_same", oracle::a_c_program_observes_the_same),
    ("random_scripts_match_the_running_kernel", random::random_scripts_match_the_running_kernel),
    (
        "an_unprivileged_user_observes_less_and_finds_no_difference",
        random::an_unprivileged_user_observes_less_and_finds_no_difference,
    ),
    ("a_wrong_model_is_found_and_shrunk", random::a_wrong_model_is_found_and_shrunk),
    ("a_killed_child_is_an_error", failures::a_killed_child_is_an_error),
    ("modes_are_restored_after_a_kill", failures::modes_are_restored_after_a_kill),
    ("two_at_once_set_modes_in_turn", failures::two_at_once_set_modes_in_turn),
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
