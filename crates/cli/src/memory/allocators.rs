//! `hksim sweep --allocators`: replays traces on real allocators, and predicts each under every setting.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_linux_mm::ThpMode;
use hksim_memory_sim::{MemoryRow, Setting};
use hksim_replay::compare::{Found, expanded};
use hksim_results::sim::MemorySweepResult;
use hksim_results::site_installs::TraceSites;
use hksim_text::units;
use hksim_validate::memory::replayed::{predict_replay, replay_of};

use super::settings::MemoryArgs;
use super::sim::{Printed, emit_rows};
use super::validate::OnScreen;
use crate::allocators;
use crate::flags::{BaseKernel, PolicyArgs};
use crate::inputs;
use crate::output::progress::Progress;
use crate::output::{ResultFormat, warn};

/// Exit status when a library crashed.
const CHECK_FAILED: u8 = 1;

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
#[derive(Default)]
pub struct Swept {
    /// The rows of all replays that ended well; `None` if none did.
    pub result: Option<MemorySweepResult>,
    /// For each replay without a row: whether its library crashed. Otherwise it cannot be loaded or recorded.
    are_crashes: Vec<bool>,
}

impl Swept {
    /// Says that rows are missing, after the others were printed and drawn. The exit status is that of `compare`.
    ///
    /// # Errors
    /// A replay failed, and not by a crash of its library.
    pub fn status(&self) -> Result<ExitCode> {
        if self.are_crashes.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let missing = units::of(self.are_crashes.len() as u64, "replay");
        let message = format!("--allocators: {missing} failed; their rows are missing");
        if self.are_crashes.contains(&false) {
            bail!(message);
        }
        warn(&message);
        Ok(ExitCode::from(CHECK_FAILED))
    }
}

/// Replays each trace once on each allocator, and predicts every setting. A replay that fails leaves its rows out.
///
/// # Errors
/// Bad input, or no allocator is installed.
pub fn sweep(request: &Request<'_>) -> Result<Swept> {
    let Request { traces, memory, printed, .. } = *request;
    if traces.is_empty() {
        bail!("--allocators: name at least one trace (.hkt)");
    }
    if memory.by.is_some() && !matches!(printed.output.format, ResultFormat::Table | ResultFormat::Json) {
        bail!("--by site: only the table and --format json have room for call sites");
    }
    printed.check()?;
    let settings = memory.settings(request.policy, BaseKernel::AsItComes)?;
    let named = |word: &String| allocators::named("allocators", if word == "hksim" { "native" } else { word });
    let words = expanded(request.allocators).context("--allocators")?;
    let allocators = words.iter().map(named).collect::<Result<Vec<_>>>()?;
    let sites = traces.iter().map(|path| memory.by.map(|_| TraceSites::of(path)).transpose());
    let sites = sites.collect::<Result<Vec<_>, _>>()?;
    let folder = tempfile::tempdir().context("cannot create a temporary directory; set TMPDIR")?;
    let progress = Progress::of((traces.len() * allocators.len()) as u64, "replays");
    let plain: Vec<Setting> = settings.iter().map(|named| named.setting.clone()).collect();
    let modes: BTreeSet<_> = settings.iter().map(|named| named.config.thp.map(ThpMode::word)).collect();
    let (mut rows, mut by_site, mut swept) = (Vec::new(), Vec::new(), Swept::default());
    for (path, mut sites) in traces.iter().zip(sites) {
        let trace = inputs::file(path)?;
        for (allocator, word) in allocators.iter().zip(&words) {
            match &allocator.found {
                Found::Here(target) => {
                    let spec = replay_of(path, &trace, target);
                    match predict_replay(&spec, word, &plain, &folder.path().join("replay.hkm"), &OnScreen) {
                        Ok(predicted) => {
                            rows.extend(predicted);
                            by_site.extend(sites.iter_mut().flat_map(|sites| sites.installs(&spec, word, &modes)));
                        }
                        Err(why) => {
                            swept.are_crashes.push(why.is_crash());
                            warn(&format!("failed: {:#}", anyhow::Error::from(why)));
                        }
                    }
                }
                Found::Missing(why) => warn(&format!("skipped: {word}: {why}")),
            }
            progress.advance(1);
        }
        sites.iter().flat_map(TraceSites::notes).for_each(warn);
    }
    drop(progress);
    if rows.is_empty() && swept.are_crashes.is_empty() {
        bail!("--allocators: none of them is installed");
    }
    let rows: Vec<_> = rows.into_iter().map(|row: MemoryRow| row.priced(request.profile)).collect();
    let result = (!rows.is_empty()).then(|| emit_rows(rows, by_site, &settings, printed)).transpose()?;
    Ok(Swept { result, ..swept })
}
