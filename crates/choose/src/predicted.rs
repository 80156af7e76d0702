//! Pages under huge-page modes that this machine cannot set: predicted from the page operations of one replay.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_linux_mm::{KernelConfig, ThpConfig, ThpMode};
use hksim_memory_sim::{Detail, Setting, predict};
use hksim_policy::Policy;
use hksim_replay::ReplaySpec;
use hksim_validate::memory::replayed::record_replay;

use crate::bench::Counts;

/// The modes that are predicted.
const MODES: [ThpMode; 3] = [ThpMode::Never, ThpMode::Madvise, ThpMode::Always];

/// Pages of a replay and of its process under each of the modes.
type Pages = [(ThpMode, Counts); MODES.len()];

/// Predictions so far, by allocator and number of the trace.
#[derive(Debug, Default)]
pub struct Predictions(BTreeMap<(String, usize), Result<Pages, String>>);

impl Predictions {
    /// The pages of a replay under a mode: those that were `measured` under the machine's mode `here`, and the predicted
    /// difference, which is free of the memory that the process itself needs. The replay is recorded once for all modes.
    pub(crate) fn counts(
        &mut self,
        (word, trace): (&str, usize),
        spec: &ReplaySpec,
        measured: &Counts,
        (here, mode): (ThpMode, ThpMode),
    ) -> Result<Counts, String> {
        let pages = match self.0.entry((word.to_string(), trace)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(pages(spec)),
        };
        let pages = pages.as_ref().map_err(Clone::clone)?;
        let of = |mode: ThpMode| pages.iter().find(|(known, _)| *known == mode).map(|(_, counts)| *counts);
        let (before, after) = of(here).zip(of(mode)).ok_or("the machine's mode is unknown")?;
        let changed = |figure: fn(&Counts) -> Option<u64>| {
            Some((figure(measured)? + figure(&after)?).saturating_sub(figure(&before)?))
        };
        Ok(Counts {
            rss_bytes_peak: changed(|counts| counts.rss_bytes_peak),
            rss_bytes_end: changed(|counts| counts.rss_bytes_end),
            faults: changed(|counts| counts.faults),
        })
    }
}

/// Records a replay and predicts its process under each mode.
fn pages(spec: &ReplaySpec) -> Result<Pages, String> {
    let folder =
        tempfile::tempdir().map_err(|why| format!("cannot create a temporary directory: {why}; set TMPDIR"))?;
    let recording = folder.path().join("replay.hkm");
    let kernel = RunConfig::of(Policy::DEFAULT).kernel(BaseKernel::Host).map_err(|why| why.to_string())?;
    let setting = |mode: ThpMode| {
        let thp = ThpConfig { global: mode, ..kernel.thp };
        let kernel = KernelConfig { thp, ..kernel.clone() };
        Setting::recorded(kernel)
    };
    record_replay(spec, &recording, None).map_err(|why| why.to_string())?;
    let rows = predict(&recording, &MODES.map(setting), false, Detail::Figures).map_err(|why| why.to_string())?.rows;
    let counts = rows.iter().map(|row| Counts {
        rss_bytes_peak: Some(row.prediction.rss_bytes_peak),
        rss_bytes_end: Some(row.prediction.rss_bytes_end),
        faults: Some(row.prediction.faults),
    });
    let pages: Vec<(ThpMode, Counts)> = MODES.into_iter().zip(counts).collect();
    Pages::try_from(pages).map_err(|_| "a mode could not be predicted".to_string())
}
