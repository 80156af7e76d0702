//! Finds functions by name in the files that a process executes.

use std::collections::{BTreeSet, HashSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use ::object::elf::{STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, SymbolType};
use ::object::read::ReadCache;
use ::object::read::elf::ElfFile64;
use ::object::{Endianness, Object, ObjectSegment, ObjectSymbol, SymbolFlags};
use hksim_linux_probe::maps::Maps;
use hksim_linux_probe::process_memory::ProcessMemory;
use hksim_text::nearest;

use super::named::{NamedFunction, guessed};
use crate::attach::loaded::Modules;
use crate::elf;

/// Section that Go's linker writes.
const GO_SECTION: &str = ".go.buildinfo";
/// Functions proposed if a named one does not exist.
const PROPOSED_MAX: usize = 6;
/// What Go programs allocate with, and what records it.
const GO: &str = "it is a Go program, whose runtime allocates without malloc, and moves stacks, so that the return of a \
                  function cannot be probed; record its page operations (hksim record --memory -p PID)";

/// A file whose code a process executes.
#[derive(Clone, Debug)]
pub struct CodeFile {
    /// A path at which this process can open it, also if it has been removed or is in another mount namespace.
    pub path: PathBuf,
    /// Its path as the process sees it.
    pub shown: String,
}

/// A function in a file.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file.
    pub file: CString,
    /// Path of the file, as the process sees it.
    pub shown: String,
    /// Where the function begins, in bytes from the start of the file.
    pub offset: u64,
}

impl CodeFile {
    /// The files of process `pid`: the program, then its libraries in the order in which glibc's dynamic linker searches
    /// them, or by address.
    pub fn of_process(pid: u32) -> Vec<CodeFile> {
        let program = PathBuf::from(format!("/proc/{pid}/exe"));
        let identity = |path: &PathBuf| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
        let mut known: HashSet<_> = identity(&program).into_iter().collect();
        let shown = fs::read_link(&program).map_or(String::new(), |path| path.to_string_lossy().into_owned());
        let memory = ProcessMemory::open(pid).ok();
        let modules = memory.and_then(|memory| Modules::read(pid, &memory.read_once()).ok());
        let place = |start: u64| {
            modules.as_ref().and_then(|modules| modules.all.iter().position(|module| module.range.contains(&start)))
        };
        let mut libraries = Vec::new();
        // Names of files need not be UTF-8.
        let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let maps = Maps::of_text(&text);
        for map in maps.iter().filter(|map| map.is_executable && map.name.starts_with('/')) {
            let path = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.start + map.bytes));
            if identity(&path).is_some_and(|identity| known.insert(identity)) {
                let place = place(map.start as u64).unwrap_or(usize::MAX);
                libraries.push((place, CodeFile { path, shown: map.name.to_string() }));
            }
        }
        libraries.sort_by_key(|(place, _)| *place);
        let program = CodeFile { path: program, shown };
        [program].into_iter().chain(libraries.into_iter().map(|(_, file)| file)).collect()
    }
}

/// Finds each function in the first file that has it.
///
/// # Errors
/// Why one cannot be found, as a predicate of the process, and what to do.
pub fn find_all(files: &[CodeFile], functions: &[NamedFunction]) -> Result<Vec<Found>, String> {
    let mut found: Vec<Option<Found>> = vec![None; functions.len()];
    for file in files {
        let missing: Vec<usize> = (0..functions.len()).filter(|&index| found[index].is_none()).collect();
        if missing.is_empty() {
            break;
        }
        let names: Vec<&str> = missing.iter().map(|&index| functions[index].name.as_str()).collect();
        for (index, offset) in missing.iter().zip(offsets(file, &names)?) {
            let path = CString::new(file.path.as_os_str().as_bytes()).ok();
            found[*index] =
                path.zip(offset).map(|(path, offset)| Found { file: path, shown: file.shown.clone(), offset });
        }
    }
    match found.iter().position(Option::is_none) {
        Some(index) => Err(why_missing(files, &functions[index].name)),
        None => Ok(found.into_iter().flatten().collect()),
    }
}

/// The functions with their places, each once: names of one function become one name, since each of its calls would count
/// once for each.
///
/// # Errors
/// Names of one function have different roles, which its calls do not tell.
pub fn once_each(functions: &[NamedFunction], found: Vec<Found>) -> Result<Vec<(NamedFunction, Found)>, String> {
    let mut each: Vec<(NamedFunction, Found)> = Vec::new();
    for (function, found) in functions.iter().zip(found) {
        let is_same =
            |other: &&mut (NamedFunction, Found)| other.1.file == found.file && other.1.offset == found.offset;
        match each.iter_mut().find(is_same) {
            None => each.push((function.clone(), found)),
            Some((earlier, _)) if (earlier.function, earlier.skipped) == (function.function, function.skipped) => {
                earlier.name = format!("{}, {}", earlier.name, function.name);
            }
            Some((earlier, _)) => {
                return Err(format!(
                    "{} and {} are one function in {}, so their calls cannot be told apart; name one of them",
                    earlier.name, function.name, found.shown
                ));
            }
        }
    }
    Ok(each)
}

