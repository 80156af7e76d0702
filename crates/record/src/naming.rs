//! File names of a session's traces. The program's own trace has the output's name. All other traces go to one
//! directory next to it and are named after their programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::session::LogFile;

/// Maximum number of bytes of a program's name in a file name.
const PROGRAM_BYTES_MAX: usize = 64;

/// The directory of all traces except the first: `app.processes` next to `app.hkt`.
pub fn folder(output: &Path) -> PathBuf {
    let mut name = OsString::from(output.file_stem().unwrap_or_default());
    name.push(".processes");
    output.with_file_name(name)
}

/// `PROGRAM.PID.hkt` in that directory, or `PROGRAM.PID-IMAGE.hkt` if the process had several images. The extension is
/// the output's.
pub fn beside(output: &Path, file: &LogFile, has_others: bool, command: &[String]) -> PathBuf {
    let mut name = OsString::from(format!("{}.{}", program(command), file.pid));
    if has_others {
        name.push(format!("-{}", file.image));
    }
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    folder(output).join(name)
}

/// The program's name, reduced to characters that are safe in a file name.
fn program(command: &[String]) -> String {
    let path = command.first().map(String::as_str).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "._+-".contains(letter) { letter } else { '_' };
    let name: String = name.trim_start_matches(['-', '.']).chars().map(plain).take(PROGRAM_BYTES_MAX).collect();
    if name.is_empty() { "process".to_string() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_named_after_their_programs() {
        let named = |output: &str, word: &str, has_others| {
            let file = LogFile { path: PathBuf::new(), pid: 7, image: 1 };
            beside(Path::new(output), &file, has_others, &[word.to_string()]).display().to_string()
        };
        assert_eq!(named("/a/app.hkt", "/usr/bin/ls", false), "/a/app.processes/ls.7.hkt");
        assert_eq!(named("/a/app.hkt", "-bash", true), "/a/app.processes/bash.7-1.hkt");
        assert_eq!(named("app", "g++", false), "app.processes/g++.7");
        assert_eq!(named("/a/app.hkt", "../..", false), "/a/app.processes/process.7.hkt");
        assert_eq!(named("/a/app.hkt", "postgres: writer", false), "/a/app.processes/postgres__writer.7.hkt");
        assert_eq!(named("/a/app.hkt", "", false), "/a/app.processes/process.7.hkt");
    }
}
