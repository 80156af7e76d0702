//! Prediction against measurement, for any allocator: the figures that both a simulation and a replay report.

use std::fmt::Debug;

use crate::{ByKind, OsCalls, PageSet};

/// The present pages after a number of events. Pages are numbered from the start of the allocator's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagesAt {
    /// Events performed.
    pub event: u64,
    /// The pages.
    pub pages: PageSet,
}

/// The figures of a run. `None` is a figure that the machine could not measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Digest of all placements, in hexadecimal digits.
    pub placement_digest: Option<String>,
    /// Page-table installs by kind.
    pub installs: Option<ByKind>,
    /// Faults charged to `ru_minflt`.
    pub faults: Option<u64>,
    /// #PF exceptions of the program.
    pub traps: Option<u64>,
    /// Highest resident bytes.
    pub rss_bytes_peak: Option<u64>,
    /// Resident bytes at the end.
    pub rss_bytes_end: Option<u64>,
    /// Highest number of mappings.
    pub vmas_peak: Option<u64>,
    /// Highest bytes of page tables.
    pub page_table_bytes_peak: Option<u64>,
    /// System calls of the allocator.
    pub os_calls: Option<OsCalls>,
    /// System calls that failed.
    pub os_calls_failed: Option<u64>,
    /// Requests that the allocator could not serve.
    pub requests_failed: u64,
    /// Events performed.
    pub events: u64,
    /// The present pages at the trace's marks (without marks, at 16 evenly spaced points) and at its end.
    pub pages: Vec<PagesAt>,
}

/// A figure that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name, that of the field in [`Figures`].
    pub figure: &'static str,
    /// As predicted.
    pub predicted: String,
    /// As measured.
    pub measured: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: predicted {}, measured {}", self.figure, self.predicted, self.measured)
    }
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Figures that differ. If there are none, every measured figure equals its prediction.
    pub differences: Vec<Difference>,
    /// Names of figures that were not measured.
    pub not_measured: Vec<&'static str>,
}

impl Comparison {
    /// Compares every figure.
    pub fn of(predicted: &Figures, measured: &Figures) -> Comparison {
        let mut comparison = Comparison::default();
        let (theirs, ours) = (measured, predicted);
        comparison.compare("placement_digest", &ours.placement_digest, &theirs.placement_digest);
        comparison.compare("installs", &ours.installs, &theirs.installs);
        comparison.compare("faults", &ours.faults, &theirs.faults);
        comparison.compare("traps", &ours.traps, &theirs.traps);
        comparison.compare("rss_bytes_peak", &ours.rss_bytes_peak, &theirs.rss_bytes_peak);
        comparison.compare("rss_bytes_end", &ours.rss_bytes_end, &theirs.rss_bytes_end);
        comparison.compare("vmas_peak", &ours.vmas_peak, &theirs.vmas_peak);
        comparison.compare("page_table_bytes_peak", &ours.page_table_bytes_peak, &theirs.page_table_bytes_peak);
        comparison.compare("os_calls", &ours.os_calls, &theirs.os_calls);
        comparison.compare("os_calls_failed", &ours.os_calls_failed, &theirs.os_calls_failed);
        comparison.compare("requests_failed", &Some(ours.requests_failed), &Some(theirs.requests_failed));
        comparison.compare("events", &Some(ours.events), &Some(theirs.events));
        comparison.compare_pages(&ours.pages, &theirs.pages);
        comparison
    }

    /// Whether every figure was measured and equals its prediction.
    pub fn is_exact(&self) -> bool {
        self.differences.is_empty() && self.not_measured.is_empty()
    }

    fn compare<T: PartialEq + Debug>(&mut self, figure: &'static str, predicted: &Option<T>, measured: &Option<T>) {
        match (predicted, measured) {
            (_, None) | (None, _) => self.not_measured.push(figure),
            (Some(predicted), Some(measured)) if predicted == measured => {}
            (Some(predicted), Some(measured)) => {
                self.differ(figure, format!("{predicted:?}"), format!("{measured:?}"));
            }
        }
    }

