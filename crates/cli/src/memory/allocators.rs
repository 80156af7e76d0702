//! `hksim sweep --allocators`: replays traces on real allocators, and predicts each under every setting.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_memory_sim::{MemoryRow, Setting};
use hksim_replay::compare::{Found, expanded};
use hksim_results::sim::MemorySweepResult;
use hksim_text::units;
use hksim_validate::memory::replayed::{predict_replay, replay_of};

use super::settings::MemoryArgs;
use super::sim::{Printed, emit_rows};
use super::validate::OnScreen;
use crate::allocators;
use crate::flags::{BaseKernel, PolicyArgs};
use crate::inputs;
use crate::output::progress::Progress;
use crate::output::warn;

/// What to sweep.
pub struct Request<'a> {
    /// Traces of allocator calls.
    pub traces: &'a [PathBuf],
    /// Allocators with their settings.
    pub allocators: &'a [String],
    /// Flags of the kernel.
    pub policy: &'a PolicyArgs,
    /// Edits of the recordings.
    pub memory: &'a MemoryArgs,
    /// The costs of a machine.
    pub profile: Option<&'a Profile>,
    /// How the result is printed.
    pub printed: &'a Printed<'a>,
}

/// What a sweep of allocators found.
pub struct Swept {
    /// The rows of all replays that ended well.
    pub result: MemorySweepResult,
    /// Replays without a row.
    pub failed: usize,
}

impl Swept {
    /// Says that rows are missing, after the others were printed and drawn.
    ///
    /// # Errors
    /// A replay failed.
    pub fn whole(&self) -> Result<()> {
        if self.failed > 0 {
            bail!("--allocators: {} failed; their rows are missing", units::of(self.failed as u64, "replay"));
        }
        Ok(())
    }
}

/// Replays each trace once on each allocator, and predicts every setting. A replay that fails leaves its rows out.
///
/// # Errors
/// Bad input, or no allocator has a row.
pub fn sweep(request: &Request<'_>) -> Result<Swept> {
    if request.traces.is_empty() {
        bail!("--allocators: name at least one trace (.hkt)");
    }
    if request.memory.by.is_some() {
        bail!(
            "--by site: the callers in a replay are hksim's own; `hksim explain TRACE --on LIB` has the installs of each \
             call site of the trace, and `record --memory --stacks` those of a program"
        );
    }
    request.printed.check()?;
    let settings = request.memory.settings(request.policy, BaseKernel::AsItComes)?;
    let named = |word: &String| allocators::named("allocators", if word == "hksim" { "native" } else { word });
    let words = expanded(request.allocators).context("--allocators")?;
    let allocators = words.iter().map(named).collect::<Result<Vec<_>>>()?;
    let folder = tempfile::tempdir().context("cannot create a temporary directory; set TMPDIR")?;
    let progress = Progress::of((request.traces.len() * allocators.len()) as u64, "replays");
    let plain: Vec<Setting> = settings.iter().map(|named| named.setting.clone()).collect();
    let (mut rows, mut failed) = (Vec::new(), 0);
    for path in request.traces {
        let trace = inputs::file(path)?;
        for (allocator, word) in allocators.iter().zip(&words) {
            match &allocator.found {
                Found::Here(target) => {
                    let spec = replay_of(path, &trace, target);
                    let recording = folder.path().join("replay.hkm");
                    match predict_replay(&spec, word, &plain, &recording, &OnScreen) {
                        Ok(predicted) => rows.extend(predicted),
                        Err(why) => {
                            warn(&format!("failed: {:#}", anyhow::Error::from(why)));
                            failed += 1;
                        }
                    }
                }
                Found::Missing(why) => warn(&format!("skipped: {word}: {why}")),
            }
            progress.advance(1);
        }
    }
    drop(progress);
    if rows.is_empty() {
        bail!("--allocators: {}", if failed > 0 { "every replay failed" } else { "none of them is installed" });
    }
    let rows: Vec<_> = rows.into_iter().map(|row: MemoryRow| row.priced(request.profile)).collect();
    Ok(Swept { result: emit_rows(rows, &settings, request.printed)?, failed })
}
