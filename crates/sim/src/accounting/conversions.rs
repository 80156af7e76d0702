//! The allocator's requests in the kernel model's types.

use hksim_linux_mm::{self as kernel, Backing, MapFlags, Protection};
use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Mapping};

pub(super) fn errno(errno: kernel::Errno) -> Errno {
    Errno(match errno {
        kernel::Errno::BadFile => 9,
        kernel::Errno::Again => 11,
        kernel::Errno::NoMemory => 12,
        kernel::Errno::Fault => 14,
        kernel::Errno::Busy => 16,
        kernel::Errno::Invalid => 22,
    })
}

pub(super) fn map_flags(mapping: Mapping) -> MapFlags {
    let hugetlb = matches!(mapping, Mapping::Hugetlb | Mapping::HugetlbPopulated);
    MapFlags {
        protection: Protection::ReadWrite,
        noreserve: !hugetlb,
        populate: matches!(mapping, Mapping::Populated | Mapping::HugetlbPopulated),
        hugetlb,
        stack: false,
        backing: Backing::Anonymous,
    }
}

pub(super) fn kernel_advice(advice: Advice) -> kernel::Advice {
    match advice {
        Advice::HugePage => kernel::Advice::HugePage,
        Advice::NoHugePage => kernel::Advice::NoHugePage,
        Advice::DontNeed => kernel::Advice::DontNeed,
        Advice::Free => kernel::Advice::Free,
        Advice::PopulateRead => kernel::Advice::PopulateRead,
        Advice::PopulateWrite => kernel::Advice::PopulateWrite,
        Advice::Collapse => kernel::Advice::Collapse,
    }
}
