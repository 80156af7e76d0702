//! Shrinks a failing script.

use hksim_linux_mm::script::{Op, Script, Step};

/// Returns the smallest script found that still fails. Operations are removed in ever smaller groups, then the
/// remaining operations are simplified, until neither changes anything. `fails` decides whether a script still fails.
///
/// # Errors
/// The errors of `fails`.
pub fn shrunk<E>(script: &Script, mut fails: impl FnMut(&Script) -> Result<bool, E>) -> Result<Script, E> {
    let mut best = script.clone();
    loop {
        let before = best.clone();
        without_steps(&mut best, &mut fails)?;
        simpler_steps(&mut best, &mut fails)?;
        if best == before {
            return Ok(best);
        }
    }
}

fn without_steps<E>(best: &mut Script, fails: &mut impl FnMut(&Script) -> Result<bool, E>) -> Result<(), E> {
    let mut group = best.steps.len().div_ceil(2).max(1);
    loop {
        // Start at the end, because later operations affect fewer others.
        let mut end = best.steps.len();
        while end > 0 {
            let start = end.saturating_sub(group);
            let mut candidate = best.clone();
            candidate.steps.drain(start..end);
            if fails(&candidate)? {
                *best = candidate;
            }
            end = start;
        }
        if group == 1 {
            return Ok(());
        }
        group = group.div_ceil(2);
    }
}

fn simpler_steps<E>(best: &mut Script, fails: &mut impl FnMut(&Script) -> Result<bool, E>) -> Result<(), E> {
    for at in 0..best.steps.len() {
        for simpler in simpler_than(best.steps[at]) {
            let mut candidate = best.clone();
            candidate.steps[at] = simpler;
            if fails(&candidate)? {
                *best = candidate;
                break;
            }
        }
    }
    Ok(())
}

/// Simpler variants of a step: performed by the first thread, or with a shorter length.
fn simpler_than(step: Step) -> Vec<Step> {
    let lengths =
        |length: u64| [1, 16, 512, length / 2].into_iter().filter(move |&shorter| 0 < shorter && shorter < length);
    let shorter: Vec<Op> = match step.op {
        Op::Map(start, length, flags) => lengths(length).map(|length| Op::Map(start, length, flags)).collect(),
        Op::Unmap(start, length) => lengths(length).map(|length| Op::Unmap(start, length)).collect(),
        Op::Advise(advice, start, length) => lengths(length).map(|length| Op::Advise(advice, start, length)).collect(),
        Op::Protect(start, length, protection) => {
            lengths(length).map(|length| Op::Protect(start, length, protection)).collect()
        }
        Op::Touch(how, start, length, stride) => {
            lengths(length).map(|length| Op::Touch(how, start, length, stride.min(length))).collect()
        }
        Op::Remap(old, length, new, source) => {
            lengths(length).map(|length| Op::Remap(old, length, new, source)).collect()
        }
        Op::Fork(writer, start, length, stride) => {
            lengths(length).map(|length| Op::Fork(writer, start, length, stride.min(length))).collect()
        }
        Op::Lock(start, length, on_fault) => lengths(length).map(|length| Op::Lock(start, length, on_fault)).collect(),
        Op::Name(start, length, name) => lengths(length).map(|length| Op::Name(start, length, name)).collect(),
        Op::MapFile(start, length) => lengths(length).map(|length| Op::MapFile(start, length)).collect(),
        Op::TouchFile(start, length, stride) => {
            lengths(length).map(|length| Op::TouchFile(start, length, stride.min(length))).collect()
        }
        Op::Unlock(start, length) => lengths(length).map(|length| Op::Unlock(start, length)).collect(),
        Op::Scan(of, scans) => lengths(scans).map(|scans| Op::Scan(of, scans)).collect(),
        Op::Resize(..) | Op::Mremap(..) | Op::LockAll(_) | Op::UnlockAll => Vec::new(),
    };
    let steps = shorter.into_iter().map(|op| Step { op, ..step });
    std::iter::once(Step::from(step.op)).filter(|first| *first != step).chain(steps).collect()
}
