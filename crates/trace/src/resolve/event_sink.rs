//! Where the merge emits its events.

use super::Resolved;
use crate::event::Event;

/// Receives the resolved events: a closure, or a type whose methods are inlined into the merge.
pub trait EventSink {
    /// Takes the next event.
    fn take(&mut self, event: Event);

    /// Takes the next events.
    fn take_all(&mut self, resolved: &[Resolved]) {
        resolved.iter().for_each(|resolved| self.take(resolved.event()));
    }
}

impl<F: FnMut(Event)> EventSink for F {
    #[inline(always)]
    fn take(&mut self, event: Event) {
        self(event);
    }
}
