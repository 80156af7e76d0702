//! Files to read, by who named them.
//!
//! A user may name a pipe for what is read once. A name inside a file is not trusted: it must lead to a regular
//! file, so that reading ends and no device or writer of a pipe is waited for. No file is read beyond a limit.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// Maximum length of a file that is read as a whole: far above any result.
pub const BYTES_MAX: u64 = 1 << 30;

/// Reads a file or pipe that the user named.
///
/// # Errors
/// The system refuses, or the file is longer than [`BYTES_MAX`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?)
}

/// Reads a text that the user named.
///
/// # Errors
/// Those of [`read`]; the file is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

/// Reads a regular file whose name comes from a file.
///
/// # Errors
/// Those of [`open_regular`]; the file is longer than [`BYTES_MAX`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    read_from(open_regular(path)?)
}

/// Reads a text in a regular file.
///
/// # Errors
/// Those of [`read_regular`]; the file is not UTF-8.
pub fn read_regular_text(path: &Path) -> io::Result<String> {
    text(read_regular(path)?)
}

/// Opens a regular file whose name comes from a file.
///
/// # Errors
/// The system refuses, or it is another kind of file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let refused = || io::Error::new(ErrorKind::InvalidInput, "not a regular file");
    hksim_recording_files::open_regular(path)?.ok_or_else(refused)
}

/// The path of a regular file in a folder. Neither its name nor a symbolic link leads out of the folder.
///
/// # Errors
/// There is no such file.
pub fn inside(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let outside = || io::Error::new(ErrorKind::InvalidInput, "leads out of the folder");
    if !is_plain(name) {
        return Err(outside());
    }
    let path = folder.join(name);
    // Equal only if no part below the folder is a link.
    if fs::canonicalize(&path)? != fs::canonicalize(folder)?.join(name) {
        return Err(outside());
    }
    open_regular(&path).map(|_| path)
}

/// Whether a name has only plain parts: it is not absolute and has no `..`.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a file begins with these bytes. Another kind of file does not, nor one that cannot be read: whoever opens it
/// reports the error.
pub fn begins_with(path: &Path, magic: &[u8]) -> bool {
    let mut found = vec![0; magic.len()];
    open_regular(path).and_then(|mut file| file.read_exact(&mut found)).is_ok() && found == magic
}

/// The CRC-32 of a regular file whose name comes from a file.
///
/// # Errors
/// The file cannot be read.
pub fn crc32(path: &Path) -> io::Result<u32> {
    let mut file = BufReader::with_capacity(1 << 16, open_regular(path)?);
    let mut crc = crc32fast::Hasher::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(crc.finalize()),
            length => crc.update(&block[..length]),
        }
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

fn read_from(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "longer than 1 GiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_from_files_lead_to_regular_files_in_the_folder() {
        let top = tempfile::tempdir().expect("a folder");
        let folder = top.path().join("in");
        fs::create_dir_all(folder.join("sub")).expect("a folder");
        fs::write(folder.join("sub/a"), "text").expect("a file");
        fs::write(top.path().join("out"), "secret").expect("a file");
        symlink("../out", folder.join("link")).expect("a link");
        symlink("..", folder.join("up")).expect("a link");
        symlink("sub/a", folder.join("within")).expect("a link");
        symlink("/dev/zero", folder.join("zero")).expect("a link");
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a pipe");
        assert!(inside(&folder, "sub/a").is_ok());
        for name in
            ["link", "up/out", "within", "zero", "pipe", "../out", "/etc/passwd", "sub", "", "none", "sub/../sub/a"]
        {
            assert!(inside(&folder, name).is_err(), "{name}");
        }
        assert!(read_regular(&folder.join("pipe")).is_err() && read_regular(Path::new("/dev/zero")).is_err());
        assert!(read(Path::new("/dev/zero")).is_err_and(|why| why.to_string().contains("1 GiB")));
        assert!(!begins_with(&folder.join("pipe"), b"x") && begins_with(&folder.join("sub/a"), b"te"));
        assert_eq!(crc32(&folder.join("sub/a")).expect("a checksum"), crc32fast::hash(b"text"));
    }
}
