//! The figures that a result can be drawn as.

use hksim_results::Kind;

use crate::error::Result;

use super::medium::Medium;
use super::sketch::Sketch;
use super::subject::Subject;
use super::{bars, comparison, designs, huge, miss_curves, occupancy, page_map, ranges};

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Installs against peak RSS, and RSS over time (sweep, sim, explain)
    Designs,
    /// The state of every page over time (explain)
    PageMap,
    /// Live bytes of each SuperSlab over time (explain)
    Occupancy,
    /// Memory in huge pages over time (sweep, sim, explain)
    Huge,
    /// Installs by reason (sim, explain, explain --on)
    Reasons,
    /// Installs by size class (explain, explain --on)
    Classes,
    /// Installs by function of the library (explain --on)
    Functions,
    /// TLB misses by number of entries (sim --tlb, of a trace with every access)
    Tlb,
    /// Times and memory of allocators side by side (compare, trial)
    Allocators,
    /// 2 MiB ranges by address: huge, or why not (inspect)
    Ranges,
}

impl Figure {
    /// All figures, in the order of a report.
    pub const ALL: [Figure; 10] = [
        Figure::Designs,
        Figure::Huge,
        Figure::PageMap,
        Figure::Occupancy,
        Figure::Reasons,
        Figure::Classes,
        Figure::Functions,
        Figure::Tlb,
        Figure::Allocators,
        Figure::Ranges,
    ];

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Figure::Designs => "designs",
            Figure::PageMap => "page-map",
            Figure::Occupancy => "occupancy",
            Figure::Huge => "huge",
            Figure::Reasons => "reasons",
            Figure::Classes => "classes",
            Figure::Functions => "functions",
            Figure::Tlb => "tlb",
            Figure::Allocators => "allocators",
            Figure::Ranges => "ranges",
        }
    }

    /// What it shows, and the commands whose results have its data.
    pub fn help(self) -> &'static str {
        match self {
            Figure::Designs => "Installs against peak RSS, and RSS over time (sweep, sim, explain)",
            Figure::PageMap => "The state of every page over time (explain)",
            Figure::Occupancy => "Live bytes of each SuperSlab over time (explain)",
            Figure::Huge => "Memory in huge pages over time (sweep, sim, explain)",
            Figure::Reasons => "Installs by reason (sim, explain, explain --on)",
            Figure::Classes => "Installs by size class (explain, explain --on)",
            Figure::Functions => "Installs by function of the library (explain --on)",
            Figure::Tlb => "TLB misses by number of entries (sim --tlb, of a trace with every access)",
            Figure::Allocators => "Times and memory of allocators side by side (compare, trial)",
            Figure::Ranges => "2 MiB ranges by address: huge, or why not (inspect)",
        }
    }

    /// What the figure shows.
    pub fn title(self) -> &'static str {
        match self {
            Figure::Designs => "Installs and memory",
            Figure::PageMap => "Pages over time",
            Figure::Occupancy => "Occupancy of SuperSlabs",
            Figure::Huge => "Memory in huge pages",
            Figure::Reasons => "Installs by reason",
            Figure::Classes => "Installs by size class",
            Figure::Functions => "Installs by function",
            Figure::Tlb => "TLB misses",
            Figure::Allocators => "Allocators side by side",
            Figure::Ranges => "2 MiB ranges by address",
        }
    }

    /// The figure of a result for which none was named.
    pub fn of(subject: &Subject<'_>) -> Figure {
        match Kind::of("", subject.result) {
            Ok(Kind::Compare | Kind::Trial | Kind::Choice) => Figure::Allocators,
            Ok(Kind::ExplainLibrary) => Figure::Reasons,
            Ok(Kind::Inspect) => Figure::Ranges,
            _ => Figure::Designs,
        }
    }

    /// The figure; `None` if the result does not have its data.
    ///
    /// # Errors
    /// The result is damaged.
    pub fn sketch<'a>(self, subject: &'a Subject<'_>, medium: Medium) -> Result<Option<Sketch<'a>>> {
        match self {
            Figure::Designs => Ok(designs::sketch(&subject.panels, medium)),
            Figure::PageMap => page_map::sketch(subject.result, medium),
            Figure::Occupancy => occupancy::sketch(subject.result, medium),
            Figure::Huge => Ok(huge::sketch(&subject.panels, medium)),
            Figure::Reasons => bars::reasons(subject, medium),
            Figure::Classes => bars::classes(subject, medium),
            Figure::Functions => bars::functions(subject, medium),
            Figure::Tlb => miss_curves::sketch(subject, medium),
            Figure::Allocators => comparison::of_result(subject.result),
            Figure::Ranges => ranges::sketch(subject.result, medium),
        }
    }
}
