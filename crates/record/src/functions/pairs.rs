//! From the entries and returns of functions to calls, for one thread.
//!
//! Calls nest: a `calloc` may call `malloc`. Only the outer call counts. A call is identified by the stack pointer at its
//! entry, where its return address is. While the call lasts, the kernel has replaced that by the address of its trampoline.
//!
//! A call may also never return: `longjmp`, or a lost sample. It is known to have ended when the stack has become shorter,
//! or when something else is where its return address was. Calls from deeper places than the recorded part of the stack
//! were taken for calls within it until then: their number is [`ThreadCalls::take_missed`].

/// A function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the function.
    pub function: usize,
    /// Its first six arguments.
    pub arguments: [u64; 6],
    /// The stack pointer.
    pub stack: u64,
}

/// A function returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// Index of the function.
    pub function: usize,
    /// What it returned.
    pub result: u64,
    /// The stack pointer, when the return address has been removed.
    pub stack: u64,
}

/// Bytes of a return address.
const ADDRESS_BYTES: u64 = 8;

/// The calls in progress in a thread.
#[derive(Debug, Default)]
pub struct ThreadCalls {
    /// From the outermost one on.
    open: Vec<Entry>,
    /// Calls inside another call.
    pub nested: u64,
    /// Calls whose return was not seen.
    pub unfinished: u64,
    /// Of `nested`, those since the outermost open call began.
    inside: u64,
    /// Calls that were taken for nested ones, inside a call that had ended.
    missed: u64,
}

impl ThreadCalls {
    /// Whether a call is in progress, as far as is known.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Begins a call whose return will be seen. Returns whether it is an outermost call.
    pub fn enter(&mut self, entry: Entry, frames: &Frames<'_>) -> bool {
        self.pass(&entry, frames);
        self.open.push(entry);
        self.open.len() == 1
    }

    /// Takes a call of which only the entry is seen. Returns whether it is an outermost call.
    pub fn enter_only(&mut self, entry: &Entry, frames: &Frames<'_>) -> bool {
        self.pass(entry, frames);
        let is_outer = self.open.is_empty();
        self.add_nested(!is_outer);
        is_outer
    }

    /// Calls since the last look that were taken for nested ones, and left out, inside a call that had ended without a
    /// return: at most so many, as some may have been inside it.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    fn add_nested(&mut self, is_nested: bool) {
        self.nested += u64::from(is_nested);
        self.inside += u64::from(is_nested);
    }

    /// Ends a call. Returns its entry if it is an outermost call.
    pub fn leave(&mut self, back: &Return) -> Option<Entry> {
        let is_it = |open: &Entry| open.function == back.function && open.stack + ADDRESS_BYTES == back.stack;
        // Without an entry it began before the recording, or its entry was lost.
        let at = self.open.iter().rposition(is_it)?;
        self.unfinished += (self.open.len() - at - 1) as u64;
        self.open.truncate(at + 1);
        let entry = self.open.pop()?;
        self.add_nested(at > 0);
        if at == 0 {
            self.inside = 0;
        }
        (at == 0).then_some(entry)
    }

    /// Forgets all calls in progress: it is unknown what followed.
    pub fn forget(&mut self) {
        self.unfinished += self.open.len() as u64;
        self.open.clear();
        self.inside = 0;
    }

    /// Removes calls that must have ended when this one begins.
    fn pass(&mut self, entry: &Entry, frames: &Frames<'_>) {
        let has_ended = |open: &Entry| match open.stack.checked_sub(entry.stack) {
            None => true,
            Some(above) => frames.has_returned(above),
        };
        while self.open.last().is_some_and(has_ended) {
            self.open.pop();
            self.unfinished += 1;
        }
        if self.open.is_empty() {
            let inside = std::mem::take(&mut self.inside);
            self.nested -= inside;
            self.missed += inside;
        }
    }
}

/// The stack at an entry.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    /// Its bytes from the stack pointer on.
    pub bytes: &'a [u8],
    /// The address of the kernel's trampoline in the process, if it is known.
    pub trampoline: Option<u64>,
}

