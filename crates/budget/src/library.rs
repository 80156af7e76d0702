//! What grew in an allocator's library, if that changed and the trace did not: installs by function and size of request.

use std::path::Path;

use hksim_attribution::explain;
use hksim_engine::TouchRule;
use hksim_replay::{HugePages, ReplaySpec, Target};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use crate::checked::{CheckedRow, Difference};
use crate::checksum::checksum;
use crate::consumers::{Consumer, Consumers, Quantity, joined};
use crate::error::BudgetError;
use crate::growth::{Growth, grown, largest};
use crate::replayed::{here, spec};
use crate::row::{Row, Stored, Subject};
use crate::run::{Design, Named};

/// The traces and allocators of the rows.
pub struct Libraries<'a> {
    /// The folder of the budget, to which paths of traces are relative.
    pub folder: &'a Path,
    /// The designs.
    pub designs: &'a [Design],
}

impl Libraries<'_> {
    /// The installs of each row that was replayed on an allocator, to be stored. A row whose page faults cannot be recorded
    /// on this machine has none.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn installs(&self, rows: &[CheckedRow]) -> Result<Vec<Consumers>, BudgetError> {
        let mut all = Vec::new();
        for CheckedRow { row, .. } in rows {
            if let Some(spec) = self.spec(row)?
                && let Ok(consumers) = installs(&spec)
            {
                all.push(Consumers { trace: row.trace.clone(), design: Some(row.design.clone()), consumers });
            }
        }
        Ok(all)
    }

    /// Adds what grew to rows that broke a limit, if their allocator is another one than in the stored result, and their
    /// trace is the same.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn add_growth(&self, rows: &mut [CheckedRow], stored: &Stored) -> Result<(), BudgetError> {
        for checked in rows.iter_mut().filter(|checked| !checked.is_within() && has_other_library(checked)) {
            let Some(spec) = self.spec(&checked.row)? else { continue };
            match growth(&spec, &checked.row, stored) {
                Ok(found) if found.is_empty() => {}
                Ok(found) => checked.growth = Some(found),
                Err(why) => checked.library_growth_skipped = Some(why),
            }
        }
        Ok(())
    }

    /// The replay of a row on its allocator; `None` if the row was not replayed on a library.
    fn spec(&self, row: &Row) -> Result<Option<ReplaySpec>, BudgetError> {
        let named = self.designs.iter().find(|design| design.name == row.design);
        let Some(design @ Design { named: Named::Allocator(allocator), .. }) = named else { return Ok(None) };
        let target = here(design, allocator)?;
        if !matches!(target, Target::Malloc { .. }) {
            return Ok(None);
        }
        let path = self.folder.join(&row.trace);
        let touch = TouchRule::usual(TraceReader::open(&path)?.header().touch);
        Ok(Some(spec(&path, target, touch)))
    }
}

/// Whether the allocator's library changed since the stored result, and the trace did not.
fn has_other_library(checked: &CheckedRow) -> bool {
    let is_library = |one: &Difference| matches!(one, Difference::Library { .. } | Difference::Subject { .. });
    let is_trace = |one: &Difference| matches!(one, Difference::Trace { .. });
    checked.differences.iter().any(is_library) && !checked.differences.iter().any(is_trace)
}

/// What grew since the stored result, by replays on both libraries if both are there, else by the installs that the
/// stored result has.
fn growth(spec: &ReplaySpec, row: &Row, stored: &Stored) -> Result<Vec<Growth>, String> {
    const UNKNOWN: &str = "the stored result does not have the installs of its library; store it again with --update";
    let is_same = |one: &&Row| (&one.trace, &one.design) == (&row.trace, &row.design);
    let older = stored.rows.iter().find(is_same).and_then(|before| older(spec, &row.subject, &before.subject));
    let before = match older {
        Some(older) => installs(&older)?,
        None => {
            let known = stored.libraries.iter().find(|known| known.are_of(&row.trace, &row.design));
            known.ok_or(UNKNOWN)?.consumers.clone()
        }
    };
    Ok(largest(grown(Quantity::LibraryInstalls, &before, &installs(spec)?)))
}

/// The same replay on the library of a stored row, if that is still there and has the same settings.
fn older(spec: &ReplaySpec, now: &Subject, before: &Subject) -> Option<ReplaySpec> {
    let (Subject::Allocator { on: now, .. }, Subject::Allocator { on, library, library_checksum }) = (now, before)
    else {
        return None;
    };
    let (library, stored) = (library.as_ref()?, library_checksum.as_ref()?);
    let Target::Malloc { variables, .. } = &spec.on else { return None };
    let is_there = settings(now) == settings(on) && checksum(library).is_ok_and(|here| here == *stored);
    let on = Target::Malloc { preload: Some(library.clone()), variables: variables.clone() };
    is_there.then(|| ReplaySpec { on, ..spec.clone() })
}

/// The settings of an allocator's word.
fn settings(word: &str) -> &str {
    word.split_once(':').map_or("", |(_, settings)| settings)
}

/// The installs of a replay by function of the library and size class of requests.
fn installs(spec: &ReplaySpec) -> Result<Vec<Consumer>, String> {
    let explained = explain(spec, HugePages::AsTheyAre).map_err(|why| why.to_string())?;
    let causes = explained.breakdown.causes.iter();
    let consumers = causes.flat_map(|(key, counts)| {
        let function = explained.functions.name(key.function);
        counts.classes.iter().map(|(&bytes_max, &installs)| Consumer {
            stack: vec![function.to_string()],
            caller: function.to_string(),
            bytes_max,
            quantities: [(Quantity::LibraryInstalls, installs)].into(),
        })
    });
    Ok(joined(consumers.collect()))
}
