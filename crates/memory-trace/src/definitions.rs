//! What a chunk defines before its events: names, and in recordings with call stacks modules and call sites.

use std::collections::HashMap;
use std::sync::Arc;

use hksim_call_sites::{BUILD_ID_BYTES_MAX, Frame, Module, Sites, Stack, StackEnd};

use crate::event::NameId;
use crate::varint::{put, take};

/// Maximum number of frames of a stack, inlined functions included.
pub const FRAMES_MAX: usize = 1024;
/// Maximum length of a name in bytes; the rest is cut off.
const NAME_BYTES_MAX: usize = 4096;

/// The names of a recording that is written.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ids: HashMap<String, NameId>,
    /// The names that no chunk defines yet, as stored.
    new: Vec<u8>,
    new_count: u64,
}

impl Names {
    /// The number of a name; equal names have equal numbers.
    pub fn id(&mut self, name: &str) -> NameId {
        let name = shortened(name);
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.ids.len() as u32);
        self.ids.insert(name.to_string(), id);
        put(&mut self.new, name.len() as u64);
        self.new.extend_from_slice(name.as_bytes());
        self.new_count += 1;
        id
    }

    /// Bytes of the names that no chunk defines yet.
    pub fn new_bytes(&self) -> usize {
        self.new.len()
    }

    /// The stored form of the names that no chunk defines yet. The caller writes it into the next chunk, which defines
    /// them.
    pub fn take_new(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, std::mem::take(&mut self.new_count));
        bytes.append(&mut self.new);
        bytes
    }

    /// The number of an optional name in a definition: 0 for none.
    fn number(&mut self, name: Option<&str>) -> u64 {
        name.map_or(0, |name| u64::from(self.id(name).0) + 1)
    }
}

/// The name, cut off at a character boundary.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Reads the names of a chunk. `None` if they are damaged, or more than `count_max`.
pub(crate) fn take_names(bytes: &mut &[u8], count_max: u64, names: &mut Vec<Arc<str>>) -> Option<()> {
    let count = take(bytes).filter(|&count| count <= count_max)?;
    for _ in 0..count {
        let length = usize::try_from(take(bytes)?).ok()?;
        names.push(String::from_utf8_lossy(take_bytes(bytes, length)?).into());
    }
    Some(())
}

/// Appends the modules and stacks from these numbers on.
pub(crate) fn put_sites(bytes: &mut Vec<u8>, sites: &Sites, (modules, stacks): (usize, usize), names: &mut Names) {
    let (modules, stacks) = (&sites.modules[modules..], &sites.stacks[stacks..]);
    put(bytes, modules.len() as u64);
    for module in modules {
        put(bytes, names.number(Some(&module.path)));
        let build_id = module.build_id_bytes();
        let build_id = &build_id[..build_id.len().min(BUILD_ID_BYTES_MAX)];
        put(bytes, build_id.len() as u64);
        bytes.extend_from_slice(build_id);
    }
    put(bytes, stacks.len() as u64);
    for stack in stacks {
        bytes.push(StackEnd::ALL.iter().position(|&end| Some(end) == stack.end).unwrap_or_default() as u8);
        let frames = &stack.frames[..stack.frames.len().min(FRAMES_MAX)];
        put(bytes, frames.len() as u64);
        for frame in frames.iter().map(|&frame| &sites.frames[frame as usize]) {
            put(bytes, frame.module.map_or(0, |module| u64::from(module) + 1));
            put(bytes, frame.address);
            put(bytes, names.number(frame.function.as_deref()));
            put(bytes, names.number(frame.source.as_deref()));
        }
    }
}

/// Reads the modules and stacks of a chunk. `None` if they are damaged.
pub(crate) fn take_sites(bytes: &mut &[u8], names: &[Arc<str>], sites: &mut Sites) -> Option<()> {
    for _ in 0..take(bytes)? {
        let path = take_name(bytes, names)??;
        let length = usize::try_from(take(bytes)?).ok().filter(|&length| length <= BUILD_ID_BYTES_MAX)?;
        sites.modules.push(Module::new(path, take_bytes(bytes, length)?));
    }
    for _ in 0..take(bytes)? {
        let end = StackEnd::ALL.get(usize::from(take_bytes(bytes, 1)?[0]))?;
        let count = usize::try_from(take(bytes)?).ok().filter(|&count| count <= FRAMES_MAX)?;
        let (modules, first) = (sites.modules.len() as u64, sites.frames.len() as u32);
        for _ in 0..count {
            sites.frames.push(take_frame(bytes, names, modules)?);
        }
        sites.stacks.push(Stack { frames: (first..sites.frames.len() as u32).collect(), end: Some(*end) });
    }
    Some(())
}

fn take_frame(bytes: &mut &[u8], names: &[Arc<str>], modules: u64) -> Option<Frame> {
    let module = match take(bytes).filter(|&number| number <= modules)? {
        0 => None,
        number => Some(number as u32 - 1),
    };
    let address = take(bytes)?;
    Some(Frame { module, address, function: take_name(bytes, names)?, source: take_name(bytes, names)? })
}

/// An optional name; the outer `None` if its number is damaged.
fn take_name(bytes: &mut &[u8], names: &[Arc<str>]) -> Option<Option<Arc<str>>> {
    match usize::try_from(take(bytes)?).ok()? {
        0 => Some(None),
        number => names.get(number - 1).cloned().map(Some),
    }
}

fn take_bytes<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}
