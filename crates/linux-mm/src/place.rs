//! Where mmap puts a mapping that asks for no address (R5).

use super::Kernel;
use super::span::{PMD_PAGES, is_pmd_aligned};

impl Kernel {
    /// First page of an anonymous mapping of `pages` pages that is made without a hint: it ends where the highest room below
    /// page `top` ends that has place for it. Lengths that are 2 MiB-aligned at all look for a block more, and begin at
    /// the first border in it (R5). `None` if there is no room.
    ///
    /// Mappings that the model does not know (libraries, stacks) are not avoided: `top` is to lie below them.
    pub fn unmapped_area(&self, pages: u64, top: u64) -> Option<u64> {
        let aligned = || {
            let start = self.vmas.highest_gap(pages.checked_add(PMD_PAGES)?, top)?;
            Some(if is_pmd_aligned(start) { start + PMD_PAGES } else { start.next_multiple_of(PMD_PAGES) })
        };
        let wanted = if self.config.rules.map_is_pmd_aligned(pages) { aligned() } else { None };
        wanted.or_else(|| self.vmas.highest_gap(pages, top))
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
    fn long_maps_are_aligned_and_others_fill_the_highest_room() {
        let mut kernel = Kernel::new(KernelConfig::default());
        assert_eq!(mapped(&mut kernel, 256), TOP - 256);
        // The highest border with 512 pages behind it, in room for two blocks.
        assert_eq!(mapped(&mut kernel, 512), 98 * 512);
        assert_eq!(mapped(&mut kernel, 512), 97 * 512, "right below, as room for two pmds begins on a border");
        assert_eq!(mapped(&mut kernel, 100), TOP - 356, "where there was room above");
        assert_eq!(mapped(&mut kernel, 1), TOP - 357);
        assert!(kernel.unmapped_area(TOP + 1, TOP).is_none());
    }
}
