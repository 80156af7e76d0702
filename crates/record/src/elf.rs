//! Reads the symbol tables of a program and of its allocator.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use ::object::elf::{FileHeader64, SHT_NOBITS, SHT_PROGBITS};
use ::object::read::ReadCache;
use ::object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use ::object::{Object, ObjectSection, ObjectSymbol};
use hksim_recording_files::open_regular;

/// Maximum size of a table of symbols or their names. Those of the largest programs have some 500 MiB.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// C++'s `operator new(size_t)`.
const OPERATOR_NEW: &str = "_Znwm";
/// Names of allocation functions that are specific to one allocator. The recorder interposes only the standard names.
const OWN_NAMES: [&str; 16] = [
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "je_malloc",
    "je_free",
    "_rjem_malloc",
    "_rjem_mallocx",
    "mi_malloc",
    "mi_free",
    "mi_heap_malloc",
    "tc_malloc",
    "tc_free",
    "rpmalloc",
    "scalable_malloc",
];

/// Sanitizers with an allocator of their own, each with a library or function that the file names.
const SANITIZERS: [(&str, &str); 9] = [
    ("libasan.so", "AddressSanitizer"),
    ("__asan_init", "AddressSanitizer"),
    ("libtsan.so", "ThreadSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("liblsan.so", "LeakSanitizer"),
    ("__lsan_init", "LeakSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("libhwasan.so", "HWAddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
];

/// Facts from a file's symbol tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Whether the file exports its own `malloc`.
    pub defines_malloc: bool,
    /// Whether the file exports its own C++ `operator new`.
    pub defines_operators: bool,
    /// The sanitizer that the file is built with, if it has an allocator of its own.
    pub sanitizer: Option<&'static str>,
    /// Functions of `OWN_NAMES` that the file calls or contains.
    pub own_names: BTreeSet<&'static str>,
}

/// Reads the symbol tables of an ELF file; `None` if the file is damaged or not ELF. A log may name any path as that of
/// the allocator.
pub fn symbols(path: &Path) -> Option<Symbols> {
    let cache = ReadCache::new(open_regular(path).ok()??);
    has_credible_tables(&cache).ok().filter(|credible| *credible)?;
    let file: ElfFile64<'_, ::object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
    let mut found = Symbols::default();
    for symbol in file.dynamic_symbols() {
        match symbol.name() {
            Ok("malloc") => found.defines_malloc |= symbol.is_definition(),
            Ok(OPERATOR_NEW) => found.defines_operators |= symbol.is_definition(),
            Ok(name) if symbol.is_undefined() => found.own_names.extend(own_name(name)),
            _ => {}
        }
    }
    found.sanitizer = dynamic_names(&file).and_then(|names| sanitizer_in(&names));
    // Statically linked functions are visible only if the program is not stripped.
    let inside = file.symbols().filter(|symbol| symbol.is_definition());
    found.own_names.extend(inside.filter_map(|symbol| symbol.name().ok().and_then(own_name)));
    Some(found)
}

/// Whether the parts that parsing reads are not larger than those of any program.
pub fn has_credible_tables(file: &ReadCache<File>) -> ::object::Result<bool> {
    let header = FileHeader64::<::object::Endianness>::parse(file)?;
    let endian = header.endian()?;
    Ok(header.section_headers(endian, file)?.iter().all(|section| {
        matches!(section.sh_type(endian), SHT_PROGBITS | SHT_NOBITS) || section.sh_size(endian) <= TABLE_BYTES_MAX
    }))
}

/// The names of the file's libraries and dynamic symbols, each terminated by a zero byte.
fn dynamic_names<'data>(file: &ElfFile64<'data, ::object::Endianness, &'data ReadCache<File>>) -> Option<Vec<u8>> {
    file.section_by_name(".dynstr").and_then(|section| section.data().ok()).map(<[u8]>::to_vec)
}

fn sanitizer_in(names: &[u8]) -> Option<&'static str> {
    let named = |wanted: &str| {
        // A library's name continues with its version.
        let is_library = wanted.ends_with(".so");
        let is_it = |name: &[u8]| name == wanted.as_bytes() || (is_library && name.starts_with(wanted.as_bytes()));
        names.split(|&byte| byte == 0).any(is_it)
    };
    SANITIZERS.into_iter().find(|(wanted, _)| named(wanted)).map(|(_, sanitizer)| sanitizer)
}

fn own_name(name: &str) -> Option<&'static str> {
    OWN_NAMES.into_iter().find(|own| *own == name)
}

/// Whether the allocator at `path` implements C++'s `operator new` without `malloc`. This is assumed of any allocator
/// that defines both. (libstdc++ defines no `malloc`: its `operator new` calls the program's.)
pub fn serves_operators(path: &Path) -> bool {
    symbols(path).is_some_and(|symbols| symbols.defines_malloc && symbols.defines_operators)
}

/// Whether the `malloc` of the program at `path` comes from an allocator that also defines C++'s operators. The dynamic
/// linker lists the objects that it would load, including preloaded ones; the program does not run.
pub fn allocator_serves_operators(path: &Path, loader: &Path) -> bool {
    let Ok(listed) = Command::new(loader).arg("--list").arg(path).output() else {
        return false;
    };
    let listed = String::from_utf8_lossy(&listed.stdout);
    let libraries = listed.lines().filter_map(library);
    libraries
        .filter_map(|library| symbols(Path::new(library)))
        .find(|symbols| symbols.defines_malloc)
        .is_some_and(|allocator| allocator.defines_operators)
}

/// The path in a line of the dynamic linker's list: `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`.
fn library(line: &str) -> Option<&str> {
    let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
    let path = path.rsplit_once(" (").map_or(path, |(path, _)| path);
    path.starts_with('/').then_some(path)
}

#[cfg(test)]
mod tests {
    use super::library;

    #[test]
    fn library_paths_are_read_from_the_dynamic_linkers_list() {
        assert_eq!(
            library("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)"),
            Some("/lib/x86_64-linux-gnu/libc.so.6")
        );
        assert_eq!(library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(library("\tlibgone.so => not found"), None);
    }
}
