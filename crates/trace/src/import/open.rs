//! The file around the text: plain, xz, zstd or a zip archive, told apart by the first bytes.

use crate::error::TraceError;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zip::ZipArchive;

/// Most memory an xz stream may ask for: four times what `xz -9` makes.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// What the text lies in.
pub(super) enum Container {
    /// One text, decompressed while it is read.
    Stream(Box<dyn BufRead>),
    /// Several files.
    Zip(Box<ZipArchive<BufReader<File>>>),
}

/// Opens a regular file and whatever container its first bytes announce.
pub(super) fn container(path: &Path) -> Result<Container, TraceError> {
    let cannot = |action| move |why| TraceError::io(path, action, why);
    let metadata = std::fs::metadata(path).map_err(cannot("open"))?;
    if !metadata.is_file() {
        return Err(TraceError::NotAFile { path: path.to_path_buf() });
    }
    let mut file = BufReader::new(File::open(path).map_err(cannot("open"))?);
    let head = file.fill_buf().map_err(cannot("read"))?;
    if head.starts_with(b"\xFD7zXZ\0") {
        let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED)
            .map_err(|why| TraceError::io(path, "decompress", io::Error::other(why)))?;
        return Ok(Container::Stream(Box::new(BufReader::new(XzDecoder::new_stream(file, stream)))));
    }
    if head.starts_with(b"\x28\xB5\x2F\xFD") {
        let decoder = zstd::Decoder::with_buffer(file).map_err(cannot("decompress"))?;
        return Ok(Container::Stream(Box::new(BufReader::new(decoder))));
    }
    if head.starts_with(b"PK\x03\x04") {
        let archive =
            ZipArchive::new(file).map_err(|why| TraceError::io(path, "open the archive", io::Error::other(why)))?;
        return Ok(Container::Zip(Box::new(archive)));
    }
    Ok(Container::Stream(Box::new(file)))
}

/// Name and contents of an archive's member.
pub(super) type Member<'a> = (String, Box<dyn BufRead + 'a>);

/// A member; `None` for a folder.
pub(super) fn member<'a>(
    path: &Path,
    archive: &'a mut ZipArchive<BufReader<File>>,
    index: usize,
) -> Result<Option<Member<'a>>, TraceError> {
    let member =
        archive.by_index(index).map_err(|why| TraceError::io(path, "read the archive", io::Error::other(why)))?;
    if member.is_dir() {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(member.name_raw()).into_owned();
    Ok(Some((name, Box::new(BufReader::new(member)))))
}

/// Creating the output must not destroy the input.
pub(super) fn refuse_same_file(path: &Path, out: &Path) -> Result<(), TraceError> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    if identity(path).is_some() && identity(path) == identity(out) {
        return Err(TraceError::SameFile { path: path.to_path_buf() });
    }
    Ok(())
}
