//! Addresses of mmaps without a hint.

use super::Kernel;
use super::span::{PMD_PAGES, is_pmd_aligned};

impl Kernel {
    /// The first page that mmap chooses for an anonymous mapping of `pages` pages without a hint: the end of the
    /// highest gap below page `top` that is large enough. For lengths that get 2 MiB alignment (R5), mmap searches for
    /// a gap that is 2 MiB larger and returns the first 2 MiB boundary after its start. If no gap is that large, the
    /// mapping is not aligned. `None` if no gap is large enough.
    ///
    /// If the model does not know the process's other mappings (libraries, stacks), `top` must be below them.
    pub fn unmapped_area(&self, pages: u64, top: u64) -> Option<u64> {
        let aligned = || {
            let start = self.vmas.highest_gap(pages.checked_add(PMD_PAGES)?, top)?;
            Some(if is_pmd_aligned(start) { start + PMD_PAGES } else { start.next_multiple_of(PMD_PAGES) })
        };
        let wanted = if self.config.rules.map_is_pmd_aligned(pages) { aligned() } else { None };
        wanted.or_else(|| self.highest_gap(pages, top))
    }

    /// The first page that mmap chooses for a mapping of `pages` pages that is never aligned, such as one of a file.
    pub fn highest_gap(&self, pages: u64, top: u64) -> Option<u64> {
        self.vmas.highest_gap(pages, top)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Kernel, KernelConfig, MapFlags};

    const TOP: u64 = 100 * 512 + 7;

    fn mapped(kernel: &mut Kernel, pages: u64) -> u64 {
        let start = kernel.unmapped_area(pages, TOP).unwrap();
        kernel.map(start..start + pages, MapFlags::READ_WRITE).result.unwrap();
        start
    }

    #[test]
    fn long_mappings_are_aligned_and_others_fill_the_highest_gap() {
        let mut kernel = Kernel::new(KernelConfig::default());
        assert_eq!(mapped(&mut kernel, 256), TOP - 256);
        // The highest 2 MiB boundary followed by 512 pages, in a gap of twice the size.
        assert_eq!(mapped(&mut kernel, 512), 98 * 512);
        assert_eq!(mapped(&mut kernel, 512), 97 * 512, "directly below: the larger gap starts on a boundary");
        assert_eq!(mapped(&mut kernel, 100), TOP - 356, "in the gap above the aligned mappings");
        assert_eq!(mapped(&mut kernel, 1), TOP - 357);
        assert!(kernel.unmapped_area(TOP + 1, TOP).is_none());
    }
}
