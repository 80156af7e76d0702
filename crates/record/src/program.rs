//! Finds the program to record, and checks that the recorder can be loaded into it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::elf;
use crate::error::RecordError;

/// Maximum number of nested script interpreters, as in the kernel.
const INTERPRETERS_MAX: usize = 5;
/// Number of bytes of a file that are read to find `#!` or an ELF header.
const HEAD_BYTES: u64 = 256;
/// Maximum number of program headers read; no linker writes more.
const PROGRAM_HEADERS_MAX: u64 = 256;

const ELF_MACHINE_X86_64: u16 = 62;
const ELF_CLASS_64: u8 = 2;
const ELF_LITTLE_ENDIAN: u8 = 1;
const ELF_TYPE_INTERPRETER: u32 = 3;
const ELF_PROGRAM_HEADER_BYTES: u64 = 56;

/// The file that `command` executes, found as execvp finds it.
///
/// # Errors
/// The file does not exist or is not executable.
pub fn find(command: &OsStr) -> Result<PathBuf, RecordError> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match path.metadata() {
            Ok(data) if is_executable(&path, &data) => Ok(path),
            Ok(_) => Err(RecordError::NotExecutable { path }),
            Err(_) => Err(not_found(command)),
        };
    }
    let search = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    env::split_paths(&search)
        .map(|dir| dir.join(command))
        .find(|path| path.metadata().is_ok_and(|data| is_executable(path, &data)))
        .ok_or_else(|| not_found(command))
}

fn not_found(command: &OsStr) -> RecordError {
    RecordError::NotFound { command: command.to_string_lossy().into_owned() }
}

fn is_executable(path: &Path, data: &Metadata) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is a C string.
    data.is_file() && unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0
}

/// A program that can be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recordable {
    /// Whether its allocator implements C++'s operators without `malloc`.
    pub serves_operators: bool,
    /// Allocating functions that the program calls but that the recorder does not interpose.
    pub unseen_calls: Vec<&'static str>,
}

/// Checks that the recorder can be loaded into the program at `path`, or into the interpreter of a script, and that its
/// functions will be called.
///
/// # Errors
/// The program is static, privileged, for another architecture or C library, built with a sanitizer, or defines its own
/// `malloc`.
pub fn check(path: &Path) -> Result<Recordable, RecordError> {
    let mut path = path.to_path_buf();
    for _ in 0..INTERPRETERS_MAX {
        let Ok(file) = File::open(&path) else {
            // The kernel treats a program that is executable but not readable as privileged.
            return Err(RecordError::Privileged { path, why: "it is executable but not readable" });
        };
        let mut head = Vec::new();
        (&file).take(HEAD_BYTES).read_to_end(&mut head).map_err(RecordError::io(&path, "read"))?;
        match script_interpreter(&head) {
            Some(interpreter) if !interpreter.exists() => {
                return Err(RecordError::BadInterpreter { path, interpreter });
            }
            Some(interpreter) => path = interpreter,
            None => return check_elf(&path, &file, &head),
        }
    }
    Err(RecordError::NotExecutable { path })
}

/// Why a preloaded allocator does not serve a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The program, or the interpreter of a script.
    pub path: PathBuf,
    /// The reason: a predicate whose subject is the path.
    pub why: String,
}

/// Why an object preloaded into `command` would not serve its `malloc`; `None` if it would, or if the program does not
/// exist.
pub fn obstacle(command: &OsStr) -> Option<Obstacle> {
    let (path, why) = match check(&find(command).ok()?).err()? {
        RecordError::Static { path } => (path, "is statically linked".to_owned()),
        RecordError::Privileged { path, why } => (path, format!("has more rights than its caller ({why})")),
        RecordError::OwnMalloc { path } => (path, "defines malloc itself".to_owned()),
        RecordError::Sanitized { path, sanitizer } => (path, format!("is built with {sanitizer}")),
        RecordError::OtherArchitecture { path } => (path, "is not a 64-bit x86 program".to_owned()),
        RecordError::OtherLibc { path, loader } => {
            (path, format!("is loaded by {loader}, not by glibc's dynamic linker"))
        }
        _ => return None,
    };
    Some(Obstacle { path, why })
}

fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

fn check_elf(path: &Path, file: &File, head: &[u8]) -> Result<Recordable, RecordError> {
    let path = path.to_path_buf();
    if !head.starts_with(b"\x7fELF") {
        return Err(RecordError::NotExecutable { path });
    }
    let is_ours = head.get(4) == Some(&ELF_CLASS_64)
        && head.get(5) == Some(&ELF_LITTLE_ENDIAN)
        && u16_at(head, 18) == Some(ELF_MACHINE_X86_64);
    if !is_ours {
        return Err(RecordError::OtherArchitecture { path });
    }
    if let Some(why) = privilege(&path, file) {
        return Err(RecordError::Privileged { path, why });
    }
    match loader(file, head) {
        None => Err(RecordError::Static { path }),
        Some(loader) if !loader.contains("ld-linux") => Err(RecordError::OtherLibc { path, loader }),
        Some(loader) => check_symbols(path, Path::new(&loader)),
    }
}

fn check_symbols(path: PathBuf, loader: &Path) -> Result<Recordable, RecordError> {
    // A program may run even if its symbols cannot be read.
    let symbols = elf::symbols(&path).unwrap_or_default();
    if let Some(sanitizer) = symbols.sanitizer {
        return Err(RecordError::Sanitized { path, sanitizer });
    }
    if symbols.defines_malloc {
        return Err(RecordError::OwnMalloc { path });
    }
    let serves_operators = elf::allocator_serves_operators(&path, loader);
    Ok(Recordable { serves_operators, unseen_calls: symbols.own_names.into_iter().collect() })
}

/// The dynamic linker named by the program.
fn loader(file: &File, head: &[u8]) -> Option<String> {
    let table = u64_at(head, 32)?;
    let entries = u64::from(u16_at(head, 56)?).min(PROGRAM_HEADERS_MAX);
    (0..entries).find_map(|entry| {
        let mut header = [0; ELF_PROGRAM_HEADER_BYTES as usize];
        file.read_exact_at(&mut header, table.checked_add(entry * ELF_PROGRAM_HEADER_BYTES)?).ok()?;
        if u32_at(&header, 0)? != ELF_TYPE_INTERPRETER {
            return None;
        }
        let mut name = vec![0; usize::try_from(u64_at(&header, 32)?).ok()?.min(libc::PATH_MAX as usize)];
        file.read_exact_at(&mut name, u64_at(&header, 8)?).ok()?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(name.get(..end)?).into_owned())
    })
}

/// The reason why the kernel would run the program with more rights than its caller has; `None` if it would not.
fn privilege(path: &Path, file: &File) -> Option<&'static str> {
    let data = file.metadata().ok()?;
    // SAFETY: these calls have no arguments and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    if data.mode() & libc::S_ISUID != 0 && data.uid() != user {
        return Some("it is setuid");
    }
    if data.mode() & libc::S_ISGID != 0 && data.gid() != group {
        return Some("it is setgid");
    }
    (user != 0 && has_file_capabilities(path)).then_some("it has file capabilities")
}

fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings are C strings; with size 0 the kernel writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}