/// Where functions of a file begin; `None` for those that it does not have.
fn offsets(file: &CodeFile, names: &[&str]) -> Result<Vec<Option<u64>>, String> {
    let mut places: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); names.len()];
    let mut resolved_late = None;
    with_file(file, |elf| {
        for (name, kind, address) in code_symbols(elf) {
            let Some(index) = names.iter().position(|wanted| *wanted == name) else { continue };
            if kind == STT_GNU_IFUNC {
                resolved_late = Some(index);
            }
            places[index].extend(file_offset(elf, address));
        }
    });
    if let Some(index) = resolved_late {
        return Err(format!("{} is chosen when the program starts (ifunc); name the function itself", names[index]));
    }
    let single = |(name, places): (&&str, BTreeSet<u64>)| match places.len() {
        0 | 1 => Ok(places.first().copied()),
        several => Err(format!("{} has {several} functions of the name {name}; name others", file.shown)),
    };
    names.iter().zip(places).map(single).collect()
}

type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// Reads a file; nothing happens if it is damaged, or not of 64 bits.
fn with_file<T>(file: &CodeFile, each: impl FnOnce(&Elf<'_>) -> T) -> Option<T> {
    let cache = ReadCache::new(File::open(&file.path).ok()?);
    elf::has_credible_tables(&cache).ok().filter(|credible| *credible)?;
    let elf: Elf<'_> = ElfFile64::parse(&cache).ok()?;
    Some(each(&elf))
}

/// Name, type and address of each function that a file defines.
fn code_symbols<'a>(elf: &'a Elf<'a>) -> impl Iterator<Item = (&'a str, SymbolType, u64)> {
    elf.symbols().chain(elf.dynamic_symbols()).filter(|symbol| !symbol.is_undefined()).filter_map(|symbol| {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
        let kind = st_info.st_type();
        matches!(kind, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE).then_some(())?;
        Some((symbol.name().ok()?, kind, symbol.address()))
    })
}

/// The place in the file of a loaded address.
fn file_offset(elf: &Elf<'_>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let (start, bytes) = segment.file_range();
        let within = address.checked_sub(segment.address()).filter(|&within| within < bytes)?;
        start.checked_add(within)
    })
}

/// Why no file has a function of this name.
fn why_missing(files: &[CodeFile], name: &str) -> String {
    let Some(program) = files.first() else { return "its program cannot be read".to_string() };
    let facts = with_file(program, |elf| {
        let is_go = elf.section_by_name(GO_SECTION).is_some();
        let names = || code_symbols(elf).map(|(name, _, _)| name);
        let similar = nearest::nearest(name, names()).map(str::to_string);
        let named: BTreeSet<&str> = names().filter(|name| guessed(name).is_some()).collect();
        // Those with the shortest names are the program's interface; what they call in turn has longer ones.
        let mut proposed: Vec<String> = named.into_iter().map(str::to_string).collect();
        proposed.sort_by_key(String::len);
        proposed.truncate(PROPOSED_MAX);
        (is_go, elf.symbols().next().is_some(), similar, proposed)
    });
    match facts {
        None => "its program cannot be read, or is not a 64-bit ELF file".to_string(),
        Some((true, ..)) => GO.to_string(),
        Some((_, false, None, _)) => format!(
            "no function {name} is in {} or its libraries; the program has no symbol table (stripped): use a build with one",
            program.shown
        ),
        Some((_, _, similar, proposed)) => {
            let question = similar.map_or(String::new(), |similar| format!("; did you mean {similar}?"));
            let has = match proposed.is_empty() {
                true => String::new(),
                false => format!("; by their names, these allocate or free: {}", proposed.join(", ")),
            };
            format!("no function {name} is in {} or its libraries{question}{has}", program.shown)
        }
    }
}

/// Why the returns of this program's functions must not be probed; `None` if they may.
pub fn why_not_probed(files: &[CodeFile], functions: &[NamedFunction]) -> Option<&'static str> {
    let is_go = with_file(files.first()?, |elf| elf.section_by_name(GO_SECTION).is_some())?;
    // Go's functions have the name of their package; others are C, and run on stacks that do not move.
    (is_go && functions.iter().any(|function| function.name.contains('.'))).then_some(GO)
}
