//! Names of the files of one recording, and how files are opened whose names are not trusted. Both recorders, of allocator
//! calls (`.hkt`) and of page operations (`.hkm`), name their files alike: the program's own file has the output's name,
//! and all others are in one folder next to it.
//!
//! ```
//! use std::path::Path;
//!
//! let output = Path::new("app.hkt");
//! let child = hksim_recording_files::beside(output, &["/bin/sh".to_string()], 4711, None);
//! assert_eq!(child, Path::new("app.hkt.processes/sh.4711.hkt"));
//! assert_eq!(hksim_recording_files::folder(output), Path::new("app.hkt.processes"));
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Ending of the name of a folder with other processes' files.
const FOLDER_ENDING: &str = ".processes";
/// Maximum number of bytes of a program's name in a file name.
const PROGRAM_BYTES_MAX: usize = 64;

/// The folder of all files of a recording except the first: `app.hkt.processes` next to `app.hkt`. Its name contains the
/// extension, so that `app.hkt` and `app.hkm` have different folders.
pub fn folder(output: &Path) -> PathBuf {
    with_ending(output, output.file_name())
}

/// Creates the folder of [`folder`] if there is none, and returns its path.
///
/// # Errors
/// The system refuses; or something is there that `user` has not made. Another user may place a link or a folder there
/// while the program runs, if all users can write next to the output.
pub fn create_folder(output: &Path, user: u32) -> io::Result<PathBuf> {
    let folder = folder(output);
    match fs::create_dir(&folder) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&folder)?;
            if found.is_dir() && found.uid() == user {
                return Ok(folder);
            }
            let why = "a link, or a file or folder of another user, has this name; remove it";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
        }
        created => created.map(|()| folder),
    }
}

/// The folders in which the other files of a recording may be: the one of [`folder`], and that of versions before 0.2,
/// `app.processes`.
pub fn folders(output: &Path) -> [PathBuf; 2] {
    [folder(output), with_ending(output, output.file_stem())]
}

/// Whether a directory is a folder of other processes' files.
pub fn is_folder(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(FOLDER_ENDING.as_bytes()))
}

/// File of another process than the started one in that folder: `PROGRAM.PID.hkt`, or `PROGRAM.PID-IMAGE.hkt` if the
/// process had several images. The extension is the output's.
pub fn beside(output: &Path, command: &[String], pid: u32, image: Option<u32>) -> PathBuf {
    let mut name = OsString::from(format!("{}.{pid}", program(command)));
    if let Some(image) = image {
        name.push(format!("-{image}"));
    }
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    folder(output).join(name)
}

/// Opens a regular file to read it; `None` if the path leads to something else. A pipe is not waited for, and a device
/// not opened. What counts is the file that was opened, even if another one gets its name meanwhile.
///
/// # Errors
/// The system refuses.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    // Opening a device can have effects, so what it is now is checked first.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

fn with_ending(output: &Path, name: Option<&OsStr>) -> PathBuf {
    let mut name = name.unwrap_or_default().to_os_string();
    name.push(FOLDER_ENDING);
    output.with_file_name(name)
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
    fn files_are_named_after_their_programs() {
        let named = |output: &str, word: &str, image| {
            beside(Path::new(output), &[word.to_string()], 7, image).display().to_string()
        };
        assert_eq!(named("/a/app.hkt", "/usr/bin/ls", None), "/a/app.hkt.processes/ls.7.hkt");
        assert_eq!(named("/a/app.hkt", "-bash", Some(1)), "/a/app.hkt.processes/bash.7-1.hkt");
        assert_eq!(named("app", "g++", None), "app.processes/g++.7");
        assert_eq!(named("/a/app.hkt", "../..", None), "/a/app.hkt.processes/process.7.hkt");
        assert_eq!(named("/a/app.hkm", "postgres: writer", None), "/a/app.hkm.processes/postgres__writer.7.hkm");
        assert_eq!(named("/a/app.hkt", "", None), "/a/app.hkt.processes/process.7.hkt");
    }

    #[test]
    fn other_files_get_a_folder_of_their_own_user_only() {
        let top = std::env::temp_dir().join(format!("hksim-recording-files-{}", std::process::id()));
        fs::create_dir(&top).expect("a folder");
        let own = fs::symlink_metadata(&top).expect("the folder").uid();
        let output = top.join("app.hkt");
        let made = create_folder(&output, own).expect("a new folder");
        assert_eq!(create_folder(&output, own).expect("the same folder"), made);
        assert!(create_folder(&output, own + 1).is_err(), "a folder of another user");
        fs::remove_dir(&made).expect("an empty folder");
        std::os::unix::fs::symlink(&top, &made).expect("a link");
        assert!(create_folder(&output, own).is_err(), "a link to a folder");
        fs::remove_dir_all(&top).expect("removed");
    }

    #[test]
    fn recordings_of_both_kinds_have_different_folders() {
        assert_ne!(folder(Path::new("app.hkt")), folder(Path::new("app.hkm")));
        let [new, old] = folders(Path::new("/a/app.hkt"));
        assert_eq!((new, old), ("/a/app.hkt.processes".into(), "/a/app.processes".into()));
        assert!(is_folder(Path::new("/a/app.hkt.processes")) && !is_folder(Path::new("/a/app.hkt")));
    }
}
