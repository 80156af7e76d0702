//! Settings of the process that are not part of the policy.

/// How strictly calls of `free` are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// Only checks that cost next to nothing: see `invalid_free.rs`.
    #[default]
    Quick,
    /// Every free takes the slow path, which first checks that the pointer is the start of a block in use.
    Full,
}

/// Settings of the process. In a program without invalid frees they do not change the placement of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessConfig {
    /// How strictly calls of `free` are checked.
    pub checks: Checks,
    /// Huge blocks are no longer moved by `mremap` once earlier moves may have added this many VMAs. The default is
    /// half of the default `vm.max_map_count`.
    pub moved_vmas_max: u32,
}

impl Default for ProcessConfig {
    fn default() -> ProcessConfig {
        ProcessConfig { checks: Checks::Quick, moved_vmas_max: 65_530 / 2 }
    }
}
