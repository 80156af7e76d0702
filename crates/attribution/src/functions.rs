//! The functions of the allocator: from addresses of a process to names.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use hksim_linux_probe::maps::Mapping;
use hksim_replay::explained::Place;
use hksim_trace::sites::{Frame, Module, Sites};
use hksim_trace::symbols::{Symbols, file_name, short_text};
use object::{Object, ObjectSection};

use crate::call_targets::Code;
use crate::wrappers::{Wrappers, is_entry};

/// A function, an index of [`Functions::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

impl FunctionId {
    /// Nothing in the trace: the allocator's start.
    pub const START: FunctionId = FunctionId(0);
}

impl FunctionId {
    /// The function of the same name, if it has one of `names`.
    pub(crate) fn renamed(self, names: &BTreeMap<FunctionId, FunctionId>) -> FunctionId {
        names.get(&self).copied().unwrap_or(self)
    }
}

/// The beginnings of names, without underscores, of functions that others use: the caller is of interest.
const PRIMITIVES: [&str; 14] = [
    "memset",
    "memcpy",
    "memmove",
    "mempcpy",
    "bzero",
    "mmap",
    "munmap",
    "mremap",
    "madvise",
    "brk",
    "sbrk",
    "glibc_morecore",
    "mlock",
    "syscall",
];

/// The function in which something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The innermost function of the allocator that is none of `PRIMITIVES`; `None` if only such functions are known,
    /// as after a tail call.
    pub function: Option<FunctionId>,
    /// Whether it used a function of the C library that fills or copies memory.
    pub fills: bool,
    /// Whether it fills memory with one value.
    pub clears: bool,
}

/// A file that code was loaded from.
struct File {
    start: u64,
    end: u64,
    module: u32,
}

/// Names of the functions of a process.
#[derive(Default)]
pub struct Functions {
    /// Its files, by address.
    files: Vec<File>,
    sites: Sites,
    symbols: RefCell<Symbols>,
    /// The file of the allocator.
    allocator: Option<u32>,
    names: Vec<String>,
    by_name: HashMap<String, FunctionId>,
    by_place: HashMap<Place, Found>,
    wrappers: Wrappers,
    makers_by_place: HashMap<Place, Option<FunctionId>>,
    /// The only callers of functions that make system calls.
    callers: BTreeMap<FunctionId, String>,
    /// The code of files.
    code: HashMap<u32, Code>,
    /// The starts of functions, by file.
    starts: HashMap<u32, Vec<u64>>,
}

