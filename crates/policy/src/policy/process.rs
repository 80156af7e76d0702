//! Settings of the process that are not part of the policy.

/// How closely calls of `free` are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// Only checks that cost next to nothing: see `invalid_free.rs`.
    #[default]
    Quick,
    /// Every free takes the slow path, which first checks that the pointer is the start of a block in use.
    Full,
}

/// Settings of the process. They do not change the placement of a program without errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessConfig {
    /// How closely calls of `free` are checked.
    pub checks: Checks,
    /// `mremap` no longer moves huge blocks once moves may have added this many VMAs. The default is half of the default
    /// `vm.max_map_count`.
    pub moved_vmas_max: u32,
}

impl Default for ProcessConfig {
    fn default() -> ProcessConfig {
        ProcessConfig { checks: Checks::Quick, moved_vmas_max: 65_530 / 2 }
    }
}
