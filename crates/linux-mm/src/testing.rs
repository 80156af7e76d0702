//! What tests of several files do with a kernel.

use super::{Access, Content, Kernel};

/// Writes to pages that can be written.
pub(super) fn write(kernel: &mut Kernel, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        kernel.touch(page, Access::Write(Content::NonZero)).expect("the access succeeds");
    }
}
