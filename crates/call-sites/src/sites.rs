//! The call sites of a recording.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A call site: 0 means unknown, any other value `n` is stack `n - 1` of [`Sites`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

impl SiteId {
    /// No known call site.
    pub const UNKNOWN: SiteId = SiteId(0);

    /// The site of a stack.
    #[inline]
    pub const fn of_stack(index: u32) -> SiteId {
        SiteId(index + 1)
    }

    /// The index of the site's stack; `None` for an unknown site.
    #[inline]
    pub const fn stack(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// All call sites of a recording: stacks of frames, frames in modules. Indices in a hostile file may be out of range, so
/// use `get` for every lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sites {
    /// The program and its shared objects.
    pub modules: Vec<Module>,
    /// Places in the code.
    pub frames: Vec<Frame>,
    /// The stack of each site, by [`SiteId::stack`].
    pub stacks: Vec<Stack>,
}

/// Maximum length of a build id in bytes.
pub const BUILD_ID_BYTES_MAX: usize = 64;

/// A file that code was loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// Its path at the time of the run.
    pub path: Arc<str>,
    /// Its GNU build id in hexadecimal, if it has one. Identifies the file if symbols are looked up later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

impl Module {
    /// A file with this build id, which is empty if it has none.
    pub fn new(path: Arc<str>, build_id: &[u8]) -> Module {
        Module { path, build_id: Some(hexadecimal(build_id)).filter(|id| !id.is_empty()) }
    }

    /// The bytes of the build id; empty if it has none, or one that is not hexadecimal.
    pub fn build_id_bytes(&self) -> Vec<u8> {
        let digits = self.build_id.as_deref().unwrap_or_default().as_bytes();
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let byte = |pair: &[u8]| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().unwrap_or_default()
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A place in the code: the call instruction, not the return address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Index of the module; `None` for code that belongs to no file (JIT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<u32>,
    /// Address in the module's file (the address minus the load bias), or in the process if there is no module.
    pub address: u64,
    /// Function name, if it was looked up or the source format has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Arc<str>>,
    /// Source file and line, if they were looked up or the source format has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Arc<str>>,
}

/// The stack of a call. JSON has the frames alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub struct Stack {
    /// Indices into [`Sites::frames`], innermost frame first.
    pub frames: Vec<u32>,
    /// Where it ends; `None` in allocation traces, which do not state it.
    pub end: Option<StackEnd>,
}

impl From<Vec<u32>> for Stack {
    fn from(frames: Vec<u32>) -> Stack {
        Stack { frames, end: None }
    }
}

impl From<Stack> for Vec<u32> {
    fn from(stack: Stack) -> Vec<u32> {
        stack.frames
    }
}

/// Where a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// At the outermost function of the thread.
    Outermost,
    /// At the recorder's limit of frames.
    Depth,
    /// At code without unwind information that keeps no frame pointer: the callers are unknown.
    NoUnwindInformation,
    /// At the end of the recorded part of the stack: the callers are unknown.
    StackCutOff,
}

impl StackEnd {
    /// Every end, in the order of the codes in a file.
    pub const ALL: [Self; 4] = [Self::Outermost, Self::Depth, Self::NoUnwindInformation, Self::StackCutOff];

    /// Whether callers are missing that the recorder was asked for.
    pub const fn is_incomplete(self) -> bool {
        matches!(self, Self::NoUnwindInformation | Self::StackCutOff)
    }

    /// The end in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Outermost => "complete",
            Self::Depth => "ended at the limit of frames",
            Self::NoUnwindInformation => "incomplete: code without unwind information",
            Self::StackCutOff => "incomplete: deeper than the recorded part of the stack",
        }
    }
}

impl Sites {
    /// Whether no call site is known.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The stack of a site; `None` for an unknown site.
    pub fn stack(&self, site: SiteId) -> Option<&Stack> {
        self.stacks.get(site.stack()? as usize)
    }

    /// The frames of a site, innermost first; none for an unknown site.
    pub fn frames_of(&self, site: SiteId) -> impl Iterator<Item = &Frame> + '_ {
        let frames = self.stack(site).map(|stack| &stack.frames).into_iter().flatten();
        frames.filter_map(|&frame| self.frames.get(frame as usize))
    }

    /// The module of a frame.
    pub fn module_of(&self, frame: &Frame) -> Option<&Module> {
        self.modules.get(frame.module? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_bytes_or_digits() {
        for bytes in [&[][..], &[0, 0x1f, 0xff]] {
            assert_eq!(Module::new("a".into(), bytes).build_id_bytes(), bytes);
        }
        assert_eq!(Module::new("a".into(), &[0, 0x1f]).build_id.as_deref(), Some("001f"));
        for text in ["0", "0g", "+1", "é"] {
            let module = Module { path: "a".into(), build_id: Some(text.to_string()) };
            assert!(module.build_id_bytes().is_empty(), "{text}");
        }
    }

    #[test]
    fn json_has_the_frames_of_a_stack() {
        let stack = Stack { frames: vec![2, 0], end: Some(StackEnd::Depth) };
        assert_eq!(serde_json::to_string(&stack).expect("JSON"), "[2,0]");
        assert_eq!(serde_json::from_str::<Stack>("[2,0]").expect("a stack"), Stack::from(vec![2, 0]));
    }
}
