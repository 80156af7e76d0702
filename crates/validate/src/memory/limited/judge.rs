//! What runs under a limit say about a prediction.

use hksim_linux_mm::LimitOutcome;
use hksim_policy::PAGE_BYTES;
use hksim_text::units::{bytes, of};

use super::run::RunOutcome;
use crate::verdict::{Class, Judged, Verdict};

/// Runs under one limit.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    /// The limit of the group.
    pub limit_bytes: u64,
    /// How they ended.
    pub outcomes: Vec<RunOutcome>,
}

impl Tried {
    /// How many ended as predicted.
    fn as_predicted(&self, predicted: LimitOutcome) -> usize {
        let survives = predicted == LimitOutcome::Survives;
        self.outcomes.iter().filter(|outcome| (**outcome == RunOutcome::Survived) == survives).count()
    }

    /// Whether all ended as predicted.
    pub fn holds(&self, predicted: LimitOutcome) -> bool {
        self.as_predicted(predicted) == self.outcomes.len()
    }

    fn words(&self) -> String {
        let pages = of(self.limit_bytes / PAGE_BYTES, "page");
        format!("{} at a limit of {} ({pages})", words(&self.outcomes), bytes(self.limit_bytes))
    }
}

/// How runs ended: `3 killed`, or `1 killed, 2 survived`.
pub fn words(outcomes: &[RunOutcome]) -> String {
    let kinds =
        [(RunOutcome::Survived, "survived"), (RunOutcome::Killed, "killed"), (RunOutcome::Failed, "failed in a call")];
    let parts = kinds.into_iter().filter_map(|(kind, word)| {
        let number = outcomes.iter().filter(|outcome| **outcome == kind).count();
        (number > 0).then(|| format!("{number} {word}"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Judges a predicted outcome by the runs at the predicted limit and, if they ended otherwise, by those at a limit that
/// leaves room for what is not known exactly.
pub(super) fn judge(predicted: LimitOutcome, first: &Tried, again: Option<&Tried>) -> Judged {
    let judged = |class, verdict, reason: Option<String>| Judged { class, verdict, reason };
    let word = match predicted {
        LimitOutcome::Survives => "survives",
        LimitOutcome::Killed => "killed",
        LimitOutcome::Unknown => {
            let why = "either is right: it depends on which pages freed by MADV_FREE were written again";
            return judged(Class::Bounded, Verdict::Ok, Some(format!("{why}; {}", first.words())));
        }
    };
    if first.holds(predicted) {
        return judged(Class::Exact, Verdict::Ok, None);
    }
    let all: Vec<&Tried> = [Some(first), again].into_iter().flatten().collect();
    let tried = all.iter().map(|tried| tried.words()).collect::<Vec<_>>().join("; ");
    if again.is_some_and(|again| again.holds(predicted)) {
        let room = "within what the kernel's own memory, its charges in advance, the addresses of a run and the order of \
                    threads can differ";
        return judged(Class::Bounded, Verdict::Ok, Some(format!("{room}: {tried}")));
    }
    let some: usize = all.iter().map(|tried| tried.as_predicted(predicted)).sum();
    if some > 0 {
        let runs = of(all.iter().map(|tried| tried.outcomes.len() as u64).sum(), "run");
        let why = format!("the program does not repeat itself: {some} of {runs} ended as predicted ({word}): {tried}");
        return judged(Class::Statistical, Verdict::Skipped, Some(why));
    }
    judged(Class::Exact, Verdict::Failed, Some(format!("predicted: {word}; {tried}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunOutcome::{Failed, Killed, Survived};

    fn tried(outcomes: &[RunOutcome]) -> Tried {
        Tried { limit_bytes: 4 << 20, outcomes: outcomes.to_vec() }
    }

    fn verdict(predicted: LimitOutcome, first: &[RunOutcome], again: Option<&[RunOutcome]>) -> (Class, Verdict) {
        let again = again.map(tried);
        let judged = judge(predicted, &tried(first), again.as_ref());
        (judged.class, judged.verdict)
    }

    #[test]
    fn a_prediction_holds_if_all_runs_end_as_predicted() {
        let exact = (Class::Exact, Verdict::Ok);
        assert_eq!(verdict(LimitOutcome::Survives, &[Survived, Survived], None), exact);
        assert_eq!(verdict(LimitOutcome::Killed, &[Killed, Failed], None), exact, "a call that fails is no survival");
        let other = verdict(LimitOutcome::Survives, &[Killed, Killed], Some(&[Survived, Survived]));
        assert_eq!(other, (Class::Bounded, Verdict::Ok));
    }

    #[test]
    fn a_prediction_fails_if_no_run_ends_as_predicted() {
        let failed = (Class::Exact, Verdict::Failed);
        assert_eq!(verdict(LimitOutcome::Survives, &[Killed, Failed], Some(&[Killed, Killed])), failed);
        assert_eq!(verdict(LimitOutcome::Killed, &[Survived, Survived], Some(&[Survived, Survived])), failed);
        let judged = judge(LimitOutcome::Killed, &tried(&[Survived]), None);
        let reason = judged.reason.expect("a reason");
        assert_eq!(reason, "predicted: killed; 1 survived at a limit of 4.0 MiB (1 024 pages)");
    }

    #[test]
    fn what_is_not_predicted_or_does_not_repeat_itself_is_not_judged() {
        let mixed = verdict(LimitOutcome::Survives, &[Killed, Survived], Some(&[Killed, Killed]));
        assert_eq!(mixed, (Class::Statistical, Verdict::Skipped));
        for outcome in [Survived, Killed] {
            assert_eq!(verdict(LimitOutcome::Unknown, &[outcome], None), (Class::Bounded, Verdict::Ok));
        }
    }

    #[test]
    fn outcomes_are_counted_in_words() {
        assert_eq!(words(&[Killed, Survived, Killed]), "1 survived, 2 killed");
        assert_eq!(words(&[Failed]), "1 failed in a call");
    }
}
