//! Runs a script on the model and on the kernel, and compares the results.

use hksim_linux_mm::script::{ARENA_PAGES, OpResult, Script, Step};
use hksim_linux_mm::{Kernel, KernelConfig, PMD_PAGES};
use hksim_linux_probe::PAGE_BYTES;

use crate::machine::Machine;
use crate::observation::{ArenaState, CallResult, Observation, PageRun, errno_number};
use crate::session::{ExecuteError, Measured};

/// Whether kernel and model agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They agree in everything, after every operation.
    Equal,
    /// They agree in everything but entry splits. That counter is machine-wide, and other processes added to it in
    /// every attempt.
    EqualButSplits,
    /// Something else on the machine disturbed the measurement. The text is the reason.
    Disturbed(&'static str),
    /// They differ.
    Differs(Difference),
}

/// The first operation whose effect differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The operation's number in the script, from 0.
    pub step: usize,
}

/// Prediction and measurement of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Predictions of the model, one per operation.
    pub predicted: Vec<Observation>,
    /// Measurements of the kernel, one per operation.
    pub measured: Vec<Observation>,
    /// The result of the comparison.
    pub verdict: Verdict,
}

/// Maximum number of attempts for a disturbed script.
const TRIES: usize = 6;

/// Executes a script and compares it with the model. The machine must already be in the modes that the script names.
///
/// # Errors
/// The script could not be executed to its end.
pub fn check(machine: &mut Machine, script: &Script) -> Result<Checked, ExecuteError> {
    let mut tries = 1;
    loop {
        let config = machine.config(script);
        let mut measured = machine.execute(script)?;
        let mut predicted = predict(&config, script);
        for &unobservable in machine.unobservable() {
            for side in [&mut predicted, &mut measured.observations] {
                script.steps.iter().zip(side).for_each(|(step, seen)| unobservable.hide(step, seen));
            }
        }
        let mut verdict = compare(&predicted, &measured);
        if matches!(verdict, Verdict::Differs(_)) && machine.pool_is_disturbed(script) {
            verdict = Verdict::Disturbed("another process uses the hugetlb pool");
        }
        if !matches!(verdict, Verdict::Disturbed(_) | Verdict::EqualButSplits) || tries == TRIES {
            return Ok(Checked { predicted, measured: measured.observations, verdict });
        }
        tries += 1;
    }
}

fn compare(predicted: &[Observation], measured: &Measured) -> Verdict {
    if predicted == measured.observations {
        return Verdict::Equal;
    }
    if only_extra_splits(predicted, &measured.observations) {
        return Verdict::EqualButSplits;
    }
    if measured.collapsed > 0 {
        return Verdict::Disturbed("khugepaged collapsed pages during the script");
    }
    if measured.observations.iter().any(|seen| seen.did.errno == libc::ETIMEDOUT) {
        return Verdict::Disturbed("khugepaged did not finish its scans in time");
    }
    if measured.shortage > 0 {
        return Verdict::Disturbed("memory was short or fragmented");
    }
    let pairs = predicted.iter().zip(&measured.observations);
    let step = pairs.take_while(|(predicted, measured)| agree_but_splits(predicted, measured)).count();
    Verdict::Differs(Difference { step })
}

/// Whether both agree except that the machine counted more entry splits than predicted.
fn only_extra_splits(predicted: &[Observation], measured: &[Observation]) -> bool {
    predicted.len() == measured.len() && predicted.iter().zip(measured).all(|(a, b)| agree_but_splits(a, b))
}

fn agree_but_splits(predicted: &Observation, measured: &Observation) -> bool {
    let pmd_splits = predicted.left.pmd_splits;
    let left = ArenaState { pmd_splits, ..measured.left.clone() };
    predicted.did == measured.did && predicted.left == left && pmd_splits <= measured.left.pmd_splits
}

/// The model's predictions for a script, on a kernel with `config` and the modes that the script names.
pub fn predict(config: &KernelConfig, script: &Script) -> Vec<Observation> {
    let mut kernel = script.kernel(config);
    let first_page = script.first_page();
    let observed = |step: &Step| {
        let result = kernel.execute(&step.op, first_page);
        Observation { did: did(result), left: left(&kernel, first_page) }
    };
    script.steps.iter().map(observed).collect()
}

