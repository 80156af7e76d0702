//! Which allocator a malloc library is, and which version of it, from its file alone: nothing of it is run.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol};

use crate::Target;
use crate::compare::{Found, lookup};

/// An allocator and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The allocator, as `--allocators` names it.
    pub allocator: &'static str,
    /// Its version: `5.3.0`.
    pub version: String,
}

/// The C library of this process.
pub fn c_library() -> Option<Library> {
    // SAFETY: takes nothing and returns a static string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(Library { allocator: "glibc", version: version.to_str().ok()?.to_string() })
}

/// The dynamic loader of this process, which reads glibc's tunables; `None` in a static program.
pub(crate) fn loader() -> Option<PathBuf> {
    loaded(|name| name.starts_with("ld-"))
}

/// The file of this process's C library, to preload into a program that is linked to another allocator.
pub fn c_library_file() -> Option<PathBuf> {
    loaded(|name| name.starts_with("libc.so") || name.starts_with("libc-2"))
}

fn loaded(is_meant: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut files = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5)).map(Path::new);
    files.find(|file| file.file_name().is_some_and(|name| is_meant(&name.to_string_lossy()))).map(Path::to_path_buf)
}

/// The allocator that `--allocators` finds by this name on this machine; `None` if it is missing or does not tell its
/// version.
pub fn installed(name: &str) -> Option<Library> {
    match lookup(name, "").ok()? {
        Found::Here(Target::Malloc { preload: Some(path), .. }) => library(&path),
        Found::Here(Target::Malloc { preload: None, .. }) => c_library(),
        Found::Here(_) | Found::Missing(_) => None,
    }
}

/// What a file contains; `None` if it is not mimalloc, jemalloc or gperftools, or does not tell its version.
pub fn library(path: &Path) -> Option<Library> {
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let defines = |name: &str| file.dynamic_symbols().any(|one| one.is_definition() && one.name() == Ok(name));
    let (allocator, version) = if defines("mi_version") {
        ("mimalloc", mimalloc(&file)?)
    } else if defines("mallctl") {
        ("jemalloc", jemalloc(&bytes)?)
    } else if defines("tc_version") {
        ("gperftools", gperftools(&bytes)?)
    } else {
        return None;
    };
    Some(Library { allocator, version })
}

/// mimalloc's version is a constant in the code of `mi_version`: `mov $VERSION, %eax; ret`.
fn mimalloc(file: &object::File<'_>) -> Option<String> {
    let symbol = file.dynamic_symbols().find(|one| one.name() == Ok("mi_version"))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let start = usize::try_from(symbol.address().checked_sub(section.address())?).ok()?;
    let code = section.data().ok()?.get(start..)?;
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let [0xb8, number @ ..] = code.get(..5)? else { return None };
    Some(mimalloc_version(u32::from_le_bytes(number.try_into().ok()?)))
}

/// `MI_MALLOC_VERSION` has a digit for each part up to 2.2.5 and 3.1.5, and two digits for each but the first later.
fn mimalloc_version(number: u32) -> String {
    let base = if number < 1000 { 10 } else { 100 };
    format!("{}.{}.{}", number / (base * base), number / base % base, number % base)
}

/// jemalloc's version is a string such as `5.3.0-0-g` and the 40 digits of a commit.
fn jemalloc(bytes: &[u8]) -> Option<String> {
    let commit = |at: usize| bytes.get(at..at + 40).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let at = bytes.windows(2).enumerate().find(|&(at, two)| two == b"-g" && commit(at + 2))?.0;
    let word = word_before(bytes, at);
    word.split('-').next().filter(|version| version.contains('.')).map(String::from)
}

/// gperftools' version is in the string `gperftools 2.10`.
fn gperftools(bytes: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"gperftools ";
    let at = bytes.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let version: String =
        bytes[at..].iter().map(|&byte| char::from(byte)).take_while(|&one| is_of_version(one)).collect();
    version.contains('.').then_some(version)
}

/// The digits, dots and dashes before a position.
fn word_before(bytes: &[u8], end: usize) -> String {
    let is_part = |byte: &u8| is_of_version(char::from(*byte)) || *byte == b'-';
    let start = bytes[..end].iter().rposition(|byte| !is_part(byte)).map_or(0, |at| at + 1);
    bytes[start..end].iter().map(|&byte| char::from(byte)).collect()
}

fn is_of_version(letter: char) -> bool {
    letter.is_ascii_digit() || letter == '.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_mimalloc_have_one_or_two_digits_a_part() {
        for (number, version) in [(209, "2.0.9"), (217, "2.1.7"), (20302, "2.3.2"), (30302, "3.3.2")] {
            assert_eq!(mimalloc_version(number), version);
        }
    }

    #[test]
    fn versions_are_found_in_strings() {
        let commit = "54eaed1d8b56b1aa528be3bdd1877e59c56fa90c";
        assert_eq!(jemalloc(format!("\0x-g1\0{}-0-g{commit}\0", "5.3.0").as_bytes()), Some("5.3.0".into()));
        assert_eq!(jemalloc(format!("\0-g{commit}\0").as_bytes()), None);
        assert_eq!(jemalloc(b"-g"), None);
        assert_eq!(gperftools(b"\0gperftools 2.10\0"), Some("2.10".into()));
        assert_eq!(gperftools(b"gperftools "), None);
    }

    #[test]
    fn other_files_are_no_allocators() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lib.so");
        assert_eq!(library(&file), None, "missing");
        std::fs::write(&file, b"\x7fELF").expect("a file");
        assert_eq!(library(&file), None, "cut short");
        assert_eq!(library(&std::env::current_exe().expect("this program")), None, "without these symbols");
    }

    #[test]
    fn the_c_library_names_its_version() {
        let library = c_library().expect("glibc");
        assert!(library.version.starts_with("2."), "{library:?}");
    }
}
