//! Replays of traces on allocators that flags name, for choices and promises.

use anyhow::Result;
use hksim_choose::{Predictions, Replays, TraceFile};
use hksim_engine::TouchRule;
use hksim_explore::inputs::Trace;
use hksim_linux_mm::ThpMode;
use hksim_replay::Mode;
use hksim_replay::compare::{Allocator, meaning};
use hksim_trial::Machine;

use crate::allocators;
use crate::memory::validate::OnScreen;
use crate::output::note;
use crate::output::progress::Progress;

/// What is replayed.
pub struct Replayed<'a> {
    /// The flag that names the allocators.
    pub flag: &'a str,
    /// Trace files.
    pub traces: &'a [Trace],
    /// Their weights.
    pub weights: &'a [f64],
    /// Huge-page modes that are needed besides the machine's.
    pub modes: &'a [ThpMode],
    /// The seed of the order of runs.
    pub seed: u64,
}

/// Does something with replays of the traces. Modes of the machine that they changed are restored then.
///
/// # Errors
/// Those of `work`.
pub fn with_bench<T>(replayed: &Replayed<'_>, work: impl FnOnce(&mut Replays<'_>) -> Result<T>) -> Result<T> {
    let &Replayed { flag, traces, weights, modes, seed } = replayed;
    let needed: Vec<Option<ThpMode>> = modes.iter().copied().map(Some).collect();
    let (machine, modes_refused) = Machine::with(&needed, &OnScreen);
    let progress = Progress::of(0, "replays");
    let done = || {
        progress.expect_more(1);
        progress.advance(1);
    };
    let lookup = |word: &str| program_has(flag, word).map_err(|why| format!("{why:#}"));
    let file = |(trace, &weight): (&Trace, &f64)| {
        let touch = TouchRule::usual(trace.header.touch);
        Some(TraceFile { path: trace.input.file.clone()?.into(), name: trace.name(), weight, touch })
    };
    let traces = traces.iter().zip(weights).filter_map(file).collect();
    work(&mut Replays {
        traces,
        mode: Mode::Ordered,
        lookup: &lookup,
        machine,
        modes_refused,
        predictions: Predictions::default(),
        seed,
        done: &done,
    })
}

/// An allocator as a program has it.
///
/// # Errors
/// The word names none.
pub fn program_has(flag: &str, word: &str) -> Result<Allocator> {
    allocators::as_programs_have_it(allocators::named(flag, word)?)
}

/// Says which allocator a word means, if that is not clear.
pub fn note_meaning(flag: &str, word: &str) {
    let kind = word.split_once(':').map_or(word, |(kind, _)| kind);
    if let Some(meant) = meaning(kind) {
        note(&format!(
            "--{flag} {kind}: this is {meant}; Google's TCMalloc is another allocator: give its library's path"
        ));
    }
}
