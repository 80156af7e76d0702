//! A program outside the project that uses the packaged crate `hksim-linux-mm`. It computes the cost of a vector that
//! grows to 64 MiB by doubling (each time a new mapping, a copy and an unmap), with and without huge pages, on two
//! kernels.

use std::error::Error;

use hksim_linux_mm::{Access, Advice, Content, Kernel, KernelConfig, KernelVersion, MapFlags, Rules};

const PAGES_MAX: u64 = 64 << 8;

fn grow(version: KernelVersion, advised: bool) -> Result<Kernel, Box<dyn Error>> {
    let mut kernel = Kernel::new(KernelConfig { rules: Rules::of(version), ..KernelConfig::default() });
    let (mut pages, mut from) = (1, 0);
    while pages <= PAGES_MAX {
        // Each vector has its own 128 MiB of address space, aligned for huge pages.
        let at = from + 2 * PAGES_MAX;
        kernel.map(at..at + pages, MapFlags::READ_WRITE).result?;
        if advised {
            kernel.advise(at..at + pages, Advice::HugePage).result?;
        }
        for page in at..at + pages {
            kernel.touch(page, Access::Write(Content::NonZero)).map_err(|signal| format!("{signal:?}"))?;
        }
        if from > 0 {
            kernel.unmap(from..from + pages / 2)?;
        }
        (pages, from) = (pages * 2, at);
    }
    Ok(kernel)
}

fn main() -> Result<(), Box<dyn Error>> {
    for version in [KernelVersion::V5_15, KernelVersion::USUAL] {
        for advised in [false, true] {
            let kernel = grow(version, advised)?;
            let faults = kernel.counters().faults;
            println!("{} advised {advised}: {faults} faults, {} huge pages", version.word(), kernel.huge_pages());
        }
    }
    Ok(())
}
