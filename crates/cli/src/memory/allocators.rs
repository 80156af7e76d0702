//! `hksim sweep --allocators`: replays traces on real allocators, and predicts each under every setting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_linux_mm::ThpMode;
use hksim_linux_probe::sysfs;
use hksim_memory_sim::Detail;
use hksim_replay::{Measure, Mode, ReplaySpec, Target};
use hksim_trace::header::TouchSource;

use super::predict::predict;
use super::replayed::record_replay;
use super::settings::{MemoryArgs, NamedSetting};
use super::sim::{Printed, emit_rows};
use crate::allocators;
use crate::flags::{BaseKernel, PolicyArgs};
use crate::inputs;
use crate::output::progress::Progress;
use crate::output::warn;
use hksim_explore::inputs::Trace;
use hksim_memory_sim::{AllocatorLabel, MemoryRow};
use hksim_replay::compare::Found;
use hksim_results::sim::MemorySweepResult;

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

/// Replays each trace once on each allocator, and predicts every setting.
///
/// # Errors
/// Bad input, or a replay fails.
pub fn sweep(request: &Request<'_>) -> Result<MemorySweepResult> {
    if request.traces.is_empty() {
        bail!("--allocators: name at least one trace (.hkt)");
    }
    if request.memory.by.is_some() {
        bail!(
            "--by site: the callers in a replay are hksim's own, not the program's; record the program with --memory --stacks"
        );
    }
    request.printed.check()?;
    let settings = request.memory.settings(request.policy, BaseKernel::AsItComes)?;
    let named = |word: &String| allocators::named("allocators", if word == "hksim" { "native" } else { word });
    let allocators = request.allocators.iter().map(named).collect::<Result<Vec<_>>>()?;
    let folder = tempfile::tempdir().context("cannot create a temporary directory; set TMPDIR")?;
    let progress = Progress::of((request.traces.len() * allocators.len()) as u64, "replays");
    let mut rows = Vec::new();
    for path in request.traces {
        let trace = inputs::file(path)?;
        for (allocator, word) in allocators.iter().zip(request.allocators) {
            match &allocator.found {
                Found::Here(target) => {
                    let spec = spec(path, &trace, target);
                    rows.extend(replay_and_predict(&spec, word, &settings, &folder.path().join("replay.hkm"))?);
                }
                Found::Missing(why) => warn(&format!("skipped: {word}: {why}")),
            }
            progress.advance(1);
        }
    }
    drop(progress);
    if rows.is_empty() {
        bail!("--allocators: none of them is installed");
    }
    let rows: Vec<_> = rows.into_iter().map(|row: MemoryRow| row.priced(request.profile)).collect();
    emit_rows(rows, &settings, request.printed)
}

fn spec(path: &Path, trace: &Trace, target: &Target) -> ReplaySpec {
    let touch = if trace.header.touch == TouchSource::Assumed { TouchRule::All } else { TouchRule::Recorded };
    ReplaySpec {
        trace: path.to_path_buf(),
        on: target.clone(),
        touch,
        memory_policy: MemoryPolicyRule::default(),
        mode: Mode::Ordered,
        measure: Measure::default(),
        stop_at: None,
        forks: Vec::new(),
    }
}

fn replay_and_predict(
    spec: &ReplaySpec,
    word: &str,
    settings: &[NamedSetting],
    recording: &Path,
) -> Result<Vec<MemoryRow>> {
    let (library, environment) = match &spec.on {
        Target::Malloc { preload, variables } => (preload.clone(), variables.iter().cloned().collect()),
        Target::Native(_) | Target::Design { .. } => (None, BTreeMap::new()),
    };
    let label = AllocatorLabel { name: word.to_string(), library, environment, trace: spec.trace.clone() };
    let mut rows: Vec<Option<MemoryRow>> = settings.iter().map(|_| None).collect();
    for mode in [ThpMode::Always, ThpMode::Madvise, ThpMode::Never] {
        let chosen: Vec<usize> =
            (0..settings.len()).filter(|&at| settings[at].setting.kernel.thp.global == mode).collect();
        if chosen.is_empty() {
            continue;
        }
        let of_mode: Vec<NamedSetting> = chosen.iter().map(|&at| settings[at].clone()).collect();
        record_replay(spec, recording, shown_mode(mode)?)
            .with_context(|| format!("{word} on {}", spec.trace.display()))?;
        for (&at, row) in chosen.iter().zip(predict(recording, &of_mode, None, Detail::Figures)?) {
            rows[at] = Some(MemoryRow { allocator: Some(label.clone()), ..row });
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// The mode that an allocator must read at its start to behave as under this one: some advise their memory under one mode
/// only. `None` if the machine's mode serves.
fn shown_mode(mode: ThpMode) -> Result<Option<&'static str>> {
    let word = mode.word();
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(Some(word));
    }
    match sysfs::choice(&format!("{}/enabled", sysfs::THP)) {
        Some(here) if here == word => Ok(None),
        here => bail!(
            "--thp {word}: allocators read the machine's mode ({}) at their start; run as root, so that they see this \
             one, or leave --thp out",
            here.as_deref().unwrap_or("no huge pages")
        ),
    }
}
