//! When a program looks at everything at once: all invariants, all contents.

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// As often as the program's limits say, whatever it takes.
    Always,
    /// The same, but put off where there is much to look at.
    Spaced,
}

/// One kind of look, and when it was done last.
pub(crate) struct Spacing {
    looks: Looks,
    /// How much may be looked at for each operation in between.
    per_operation: u64,
    due: u64,
}

impl Spacing {
    pub(crate) fn new(looks: Looks, per_operation: u64) -> Spacing {
        Spacing { looks, per_operation, due: 0 }
    }

    /// Whether the next look may come after so many operations.
    pub(crate) fn is_due(&self, operations: u64) -> bool {
        self.looks == Looks::Always || operations >= self.due
    }

    /// A look was done after so many operations, at so much.
    pub(crate) fn looked(&mut self, operations: u64, at: u64) {
        self.due = operations + at / self.per_operation;
    }
}
