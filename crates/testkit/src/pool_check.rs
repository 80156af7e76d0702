//! Compares the pool's counts and lists with the entries of the arena table.

use std::collections::HashSet;

use hksim_policy::Memory;
use hksim_policy::meta::{EntryList, Use};

/// The ordinals of a list from head to tail. An error if the list is inconsistent.
fn walk(memory: &impl Memory, list: &EntryList, what: &str) -> Result<Vec<u32>, String> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let (mut next, mut prev) = (list.head.get(), 0);
    while let Some(ordinal) = next.checked_sub(1) {
        let entry = memory.entry(ordinal);
        if !seen.insert(ordinal) {
            return Err(format!("the list of {what} superslabs has {ordinal} twice"));
        }
        if entry.prev.get() != prev {
            return Err(format!("the list of {what} superslabs is not linked backwards at {ordinal}"));
        }
        found.push(ordinal);
        (prev, next) = (next, entry.next.get());
    }
    if list.tail.get() != prev || list.count.get() as usize != found.len() {
        return Err(format!("the list of {what} superslabs disagrees with its own tail or count"));
    }
    Ok(found)
}

fn expect(what: &str, found: u64, says: u64) -> Result<(), String> {
    if found == says { Ok(()) } else { Err(format!("{what}: {found} by the table, {says} by the pool")) }
}

/// Checks the lists and counts of a pool.
///
/// # Errors
/// Describes the first inconsistency.
pub(crate) fn check_pool(memory: &impl Memory) -> Result<(), String> {
    let pool = memory.pool();
    let high_water = pool.high_water.get();
    let uses: Vec<Use> = (0..high_water).map(|ordinal| memory.entry(ordinal).usage()).collect();
    let having = |usage: &[Use]| -> HashSet<u32> {
        (0..high_water).filter(|&ordinal| usage.contains(&uses[ordinal as usize])).collect()
    };
    for (what, list, usage) in [
        ("idle", &pool.idle, &[Use::Idle, Use::Warm][..]),
        ("abandoned", &pool.abandoned, &[Use::Abandoned]),
        ("huge idle", &pool.huge_idle, &[Use::HugeIdle]),
    ] {
        let listed: HashSet<u32> = walk(memory, list, what)?.into_iter().collect();
        if listed != having(usage) {
            return Err(format!("{what} superslabs: {:?} by the table, {listed:?} listed", having(usage)));
        }
    }
    let in_use = having(&[Use::Slabs, Use::Abandoned]).len() as u64;
    expect("superslabs in use", in_use, u64::from(pool.superslabs.get()))?;
    let runs = |usage| having(&[usage]).iter().map(|&head| u64::from(memory.entry(head).run.get())).sum::<u64>();
    expect("superslabs of huge blocks", runs(Use::Huge), u64::from(pool.huge_superslabs.get()))?;
    let idle_bytes = having(&[Use::HugeIdle]).iter().map(|&head| memory.entry(head).bytes.get()).sum();
    expect("bytes of huge idle runs", idle_bytes, pool.huge_idle_bytes.get())?;
    expect("lost superslabs", having(&[Use::Lost]).len() as u64, u64::from(pool.lost_superslabs.get()))?;
    let mut tails = HashSet::new();
    for head in having(&[Use::Huge, Use::HugeIdle]) {
        tails.extend(head + 1..head + memory.entry(head).run.get());
    }
    if tails != having(&[Use::HugeTail]) {
        return Err("the tails of huge runs disagree with the lengths in their heads".into());
    }
    match (0..pool.free_hint.get().min(high_water)).find(|&ordinal| uses[ordinal as usize] == Use::Free) {
        Some(ordinal) => Err(format!("superslab {ordinal} is free below the hint")),
        None => Ok(()),
    }
}

/// Whether every SuperSlab of the arena is lost or has a huge block.
pub(crate) fn has_nothing_left(memory: &impl Memory) -> bool {
    let is_gone = |ordinal| matches!(memory.entry(ordinal).usage(), Use::Lost | Use::Huge | Use::HugeTail);
    memory.pool().high_water.get() == memory.ordinals() && (0..memory.ordinals()).all(is_gone)
}