fn did(result: OpResult) -> CallResult {
    CallResult {
        ret: result.ret,
        errno: result.errno.map_or(0, errno_number),
        faults: result.faults,
        traps: result.traps,
    }
}

fn left(kernel: &Kernel, first_page: u64) -> ArenaState {
    let runs = kernel.page_states(first_page..first_page + ARENA_PAGES);
    let huge_pages_left_out = kernel.huge_pages() - kernel.huge_pages_in_smaps();
    ArenaState {
        pages: runs.iter().map(|run| PageRun(run.state, run.pages)).collect(),
        rss_bytes: (kernel.rss_pages() - huge_pages_left_out * PMD_PAGES) * PAGE_BYTES,
        anon_huge_bytes: kernel.huge_pages_in_smaps() * PMD_PAGES * PAGE_BYTES,
        lazy_free_bytes: kernel.lazy_free_pages() * PAGE_BYTES,
        vmas: kernel.vma_count(),
        page_table_bytes: kernel.page_table_bytes(),
        pmd_splits: kernel.counters().pmd_splits,
    }
}

impl Checked {
    /// A description of the first difference.
    pub fn difference(&self) -> Option<String> {
        let Verdict::Differs(Difference { step }) = self.verdict else { return None };
        let (Some(predicted), Some(measured)) = (self.predicted.get(step), self.measured.get(step)) else {
            return Some(format!(
                "{} operations were predicted, {} executed",
                self.predicted.len(),
                self.measured.len()
            ));
        };
        let mut unlike = Vec::new();
        let mut note = |name: &str, predicted: i64, measured: i64| {
            if predicted != measured {
                unlike.push(format!("{name} predicted {predicted}, measured {measured}"));
            }
        };
        let (did, left) = ((&predicted.did, &measured.did), (&predicted.left, &measured.left));
        note("ret", did.0.ret, did.1.ret);
        note("errno", did.0.errno.into(), did.1.errno.into());
        note("faults", did.0.faults as i64, did.1.faults as i64);
        note("traps", did.0.traps as i64, did.1.traps as i64);
        note("Rss bytes", left.0.rss_bytes as i64, left.1.rss_bytes as i64);
        note("AnonHugePages bytes", left.0.anon_huge_bytes as i64, left.1.anon_huge_bytes as i64);
        note("LazyFree bytes", left.0.lazy_free_bytes as i64, left.1.lazy_free_bytes as i64);
        note("mappings", left.0.vmas as i64, left.1.vmas as i64);
        note("page table bytes", left.0.page_table_bytes as i64, left.1.page_table_bytes as i64);
        note("entry splits", left.0.pmd_splits as i64, left.1.pmd_splits as i64);
        unlike.extend(first_unlike_page(&left.0.pages, &left.1.pages));
        Some(format!("operation {}: {}", step + 1, unlike.join("; ")))
    }
}

fn first_unlike_page(predicted: &[PageRun], measured: &[PageRun]) -> Option<String> {
    let pages = |runs: &[PageRun]| -> Vec<_> {
        runs.iter().flat_map(|run| std::iter::repeat_n(run.0, run.1 as usize)).collect()
    };
    let (predicted, measured) = (pages(predicted), pages(measured));
    let at = predicted.iter().zip(&measured).position(|(a, b)| a != b)?;
    let count = predicted.iter().zip(&measured).filter(|(a, b)| a != b).count();
    Some(format!("{count} pages differ, first page {at}: predicted {:?}, measured {:?}", predicted[at], measured[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_while_memory_is_short_do_not_count() {
        let config = KernelConfig::default();
        let [one, two] = ["w 0 1 1", "w 0 2 1"].map(|line| predict(&config, &line.parse().expect("a valid script")));
        let measured = |shortage| Measured { observations: two.clone(), collapsed: 0, shortage };
        assert_eq!(compare(&one, &measured(0)), Verdict::Differs(Difference { step: 0 }));
        assert!(matches!(compare(&one, &measured(1)), Verdict::Disturbed(why) if why.contains("memory was short")));
        assert_eq!(compare(&two, &measured(1)), Verdict::Equal);
    }
}
