//! A field of metadata: a cell that is not written with the value it has.
//!
//! After a fork each first write to a page copies it, also a write that changes nothing. The simulator finds writes of
//! metadata by comparing values, so a write that changes nothing would also escape it.

use core::cell::Cell;

/// One field. Valid when zeroed if `T` is.
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

    /// Makes `value` the value; writes nothing if it is already.
    #[inline(always)]
    pub fn set(&self, value: T) {
        if self.0.get() != value {
            self.0.set(value);
        }
    }

    /// Writes a value that is known to differ: for fast paths.
    #[inline(always)]
    pub(crate) fn change(&self, value: T) {
        self.0.set(value);
    }

    /// As [`set`](Self::set); the value before.
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        let before = self.0.get();
        self.set(value);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::Field;

    #[test]
    fn a_field_keeps_what_it_is_given() {
        let field = Field::new(3);
        field.set(3);
        assert_eq!(field.replace(4), 3);
        field.change(5);
        assert_eq!(field.get(), 5);
    }
}
