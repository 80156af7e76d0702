//! What is varied between predictions: the kernel, and what the user can change about the process.

use hksim_linux_mm::KernelConfig;
use serde::{Deserialize, Serialize};

/// One prediction's kernel and edits of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The kernel.
    pub kernel: KernelConfig,
    /// Which mappings count as advised.
    pub advise: Advise,
    /// The program's own `prctl(PR_SET_THP_DISABLE)`.
    pub thp_prctl: ThpPrctl,
}

/// `MADV_HUGEPAGE` in addition to the program's own advice, as `glibc.malloc.hugetlb=1` and options of other
/// allocators add it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advise {
    /// Only what the program advises itself.
    #[default]
    Recorded,
    /// Nothing: the program's own `MADV_HUGEPAGE` and `MADV_COLLAPSE` are left out.
    Nothing,
    /// All anonymous mappings, when they are created.
    All,
    /// The heap of brk.
    Heap,
    /// Anonymous mappings of at least this many bytes.
    AtLeastBytes(u64),
}

/// What the program's own `prctl(PR_SET_THP_DISABLE)` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThpPrctl {
    /// It applies.
    #[default]
    Recorded,
    /// It is left out.
    Ignored,
    /// Huge pages are off for the process from the start, whatever the program does.
    Disabled,
}
