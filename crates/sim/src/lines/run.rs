//! Simulations in which cache lines are counted.

use std::ops::Range;

use hksim_linux_mm::Kernel;
use hksim_policy::PAGE_BYTES;
use hksim_trace::source::EventSource;

use super::{Accessor, LineCounts, LineModel};
use crate::observer::{Accesses, Cause};
use crate::placed::{Points, Run, accounting_of, needs_metadata_writes};
use crate::pump::pump;
use crate::report::TraceLabel;
use crate::simulate::{Marks, SimConfig, SimError, Simulated, finish, wanted_points};
use crate::tlb::PageSize;
use crate::translations::{Change, TranslationObserver, Translations, page_size};

/// A line model as an observer. `EVERY` is for runs in which the kernel's state needs every access.
#[derive(Default)]
struct Lines<const EVERY: bool>(LineModel);

impl<const EVERY: bool> Translations for Lines<EVERY> {
    const USED: bool = false;
    const ACCESSES: Accesses = if EVERY { Accesses::Every } else { Accesses::Lines };
    const SEES_INSTALLS: bool = true;

    fn access(&mut self, _page: u64, _size: PageSize, _cause: Cause) {}

    fn changed(&mut self, _pages: &Range<u64>, _by: Change) {}

    #[inline(always)]
    fn access_bytes(&mut self, kernel: &Kernel, bytes: Range<u64>, cause: Cause) {
        self.0.access(bytes, Accessor::of(cause), |page| page_size(kernel, page));
    }

    fn access_table(&mut self, kernel: &Kernel, bytes: Range<u64>) {
        self.access_bytes(kernel, bytes, Cause::Metadata);
    }

    fn installed(&mut self, pages: Range<u64>) {
        // What the kernel misses is not looked at by page size.
        self.0.access(pages.start * PAGE_BYTES..pages.end * PAGE_BYTES, Accessor::Kernel, |_| PageSize::Base);
    }
}

/// As [`simulate`](crate::simulate()), and counts accesses to cache lines; `config.tlb` is ignored. Takes some
/// hundred instructions more per event, and a hundred per line that is touched.
///
/// # Errors
/// Those of [`simulate`](crate::simulate()).
pub fn simulate_lines(
    source: &mut (dyn EventSource + Send),
    config: &SimConfig,
    marks: Marks,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Simulated, LineCounts), SimError> {
    let config = SimConfig { tlb: None, ..config.clone() };
    match needs_metadata_writes(&config) {
        true => run(source, &config, marks, progress, Lines::<true>::default),
        false => run(source, &config, marks, progress, Lines::<false>::default),
    }
}

fn run<const EVERY: bool>(
    source: &mut (dyn EventSource + Send),
    config: &SimConfig,
    marks: Marks,
    progress: &(dyn Fn(u64) + Sync),
    lines: impl Fn() -> Lines<EVERY>,
) -> Result<(Simulated, LineCounts), SimError> {
    let (trace, summary) = (TraceLabel::of(config.file.clone(), source), *source.summary());
    let points = Points::new(summary.events, wanted_points(source, marks)?, marks != Marks::Skip);
    let observer = |config: &SimConfig| TranslationObserver::new(accounting_of(config), lines());
    let mut runs = [Run::new(&[config], observer, trace, summary, points)?];
    pump(source, &mut runs, progress)?;
    let [run] = runs;
    let counts = run.observer().translations.0.counts();
    Ok((finish(Box::new(run)), counts))
}