impl Functions {
    /// The functions of a process with these mappings. `library` is the allocator's file; `None` for the C library.
    pub fn new<'a>(mappings: impl Iterator<Item = Mapping<'a>>, library: Option<&Path>) -> Functions {
        let mut functions = Functions::default();
        functions.named("start-up".to_string());
        for mapping in mappings.filter(|mapping| mapping.name.starts_with('/')) {
            functions.add(mapping, library);
        }
        functions
    }

    /// Adds a part of a file. The parts of a file are adjacent in the list of mappings.
    fn add(&mut self, mapping: Mapping<'_>, library: Option<&Path>) {
        let end = (mapping.start + mapping.bytes) as u64;
        let last_path = self.sites.modules.last().map(|module| &*module.path);
        if let (Some(file), true) = (self.files.last_mut(), last_path == Some(mapping.name)) {
            file.end = end;
            return;
        }
        let module = self.sites.modules.len() as u32;
        let name = file_name(mapping.name);
        let is_allocator = match library {
            Some(library) => library == Path::new(mapping.name),
            None => name.starts_with("libc.so") || name.starts_with("libc-"),
        };
        if is_allocator {
            self.allocator = Some(module);
        }
        self.sites.modules.push(Module::new(mapping.name.into(), &build_id(mapping.name)));
        self.files.push(File { start: mapping.start as u64, end, module });
    }

    /// The function with a name.
    pub fn named(&mut self, name: String) -> FunctionId {
        let next = FunctionId(self.names.len() as u32);
        *self.by_name.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        })
    }

    /// The name of a function; file and offset if the file has no symbols.
    pub fn name(&self, function: FunctionId) -> &str {
        self.names.get(function.0 as usize).map_or("", |name| name)
    }

    /// The file, by its index, in which an address is.
    pub fn file_at(&self, address: u64) -> Option<u32> {
        let after = self.files.partition_point(|file| file.start <= address);
        let file = &self.files[..after].last().filter(|file| address < file.end)?;
        Some(file.module)
    }

    /// The name of a file, without its folder.
    pub fn file(&self, file: u32) -> &str {
        self.sites.modules.get(file as usize).map_or("", |module| file_name(&module.path))
    }

    /// The function of the allocator in which something happened.
    pub fn at(&mut self, place: &Place) -> Found {
        if let Some(&found) = self.by_place.get(place) {
            return found;
        }
        let callers = place.callers.iter().filter(|&&caller| caller != 0).map(|caller| caller - 1);
        let (mut best, mut fills, mut clears) = (None, false, false);
        for address in std::iter::once(place.instruction).chain(callers) {
            for (name, is_of_allocator) in self.names_at(address) {
                let plain = plain(&name);
                let is_primitive = is_primitive(&name);
                fills |= best.is_none() && is_primitive && plain.starts_with("mem");
                clears |= best.is_none() && is_primitive && plain.starts_with("memset");
                if is_of_allocator && !is_primitive && best.is_none() {
                    best = Some(name);
                }
            }
        }
        let found = Found { function: best.map(|name| self.named(name)), fills, clears };
        self.by_place.insert(*place, found);
        found
    }

    /// The function that made a system call, which [`settle`](Functions::settle) names; `None` if only functions are known
    /// that are none of the allocator's, or that others use.
    pub(crate) fn maker(&mut self, place: &Place) -> Option<FunctionId> {
        if let Some(&maker) = self.makers_by_place.get(place) {
            return maker;
        }
        let mut chain = Vec::new();
        let callee = self.extend(&mut chain, place.instruction);
        let callers: Vec<u64> = place.callers.iter().copied().filter(|&caller| caller != 0).collect();
        self.follow(&mut chain, callee, &callers, true);
        // Entries are named only if nothing else is known.
        let within = chain.iter().position(|name| is_entry(name)).unwrap_or(chain.len()).max(1);
        chain.truncate(within);
        let next = FunctionId(self.names.len() as u32);
        let Functions { wrappers, names, .. } = self;
        let maker = chain.first().cloned().map(|name| {
            wrappers.id(chain, || {
                names.push(name);
                next
            })
        });
        self.makers_by_place.insert(*place, maker);
        maker
    }

    /// Adds the functions at an address to a chain. Returns the one that contains the others.
    fn extend(&mut self, chain: &mut Vec<String>, address: u64) -> String {
        let names = self.names_at(address);
        for (name, is_of_allocator) in &names {
            if *is_of_allocator && !is_primitive(name) && chain.last() != Some(name) {
                chain.push(name.clone());
            }
        }
        names.into_iter().next_back().map(|(name, _)| name).unwrap_or_default()
    }

    /// Adds the callers of a function to a chain. A return address is one of a call that is over if the call before it is to
    /// another function. If all are and `may_jump`, the innermost function was jumped to by the one that is called there.
    fn follow(&mut self, chain: &mut Vec<String>, callee: String, callers: &[u64], may_jump: bool) {
        if chain.last().is_some_and(|name| is_entry(name)) {
            return;
        }
        for (at, &caller) in callers.iter().enumerate() {
            if self.target(caller).is_none_or(|target| unsplit(&target) == unsplit(&callee)) {
                let callee = self.extend(chain, caller - 1);
                self.follow(chain, callee, &callers[at + 1..], false);
                return;
            }
        }
        if may_jump
            && let Some((&caller, rest)) = callers.split_first()
            && let Some(target) = self.target(caller)
        {
            if !is_primitive(&target) && chain.last() != Some(&target) {
                chain.push(target);
            }
            let callee = self.extend(chain, caller - 1);
            self.follow(chain, callee, rest, false);
        }
    }

    /// The function that the call before a return address is to, if the call says so.
    fn target(&mut self, return_address: u64) -> Option<String> {
        let module = self.file_at(return_address)?;
        let start = self.start_of(module);
        let path = &*self.sites.modules[module as usize].path;
        let code = self.code.entry(module).or_insert_with(|| Code::of(path));
        let target = code.target(return_address - start)?;
        self.names_at(start + target).into_iter().next_back().map(|(name, _)| name)
    }

    fn start_of(&self, module: u32) -> u64 {
        self.files.iter().find(|file| file.module == module).map_or(0, |file| file.start)
    }

    /// Names the functions that made system calls. Returns for each of them the function of that name.
    pub(crate) fn settle(&mut self) -> BTreeMap<FunctionId, FunctionId> {
        let mut settled = BTreeMap::new();
        for (id, named) in self.wrappers.named() {
            let function = self.named(named.name);
            settled.insert(id, function);
            self.callers.extend(named.caller.map(|caller| (function, caller)));
        }
        settled
    }

    /// The only function that calls one which makes system calls.
    pub fn caller(&self, function: FunctionId) -> Option<&str> {
        self.callers.get(&function).map(String::as_str)
    }

    /// The functions at an address, inlined ones first, and whether they are the allocator's.
    fn names_at(&mut self, address: u64) -> Vec<(String, bool)> {
        let Some(module) = self.file_at(address) else { return Vec::new() };
        let start = self.start_of(module);
        let frame = Frame { module: Some(module), address: address - start, function: None, source: None };
        let mut frames = self.symbols.borrow_mut().frames(&self.sites, &frame);
        for frame in frames.iter_mut().filter(|frame| frame.function.is_none()) {
            let path = &*self.sites.modules[module as usize].path;
            let starts = self.starts.entry(module).or_insert_with(|| function_starts(path));
            let after = starts.partition_point(|&start| start <= frame.address);
            frame.address = after.checked_sub(1).map_or(frame.address, |at| starts[at]);
        }
        let is_of_allocator = self.allocator == Some(module);
        frames.iter().map(|frame| (short_text(&self.sites, frame), is_of_allocator)).collect()
    }

    /// Notes about files without names.
    pub fn notes(&self) -> Vec<String> {
        self.symbols.borrow().notes(&self.sites)
    }
}

