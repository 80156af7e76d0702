//! The modules that a running process has loaded, read from its memory.

use std::ffi::CStr;
use std::fs;
use std::ops::Range;

use hksim_linux_probe::dynamic_section::{DynamicSection, Memory};

use crate::attachment::AREA;

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_PHDR: u64 = 6;
const HEADER_BYTES: u64 = 56;
/// First word of an ELF file of 64 bits, without its version and ABI.
const ELF_64: u64 = 0x0102_464c_457f;
/// Maximum number of modules, against damaged lists.
const MODULES_MAX: usize = 10_000;
/// Offset of `r_map` in the dynamic linker's `struct r_debug`.
const DEBUG_MODULES: u64 = 8;
/// Offset of `r_state` there.
const DEBUG_STATE: u64 = 24;

/// A loaded module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Load bias: address in the process minus address in the file.
    pub bias: u64,
    /// Its addresses; code and data are in them.
    pub range: Range<u64>,
    /// Its path; empty for the program.
    pub name: String,
    /// What it defines and calls.
    pub section: DynamicSection,
}

/// All modules, in the order in which the dynamic linker searches them.
#[derive(Clone, Debug)]
pub struct Modules {
    /// The program comes first.
    pub all: Vec<Module>,
    /// Addresses of the dynamic linker.
    pub loader: Range<u64>,
    /// Address of its `r_debug.r_state`.
    pub loader_state: u64,
}

/// Why a process has no list of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoModules {
    /// It has no dynamic linker.
    Static,
    /// Another dynamic linker than glibc's has loaded it.
    OtherLoader(String),
    /// The list cannot be read: the program has just begun, or its memory is damaged.
    Unreadable,
}

impl Modules {
    /// The modules of process `pid`.
    ///
    /// # Errors
    /// It has none, or they cannot be read.
    pub fn read(pid: u32, memory: &impl Memory) -> Result<Self, NoModules> {
        let auxiliary = Auxiliary::read(pid).ok_or(NoModules::Unreadable)?;
        let headers = Headers::read(memory, auxiliary.headers, auxiliary.count).ok_or(NoModules::Unreadable)?;
        let bias = headers.find(PT_PHDR).map_or(0, |header| auxiliary.headers.wrapping_sub(header.address));
        let interpreter = headers.find(PT_INTERP).ok_or(NoModules::Static)?;
        let mut path = vec![0; (interpreter.bytes as usize).clamp(1, libc::PATH_MAX as usize) - 1];
        memory.read(bias.wrapping_add(interpreter.address), &mut path);
        let path = String::from_utf8_lossy(&path).into_owned();
        if !path.contains("ld-linux") {
            return Err(NoModules::OtherLoader(path));
        }
        let section = headers.find(PT_DYNAMIC).ok_or(NoModules::Static)?;
        let section = DynamicSection::read(memory, bias, bias.wrapping_add(section.address));
        let program = Module {
            bias,
            range: headers.range(bias),
            name: String::new(),
            section: section.ok_or(NoModules::Unreadable)?,
        };
        Self::listed(memory, program, auxiliary.loader).ok_or(NoModules::Unreadable)
    }

    /// Follows the dynamic linker's list.
    fn listed(memory: &impl Memory, program: Module, loader: u64) -> Option<Self> {
        let debug = program.section.debug;
        let mut map = memory.word(debug.checked_add(DEBUG_MODULES).filter(|_| debug != 0)?)?;
        let mut all = vec![program];
        let mut loader_range = None;
        while map != 0 && all.len() < MODULES_MAX {
            let [bias, name, section, next] = [0, 8, 16, 24].map(|offset| memory.word(map + offset));
            let (bias, section, next) = (bias?, section?, next?);
            // The list begins with the program.
            let module = || Module::at_bias(memory, bias, &text(memory, name?)?, section);
            if bias != all[0].bias
                && let Some(module) = module()
            {
                if bias == loader {
                    loader_range = Some(module.range.clone());
                }
                all.push(module);
            }
            map = next;
        }
        Some(Self { all, loader: loader_range?, loader_state: debug + DEBUG_STATE })
    }

    /// The first module that defines a function or variable, and its address.
    pub fn find(&self, memory: &impl Memory, name: &CStr) -> Option<(&Module, u64)> {
        self.all.iter().find_map(|module| Some((module, module.section.symbol(memory, name)?)))
    }

    /// The recorders' objects among the modules.
    pub fn recorders(&self, memory: &impl Memory) -> impl Iterator<Item = &Module> {
        self.all.iter().filter(|module| module.section.symbol(memory, AREA).is_some())
    }
}

impl Module {
    fn at_bias(memory: &impl Memory, bias: u64, name: &str, section: u64) -> Option<Self> {
        let section = DynamicSection::read(memory, bias, section)?;
        let is_file = memory.word(bias)? & 0xffff_ffff_ffff == ELF_64;
        let (offset, counts) = (memory.word(bias + 32)?, memory.word(bias + 56)?);
        let headers = is_file.then(|| Headers::read(memory, bias.checked_add(offset)?, counts & 0xffff))??;
        Some(Self { bias, range: headers.range(bias), name: name.to_string(), section })
    }
}

/// Where the kernel placed the program.
struct Auxiliary {
    headers: u64,
    count: u64,
    loader: u64,
}

impl Auxiliary {
    fn read(pid: u32) -> Option<Self> {
        let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
        let find = |kind| words.chunks_exact(2).find(|pair| pair[0] == kind).map(|pair| pair[1]);
        Some(Self { headers: find(AT_PHDR)?, count: find(AT_PHNUM)?, loader: find(AT_BASE)? })
    }
}

/// A program header.
struct Header {
    kind: u64,
    address: u64,
    bytes: u64,
}

/// The program headers of a module.
struct Headers(Vec<Header>);

impl Headers {
    fn read(memory: &impl Memory, start: u64, count: u64) -> Option<Self> {
        let header = |at: u64| {
            Some(Header {
                kind: memory.word(at)? & 0xffff_ffff,
                address: memory.word(at + 16)?,
                bytes: memory.word(at + 40)?,
            })
        };
        (0..count).map(|index| header(start.checked_add(index * HEADER_BYTES)?)).collect::<Option<_>>().map(Self)
    }

    fn find(&self, kind: u64) -> Option<&Header> {
        self.0.iter().find(|header| header.kind == kind)
    }

    fn range(&self, bias: u64) -> Range<u64> {
        let loaded = || self.0.iter().filter(|header| header.kind == PT_LOAD);
        let start = loaded().map(|header| header.address).min().unwrap_or(0);
        let end = loaded().map(|header| header.address.saturating_add(header.bytes)).max().unwrap_or(0);
        bias.wrapping_add(start)..bias.wrapping_add(end)
    }
}

/// The C string at `address`.
pub fn text(memory: &impl Memory, address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < libc::PATH_MAX as usize {
        let mut byte = [0];
        if !memory.read(address.checked_add(bytes.len() as u64)?, &mut byte) {
            return None;
        }
        if byte[0] == 0 {
            break;
        }
        bytes.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
