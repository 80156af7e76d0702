//! When a random program checks all invariants and all contents.

/// How often these checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckSchedule {
    /// As often as [`Limits`](crate::Limits) says.
    Always,
    /// Like `Always`, but less often if a check takes long.
    Spaced,
}

/// The schedule of one kind of check.
pub(crate) struct CheckSpacing {
    schedule: CheckSchedule,
    /// A check of this amount postpones the next check by one operation.
    per_operation: u64,
    due: u64,
}

impl CheckSpacing {
    pub(crate) fn new(schedule: CheckSchedule, per_operation: u64) -> CheckSpacing {
        CheckSpacing { schedule, per_operation, due: 0 }
    }

    /// Whether the next check may run after this number of operations.
    pub(crate) fn is_due(&self, operations: u64) -> bool {
        self.schedule == CheckSchedule::Always || operations >= self.due
    }

    /// Records a check of this amount after this number of operations.
    pub(crate) fn performed(&mut self, operations: u64, amount: u64) {
        self.due = operations + amount / self.per_operation;
    }
}