impl Frames<'_> {
    /// Whether the call whose return address was at this distance above the stack pointer has certainly ended.
    fn has_returned(&self, above: u64) -> bool {
        let word = || {
            let at = usize::try_from(above).ok()?;
            Some(u64::from_ne_bytes(self.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        self.trampoline.zip(word()).is_some_and(|(trampoline, word)| word != trampoline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is known of the stack.
    const UNKNOWN: Frames<'_> = Frames { bytes: &[], trampoline: None };

    fn entry(function: usize, stack: u64) -> Entry {
        Entry { function, arguments: [function as u64; 6], stack }
    }

    fn back(function: usize, stack: u64) -> Return {
        Return { function, result: 1, stack: stack + ADDRESS_BYTES }
    }

    #[test]
    fn only_outer_calls_count() {
        let mut calls = ThreadCalls::default();
        assert!(calls.enter(entry(1, 1000), &UNKNOWN));
        assert!(!calls.enter(entry(0, 900), &UNKNOWN));
        assert_eq!(calls.leave(&back(0, 900)), None);
        assert!(!calls.enter_only(&entry(3, 900), &UNKNOWN));
        assert_eq!(calls.leave(&back(1, 1000)), Some(entry(1, 1000)));
        assert!(calls.enter_only(&entry(3, 900), &UNKNOWN));
        assert_eq!((calls.nested, calls.unfinished), (2, 0));
    }

    #[test]
    fn a_tail_call_returns_with_its_caller() {
        let mut calls = ThreadCalls::default();
        assert!(calls.enter(entry(2, 1000), &UNKNOWN));
        let hijacked = 7_u64.to_ne_bytes();
        assert!(!calls.enter(entry(0, 1000), &Frames { bytes: &hijacked, trampoline: Some(7) }));
        assert_eq!(calls.leave(&back(0, 1000)), None);
        assert_eq!(calls.leave(&back(2, 1000)), Some(entry(2, 1000)));
        assert_eq!((calls.nested, calls.unfinished), (1, 0));
    }

    #[test]
    fn calls_inside_one_that_had_ended_are_missed() {
        let mut calls = ThreadCalls::default();
        calls.enter(entry(0, 1000), &UNKNOWN);
        assert!(!calls.enter(entry(1, 500), &UNKNOWN), "it seems to be inside");
        assert_eq!(calls.leave(&back(1, 500)), None);
        assert_eq!((calls.nested, calls.take_missed()), (1, 0));
        assert!(calls.enter(entry(1, 1100), &UNKNOWN), "the stack is shorter");
        assert_eq!((calls.nested, calls.take_missed(), calls.take_missed()), (0, 1, 0));
    }

    #[test]
    fn calls_that_never_return_are_passed() {
        let mut calls = ThreadCalls::default();
        calls.enter(entry(0, 1000), &UNKNOWN);
        calls.enter(entry(0, 900), &UNKNOWN);
        assert!(calls.enter(entry(1, 1100), &UNKNOWN), "the stack is shorter");
        assert_eq!(calls.leave(&back(1, 1100)), Some(entry(1, 1100)));
        calls.enter(entry(0, 1000), &UNKNOWN);
        let other = 8_u64.to_ne_bytes();
        let overwritten = Frames { bytes: &other, trampoline: Some(7) };
        assert!(calls.enter(entry(0, 1000), &overwritten), "from the same place again");
        let deeper: Vec<u8> = [1_u64, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(calls.enter(entry(1, 992), &Frames { bytes: &deeper, trampoline: Some(7) }), "from a deeper place");
        calls.enter(entry(1, 900), &UNKNOWN);
        assert_eq!(calls.leave(&back(1, 992)), Some(entry(1, 992)), "past a lost return");
        assert_eq!(calls.leave(&back(1, 992)), None, "begun before the recording");
        calls.enter(entry(0, 1000), &UNKNOWN);
        calls.forget();
        assert_eq!((calls.nested, calls.unfinished), (0, 6));
    }
}
