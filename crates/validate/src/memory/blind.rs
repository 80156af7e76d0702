//! What a recording that an ordinary user made does not show: whether a fault was a read or a write, and faults inside system
//! calls if `kernel.perf_event_paranoid` is 2.

use hksim_memory_sim::{Family, Prediction};
use hksim_memory_trace::Faults;
use hksim_policy::PAGE_BYTES;

use super::figures::Bounds;
use super::measure::{Program, Run};
use super::pages::pinned_pages;
use crate::error::ValidateError;
use hksim_text::units::of;

/// What one measured run does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blind {
    faults: Faults,
    /// Faults on pages that had one before: reads first, then writes. The prediction has one fault for both.
    repeated_traps: u64,
    /// Pages present at the exit without a recorded fault: system calls touched them first.
    unseen_pages: u64,
    /// Pages at the exit that are the zero page: they were only read, but count as written in the prediction.
    zero_pages: u64,
}

impl Blind {
    /// For a run and its prediction; `None` if everything is recorded.
    ///
    /// # Errors
    /// The run cannot be read.
    pub fn of(program: &Program, prediction: &Prediction, run: &Run) -> Result<Option<Self>, ValidateError> {
        let faults = program.faults();
        let present = run.snapshot.as_ref().and_then(|snapshot| snapshot.present.as_ref());
        if faults == Faults::Accesses {
            return Ok(None);
        }
        let (mut unseen_pages, mut zero_pages) = (0, 0);
        if let (Some(present), Some(file)) = (present, program.file_in(&run.files)) {
            let pages = present.iter().filter(|pages| pages.is_zero).map(|pages| pages.end_page - pages.first_page);
            zero_pages = pages.sum();
            if faults == Faults::UserOnly {
                unseen_pages = pinned_pages(&prediction.pages, present, &Family::open(&file.path)?.touches()?);
            }
        }
        Ok(Some(Self { faults, repeated_traps: run.repeated_traps, unseen_pages, zero_pages }))
    }

    /// What may be predicted for this measurement.
    pub fn widened(&self, measured: Bounds) -> Bounds {
        let [traps, traps_max] = measured.traps;
        let [end, end_max] = measured.rss_bytes_end;
        let zero_bytes = self.zero_pages * PAGE_BYTES;
        Bounds {
            traps: [traps.saturating_sub(self.repeated_traps), traps_max],
            rss_bytes_end: [end.saturating_sub(self.unseen_pages * PAGE_BYTES), end_max + zero_bytes],
            rss_bytes_peak: measured.rss_bytes_peak.map(|[peak, peak_max]| match self.faults {
                // How much memory system calls touched first is known for the exit only.
                Faults::UserOnly => [0, peak_max + zero_bytes],
                Faults::All | Faults::Accesses => [peak, peak_max + zero_bytes],
            }),
        }
    }

    /// Whether the pages of all runs that are in the prediction only, and in the measurement only, are explained.
    pub fn explain(runs: &[Self], [ours, theirs]: [u64; 2]) -> bool {
        let zero_pages: u64 = runs.iter().map(|run| run.zero_pages).sum();
        let unseen_pages: u64 = runs.iter().map(|run| run.unseen_pages).sum();
        ours <= zero_pages && theirs <= unseen_pages + zero_pages
    }

    /// What is not shown, in words.
    pub fn text(&self) -> String {
        let mut text = format!(
            "recorded without root's rights, so reads count as writes: {} on pages that were read first",
            of(self.repeated_traps, "trap")
        );
        if self.faults == Faults::UserOnly {
            text += &format!("; {} that system calls touched first are not seen", of(self.unseen_pages, "page"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_widens_a_measurement_and_no_more() {
        let blind = Blind { faults: Faults::UserOnly, repeated_traps: 3, unseen_pages: 2, zero_pages: 1 };
        let peak = Some([80 << 12, 90 << 12]);
        let measured = Bounds { traps: [100; 2], rss_bytes_end: [50 << 12; 2], rss_bytes_peak: peak };
        let widened = blind.widened(measured);
        assert_eq!(widened.traps, [97, 100]);
        assert_eq!(widened.rss_bytes_end, [48 << 12, 51 << 12]);
        assert_eq!(widened.rss_bytes_peak, Some([0, 91 << 12]));
        let seen = Blind { faults: Faults::All, unseen_pages: 0, ..blind }.widened(measured);
        assert_eq!(seen.rss_bytes_peak, Some([80 << 12, 91 << 12]));
        assert!([[1, 3], [0, 0]].iter().all(|&pages| Blind::explain(&[blind], pages)));
        assert!(![[2, 0], [0, 4]].iter().any(|&pages| Blind::explain(&[blind], pages)));
    }
}
