//! The file on this machine that contains a module's symbols.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use hksim_recording_files::open_regular;
use object::{Object, ReadCache};

use super::limits;
use crate::{Module, hexadecimal};

/// The directory in which distributions install debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The symbols of a module on this machine.
pub struct ModuleNames {
    /// The separate debug file and the module's own file, in search order.
    files: Vec<Loader>,
    /// Why there are no names, or why they may be wrong.
    pub note: Option<String>,
}

fn another_build(what: &str) -> String {
    format!("{what}: another build; `hksim trace symbolise` keeps the names if it runs before the next build")
}

impl ModuleNames {
    /// Finds the module's own file and its debug file. A file of another build is not used, because its names would be
    /// wrong.
    pub fn find(module: &Module) -> Self {
        let path = Path::new(&*module.path);
        let mut files: Vec<Loader> = module.build_id.as_deref().and_then(debug_file).into_iter().collect();
        let own = build_id_of(path);
        let note = match (&module.build_id, &own) {
            (_, Err(why)) => Some(why.clone()),
            (Some(recorded), Ok(Some(found))) if recorded != found => {
                Some(another_build(&format!("build id {found} here, {recorded} in the trace")))
            }
            (Some(_), Ok(None)) => Some(another_build("no build id here, one in the trace")),
            (None, Ok(Some(_))) => Some(another_build("a build id here, none in the trace")),
            (None, Ok(None)) => None,
            (Some(_), Ok(Some(_))) => None,
        };
        if note.is_none() {
            files.extend(load(path));
        }
        let unsure = note.is_none() && module.build_id.is_none();
        let unsure = unsure.then(|| "has no build id; names come from the current file".to_string());
        let missing = note.filter(|_| files.is_empty());
        Self { files, note: missing.or(unsure) }
    }

    /// The functions at an address of the file, innermost inlined one first, with file and line.
    pub fn at(&self, address: u64) -> Vec<(String, Option<String>)> {
        let lines = self.files.iter().map(|file| lines_at(file, address)).find(|lines| !lines.is_empty());
        lines.unwrap_or_else(|| {
            let symbol = self.files.iter().find_map(|file| file.find_symbol(address));
            symbol.map(|name| (readable(name), None)).into_iter().collect()
        })
    }
}

/// A symbol's name as the source has it. Only symbols with the prefix of a mangling scheme are demangled: a C function
/// `f` would otherwise become the type `float`.
fn readable(symbol: &str) -> String {
    match symbol.starts_with("_Z") || symbol.starts_with("_R") {
        true => addr2line::demangle_auto(symbol.into(), None).into_owned(),
        false => symbol.to_string(),
    }
}

fn lines_at(file: &Loader, address: u64) -> Vec<(String, Option<String>)> {
    let mut lines = Vec::new();
    let Ok(mut frames) = file.find_frames(address) else {
        return lines;
    };
    while let Ok(Some(frame)) = frames.next() {
        let source = frame.location.and_then(|place| {
            let line = place.line.map_or(String::new(), |line| format!(":{line}"));
            Some(format!("{}{line}", place.file?))
        });
        // Assembly code has lines but no functions; use the symbol table where debug information has no name.
        let function = frame.function.and_then(|function| Some(readable(&function.raw_name().ok()?)));
        let symbol = || file.find_symbol(address).map(readable);
        if let Some(name) = function.or_else(symbol) {
            lines.push((name, source));
        }
    }
    lines
}

/// The debug file of a build id.
fn debug_file(build_id: &str) -> Option<Loader> {
    let (first, rest) = build_id.split_at_checked(2)?;
    if !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    load(&Path::new(DEBUG_ROOT).join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Opens a file, and its supplementary debug file if it has one.
fn load(path: &Path) -> Option<Loader> {
    is_usable(path).then_some(())?;
    // The loader also opens `app.dwp` next to `app`, whatever that is.
    if fs::metadata(package_of(path)).is_ok_and(|package| !package.is_file()) {
        return None;
    }
    match shared_debug_file(path) {
        Some(shared) => Loader::new_with_sup(path, Some(shared)).ok(),
        None => Loader::new(path).ok(),
    }
}

fn shared_debug_file(path: &Path) -> Option<PathBuf> {
    let bytes = contents(path).ok()?;
    let file = object::File::parse(&bytes).ok()?;
    let (name, _) = file.gnu_debugaltlink().ok()??;
    let name = PathBuf::from(String::from_utf8_lossy(name).into_owned());
    // The link is relative to the debug file's real path.
    let shared = fs::canonicalize(path).ok()?.parent()?.join(name);
    is_usable(&shared).then_some(shared)
}

/// The file of split debug information of a program.
fn package_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".dwp");
    path.with_file_name(name)
}

/// Whether a file is a regular one with parts of credible sizes.
fn is_usable(path: &Path) -> bool {
    contents(path).is_ok_and(|bytes| limits::check(&bytes).is_ok())
}

/// A module's file, of which only the parts that are needed are read. The trace names it, so it is a regular file.
fn contents(path: &Path) -> io::Result<ReadCache<File>> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    open_regular(path)?.map(ReadCache::new).ok_or_else(refused)
}

/// The build id of a file, in hexadecimal; the error explains why the file cannot be used.
fn build_id_of(path: &Path) -> Result<Option<String>, String> {
    let bytes = contents(path).map_err(|why| format!("no names: {why}"))?;
    limits::check(&bytes).map_err(|why| format!("no names: {why}"))?;
    let file = object::File::parse(&bytes).map_err(|why| format!("no names: {why}"))?;
    let id = file.build_id().ok().flatten();
    Ok(id.map(hexadecimal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mangled_names_are_demangled() {
        for name in ["f", "i", "d", "St", "Pc", "main", "_start", "_init"] {
            assert_eq!(readable(name), name);
        }
        assert_eq!(readable("_Z1fi"), "f(int)");
        assert_eq!(readable("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(readable("_RNvC1a1f"), "a::f");
    }
}