/// A name without the prefixes of the C library.
fn plain(name: &str) -> &str {
    name.trim_start_matches('_').trim_start_matches("GI_").trim_start_matches('_')
}

/// Whether others use a function, so that its caller is of interest.
fn is_primitive(name: &str) -> bool {
    let plain = plain(name);
    PRIMITIVES.iter().any(|beginning| plain.starts_with(beginning))
}

/// The name of a function without that of its part, such as `.cold`.
fn unsplit(name: &str) -> &str {
    name.split_once('.').map_or(name, |(name, _)| name)
}

/// The build id of a file; empty if it has none.
fn build_id(path: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let file = object::File::parse(&*bytes).ok();
    file.and_then(|file| file.build_id().ok().flatten().map(<[u8]>::to_vec)).unwrap_or_default()
}

/// The addresses at which the functions of a file start, in order: the search table of its unwind information
/// (`.eh_frame_hdr`, Linux Standard Base), which stripped files have too. Empty if it has none.
fn function_starts(path: &str) -> Vec<u64> {
    /// Version, and encodings: any of the pointer, 4 bytes of the count, 4 bytes from the section's start of the table.
    const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let bytes = std::fs::read(path).unwrap_or_default();
    let Ok(file) = object::File::parse(&*bytes) else { return Vec::new() };
    let Some(section) = file.section_by_name(".eh_frame_hdr") else { return Vec::new() };
    let Some((header, rest)) = section.data().ok().and_then(|data| data.split_first_chunk()) else { return Vec::new() };
    if *header != HEADER {
        return Vec::new();
    }
    // The pointer and the count, then pairs: the start of a function, and its unwind information.
    let words = rest.chunks_exact(4).map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    words.skip(2).step_by(2).map(|offset| section.address().wrapping_add_signed(offset.into())).collect()
}
