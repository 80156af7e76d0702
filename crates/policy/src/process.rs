//! What the process decides, whatever its policy.

/// How closely calls of `free` are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// As far as it costs next to nothing: see `misuse.rs`.
    #[default]
    Quick,
    /// Every free takes the slow path, which checks that the pointer is the start of a block in use before it changes anything.
    Full,
}

/// Settings of the process that the allocator serves. They change no placement of a program without errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessConfig {
    /// How closely calls of `free` are checked.
    pub checks: Checks,
    /// Huge blocks are no longer moved by `mremap` once this may have added that many VMAs: half of the default
    /// `vm.max_map_count`.
    pub moved_vmas_max: u32,
}

impl Default for ProcessConfig {
    fn default() -> ProcessConfig {
        ProcessConfig { checks: Checks::Quick, moved_vmas_max: 65_530 / 2 }
    }
}