    fn compare_pages(&mut self, predicted: &[PagesAt], measured: &[PagesAt]) {
        if measured.is_empty() {
            return self.not_measured.push("pages");
        }
        let events = |points: &[PagesAt]| -> Vec<u64> { points.iter().map(|point| point.event).collect() };
        if events(predicted) != events(measured) {
            let [predicted, measured] =
                [predicted, measured].map(|points| format!("after events {:?}", events(points)));
            return self.differ("pages", predicted, measured);
        }
        for (ours, theirs) in predicted.iter().zip(measured) {
            let (only_ours, only_theirs) = ours.pages.symmetric_difference(&theirs.pages);
            if only_ours != only_theirs {
                let text = |only: &PageSet| format!("after event {}: only there {:?}", ours.event, only.runs());
                self.differ("pages", text(&only_ours), text(&only_theirs));
            }
        }
    }

    fn differ(&mut self, figure: &'static str, predicted: String, measured: String) {
        self.differences.push(Difference { figure, predicted, measured });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageRun, PageState};

    fn figures() -> Figures {
        let run = PageRun { first_page: 3, pages: 2, state: PageState::Base };
        Figures {
            placement_digest: Some("00".into()),
            installs: Some(ByKind { base_4k: 2, ..ByKind::default() }),
            faults: Some(2),
            traps: Some(2),
            rss_bytes_peak: Some(8192),
            rss_bytes_end: Some(8192),
            vmas_peak: Some(1),
            page_table_bytes_peak: Some(12288),
            os_calls: Some(OsCalls::default()),
            os_calls_failed: Some(0),
            requests_failed: 0,
            events: 9,
            pages: vec![PagesAt { event: 9, pages: [run].into_iter().collect() }],
        }
    }

    /// Changes a figure.
    type Change = fn(&mut Figures);

    #[test]
    fn each_figure_that_differs_is_named() {
        let exact = Comparison::of(&figures(), &figures());
        assert!(exact.is_exact());
        let changes: [(&str, Change); 13] = [
            ("placement_digest", |figures| figures.placement_digest = Some("01".into())),
            ("installs", |figures| figures.installs = Some(ByKind::default())),
            ("faults", |figures| figures.faults = Some(3)),
            ("traps", |figures| figures.traps = Some(3)),
            ("rss_bytes_peak", |figures| figures.rss_bytes_peak = Some(0)),
            ("rss_bytes_end", |figures| figures.rss_bytes_end = Some(0)),
            ("vmas_peak", |figures| figures.vmas_peak = Some(2)),
            ("page_table_bytes_peak", |figures| figures.page_table_bytes_peak = Some(0)),
            ("os_calls", |figures| figures.os_calls = Some(OsCalls { mmap: 1, ..OsCalls::default() })),
            ("os_calls_failed", |figures| figures.os_calls_failed = Some(1)),
            ("requests_failed", |figures| figures.requests_failed = 1),
            ("events", |figures| figures.events = 8),
            ("pages", |figures| figures.pages[0].pages = PageSet::default()),
        ];
        for (name, change) in changes {
            let mut changed = figures();
            change(&mut changed);
            let comparison = Comparison::of(&figures(), &changed);
            let names: Vec<&str> = comparison.differences.iter().map(|difference| difference.figure).collect();
            assert_eq!((names, comparison.is_exact()), (vec![name], false));
        }
        let other_points = Figures { pages: vec![PagesAt { event: 8, ..figures().pages[0].clone() }], ..figures() };
        assert_eq!(Comparison::of(&figures(), &other_points).differences[0].figure, "pages");
    }

    #[test]
    fn figures_that_were_not_measured_are_named() {
        let measured = Figures { installs: None, pages: Vec::new(), ..figures() };
        let comparison = Comparison::of(&figures(), &measured);
        assert_eq!(comparison.not_measured, ["installs", "pages"]);
        assert!(comparison.differences.is_empty() && !comparison.is_exact());
    }
}
