//! Which library serves the program's `malloc`: asked of the dynamic linker, which lists what it loads and runs nothing.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hksim_record::Obstacle;
use object::{Object, ObjectSymbol};

/// A variable of the environment; `None` removes it.
pub(crate) type Variable = (OsString, Option<OsString>);

/// A dynamic linker prints the libraries of a program instead of running it if this variable is set (ld.so(8)).
const LIST_VARIABLE: &str = "LD_TRACE_LOADED_OBJECTS";

/// The library that serves a program's `malloc` in an environment: the first in the order of symbol lookup that defines
/// it. `None` if the linker does not say.
///
/// # Errors
/// No library can serve it; nothing is asked then, as a static program would run.
pub(crate) fn serving(words: &[OsString], environment: &[Variable]) -> Result<Option<PathBuf>, String> {
    let Some((program, arguments)) = words.split_first() else { return Ok(None) };
    if let Some(Obstacle { path, why }) = hksim_record::obstacle(program) {
        return Err(format!("{} {why}, so no library can serve it", path.display()));
    }
    let mut command = Command::new(program);
    command.args(arguments).env(LIST_VARIABLE, "1").stdin(Stdio::null()).stderr(Stdio::null());
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().map_err(|why| format!("cannot list the libraries of the program: {why}"))?;
    Ok(libraries(&output.stdout).into_iter().find(|library| defines_malloc(library)))
}

/// The files in a list such as `libc.so.6 => /lib/libc.so.6 (0x7f00)`, in the order of symbol lookup.
fn libraries(list: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(list);
    let file = |line: &str| {
        let line = line.trim();
        let file = line.split_once(" => ").map_or(line, |(_, file)| file);
        let file = file.rsplit_once(" (").map_or(file, |(file, _)| file);
        file.contains('/').then(|| PathBuf::from(file))
    };
    text.lines().filter_map(file).collect()
}

fn defines_malloc(library: &Path) -> bool {
    let Ok(bytes) = fs::read(library) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    file.dynamic_symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("malloc"))
}

/// Whether a file is glibc's library, by its name.
pub(crate) fn is_c_library(library: &Path) -> bool {
    library.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("libc.so"))
}

/// Whether two paths name one file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).ok() == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_libraries_are_read_in_their_order() {
        let list = "\tlinux-vdso.so.1 (0x7ffc)\n\t/a b/mine.so (0x7f01)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f02)\n\
                    \tlibgone.so => not found\n\t./own.so (0x7f04)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f03)\n";
        let expected = ["/a b/mine.so", "/lib/libc.so.6", "./own.so", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(list.as_bytes()), expected.map(PathBuf::from));
    }

    #[test]
    fn a_program_that_names_no_allocator_has_that_of_the_c_library() {
        let found = serving(&["/bin/true".into()], &[("LD_PRELOAD".into(), None)]);
        assert!(is_c_library(&found.expect("dynamic").expect("a library")));
    }
}
