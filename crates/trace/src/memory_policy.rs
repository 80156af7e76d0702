//! Kernel settings for all of a program's memory: huge pages, locking, personality.
//!
//! The calls that change these settings bypass the allocator but change how its memory behaves. So a trace records them
//! as events among the allocator calls.

use serde::{Deserialize, Serialize};

/// Whether the process can get transparent huge pages: `prctl(PR_SET_THP_DISABLE)`. Inherited across fork and exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThpDisable {
    /// It can, subject to the system's THP modes.
    #[default]
    Off,
    /// It cannot.
    All,
    /// Only memory advised with `MADV_HUGEPAGE` gets them (`PR_THP_DISABLE_EXCEPT_ADVISED`, Linux 6.18).
    ExceptAdvised,
}

impl ThpDisable {
    /// What `prctl(PR_GET_THP_DISABLE)` returns.
    pub const fn number(self) -> u32 {
        match self {
            ThpDisable::Off => 0,
            ThpDisable::All => 1,
            ThpDisable::ExceptAdvised => 3,
        }
    }

    /// The state for which `prctl(PR_GET_THP_DISABLE)` returns this number, if any.
    pub fn of_number(number: u32) -> Option<Self> {
        [ThpDisable::Off, ThpDisable::All, ThpDisable::ExceptAdvised].into_iter().find(|it| it.number() == number)
    }
}

/// The flags of `mlockall`; no flag means `munlockall`. Not inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAll {
    /// `MCL_CURRENT`: lock current mappings.
    pub current: bool,
    /// `MCL_FUTURE`: lock future mappings.
    pub future: bool,
    /// `MCL_ONFAULT`: lock pages when they are faulted in, instead of populating all of them immediately.
    pub on_fault: bool,
}

impl LockAll {
    /// `munlockall`.
    pub const NONE: LockAll = LockAll { current: false, future: false, on_fault: false };

    /// The `MCL_*` flags; 0 for `munlockall`.
    pub const fn flags(self) -> u32 {
        self.current as u32 | (self.future as u32) << 1 | (self.on_fault as u32) << 2
    }

    /// The call with these flags; `None` if the kernel would reject them.
    pub fn of_flags(flags: u32) -> Option<Self> {
        let lock = LockAll { current: flags & 1 != 0, future: flags & 2 != 0, on_fault: flags & 4 != 0 };
        (flags < 8 && flags != 4).then_some(lock)
    }
}

/// One change of a setting, by a call that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "call", content = "value", rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// `prctl(PR_SET_THP_DISABLE)`.
    ThpDisable(ThpDisable),
    /// `mlockall`, `munlockall`.
    LockAll(LockAll),
    /// `personality`, with the new value. Flags such as `ADDR_NO_RANDOMIZE` take effect at the next exec. hksim's
    /// results do not depend on them.
    Personality(u32),
}

impl MemoryPolicy {
    /// Number of kinds.
    pub const KINDS: usize = 3;

    /// The numbers stored in files: kind, from 0, and value.
    pub const fn numbers(self) -> (u8, u32) {
        match self {
            MemoryPolicy::ThpDisable(disable) => (0, disable.number()),
            MemoryPolicy::LockAll(lock) => (1, lock.flags()),
            MemoryPolicy::Personality(personality) => (2, personality),
        }
    }

    /// The change with these numbers, if they are valid.
    pub fn of_numbers(kind: u8, value: u32) -> Option<Self> {
        match kind {
            0 => ThpDisable::of_number(value).map(MemoryPolicy::ThpDisable),
            1 => LockAll::of_flags(value).map(MemoryPolicy::LockAll),
            2 => Some(MemoryPolicy::Personality(value)),
            _ => None,
        }
    }
}

impl std::fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            MemoryPolicy::ThpDisable(ThpDisable::Off) => write!(f, "PR_SET_THP_DISABLE 0: huge pages allowed again"),
            MemoryPolicy::ThpDisable(ThpDisable::All) => write!(f, "PR_SET_THP_DISABLE: no huge pages"),
            MemoryPolicy::ThpDisable(ThpDisable::ExceptAdvised) => {
                write!(f, "PR_SET_THP_DISABLE: huge pages only where advised")
            }
            MemoryPolicy::LockAll(LockAll::NONE) => write!(f, "munlockall"),
            MemoryPolicy::LockAll(lock) => {
                let flags =
                    [(lock.current, "MCL_CURRENT"), (lock.future, "MCL_FUTURE"), (lock.on_fault, "MCL_ONFAULT")];
                let flags: Vec<&str> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
                write!(f, "mlockall({})", flags.join(" | "))
            }
            MemoryPolicy::Personality(personality) => write!(f, "personality {personality:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_kernel() {
        for number in 0..9 {
            let known = ThpDisable::of_number(number);
            assert_eq!(known.map(ThpDisable::number), [0, 1, 3].contains(&number).then_some(number));
            let lock = LockAll::of_flags(number);
            assert_eq!(lock.map(LockAll::flags), (number < 8 && number != 4).then_some(number));
        }
        assert_eq!(LockAll { current: true, on_fault: true, future: false }.flags(), 5, "MCL_CURRENT | MCL_ONFAULT");
        let all = [MemoryPolicy::ThpDisable(ThpDisable::ExceptAdvised), MemoryPolicy::Personality(0x40000)];
        for policy in all {
            let (kind, value) = policy.numbers();
            assert_eq!(MemoryPolicy::of_numbers(kind, value), Some(policy));
        }
        assert_eq!(MemoryPolicy::of_numbers(MemoryPolicy::KINDS as u8, 0), None);
    }
}
