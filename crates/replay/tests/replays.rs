//! Compares replays with independent results: closed forms, strace, and the kernel's totals.
//!
//! This program has its own test runner, because the children of a replay execute the program again.

mod common;
mod figures;
mod refusals;
mod startup;
mod system_calls;

use std::process::ExitCode;

use hksim_testkit::cases::{self, Case};

const CASES: &[(&str, Case)] = &[
    ("a_huge_block_has_as_many_installs_as_pages", figures::a_huge_block_has_as_many_installs_as_pages),
    ("a_full_superslab_is_collapsed_once", figures::a_full_superslab_is_collapsed_once),
    ("kinds_add_up_to_the_faults_in_every_design", figures::kinds_add_up_to_the_faults_in_every_design),
    (
        "a_huge_page_that_mremap_divided_is_split_in_both_frames",
        figures::a_huge_page_that_mremap_divided_is_split_in_both_frames,
    ),
    ("disabled_huge_pages_are_not_installed", figures::disabled_huge_pages_are_not_installed),
    ("a_header_that_is_read_first_costs_twice", figures::a_header_that_is_read_first_costs_twice),
    ("malloc_grows_by_the_bytes_written", figures::malloc_grows_by_the_bytes_written),
    (
        "blocks_written_before_their_free_fault_as_often_as_blocks_written_at_allocation",
        figures::blocks_written_before_their_free_fault_as_often_as_blocks_written_at_allocation,
    ),
    ("memory_from_before_the_first_call_counts", startup::memory_from_before_the_first_call_counts),
    ("threads_perform_every_event", figures::threads_perform_every_event),
    ("objects_may_cross_threads_in_a_circle", figures::objects_may_cross_threads_in_a_circle),
    ("strace_counts_the_same_calls", system_calls::strace_counts_the_same_calls),
    ("a_missing_library_is_an_error", refusals::a_missing_library_is_an_error),
    ("a_file_that_is_not_a_library_is_an_error", refusals::a_file_that_is_not_a_library_is_an_error),
    ("a_killed_child_is_an_error", refusals::a_killed_child_is_an_error),
    ("a_damaged_trace_is_an_error", refusals::a_damaged_trace_is_an_error),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(hksim_replay::CHILD_ARGUMENT) => return hksim_replay::child_main(),
        Some(system_calls::TRACED_ARGUMENT) => return system_calls::traced(&arguments[1..]),
        _ => {}
    }
    cases::run(CASES, &arguments)
}
