//! Folded stacks: a line for each stack, outermost frame first, with its value. Flame-graph programs (flamegraph.pl,
//! inferno, speedscope) read them.

use std::collections::BTreeMap;

use hksim_results::stack_profile::{Call, StackProfile};

/// The stacks with the shown figure; equal stacks are added up, and those without a value left out.
pub fn text(profile: &StackProfile) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (calls, values) in &profile.stacks {
        let value = values.get(profile.shown).copied().unwrap_or(0);
        if value > 0 {
            *sums.entry(line(calls)).or_default() += value;
        }
    }
    sums.iter().map(|(stack, value)| format!("{stack} {value}\n")).collect()
}

/// Semicolons separate frames, so a name has none.
fn line(calls: &[Call]) -> String {
    calls.iter().rev().map(|call| call.name.replace(';', ",")).collect::<Vec<_>>().join(";")
}
