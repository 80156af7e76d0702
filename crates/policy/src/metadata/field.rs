//! Metadata fields: cells that are written only if the value changes.
//!
//! After a fork the first write to a page copies it, even if the write does not change the value. The simulator detects
//! metadata writes by comparing values, so it would miss a write of the same value.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

/// One field. Valid when zeroed, if `T` is valid when zeroed.
#[derive(Default)]
#[repr(transparent)]
pub struct Field<T>(Cell<T>);

impl<T: Copy + PartialEq> Field<T> {
    /// A field with a value.
    pub const fn new(value: T) -> Field<T> {
        Field(Cell::new(value))
    }

    /// The value.
    #[inline(always)]
    pub fn get(&self) -> T {
        self.0.get()
    }

    /// Sets the value; writes nothing if it is unchanged.
    #[inline(always)]
    pub fn set(&self, value: T) {
        if self.0.get() != value {
            self.0.set(value);
        }
    }

    /// Writes a value that is known to differ. For fast paths.
    #[inline(always)]
    pub(crate) fn change(&self, value: T) {
        self.0.set(value);
    }

    /// As [`set`](Self::set); returns the previous value.
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        let before = self.0.get();
        self.set(value);
        before
    }
}

/// A [`Field`] that one thread writes and others may read. As cheap as a cell.
#[derive(Default)]
#[repr(transparent)]
pub struct SharedField(AtomicU32);

impl SharedField {
    /// A field with a value.
    pub const fn new(value: u32) -> SharedField {
        SharedField(AtomicU32::new(value))
    }

    /// The value.
    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// As [`Field::set`].
    #[inline(always)]
    pub fn set(&self, value: u32) {
        if self.get() != value {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, SharedField};

    #[test]
    fn a_field_keeps_its_value() {
        let field = Field::new(3);
        field.set(3);
        assert_eq!(field.replace(4), 3);
        field.change(5);
        assert_eq!(field.get(), 5);
        let shared = SharedField::new(1);
        shared.set(1);
        shared.set(2);
        assert_eq!(shared.get(), 2);
    }
}
