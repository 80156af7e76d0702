//! Opens the container of a trace: a plain, gz, bz2, xz, zstd or lz4 file, or a zip archive, recognised by the first
//! bytes.

use super::ctf;
use super::lz4::{self, Lz4};
use crate::error::TraceError;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use hksim_recording_files::open_regular;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zip::ZipArchive;

/// Maximum memory for decoding xz: four times the need of files from `xz -9`.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of members of a zip archive: far above any archive that contains a trace.
const ZIP_MEMBERS_MAX: usize = 1 << 20;

/// The container of a trace.
pub(super) enum Container {
    /// One stream, decompressed while it is read.
    Stream {
        /// Its bytes.
        reader: Box<dyn BufRead>,
        /// Whether the bytes come from a decompressor.
        packed: bool,
    },
    /// Several files.
    Zip(Box<ZipArchive<BufReader<File>>>),
}

/// Opens a regular file, standard input (`-`) or an LTTng folder, and recognises its container by the first bytes.
pub(super) fn container(path: &Path) -> Result<Container, TraceError> {
    if path.as_os_str() == "-" {
        return standard_input(path);
    }
    let cannot = |action| move |why| TraceError::io(path, action, why);
    let metadata = std::fs::metadata(path).map_err(cannot("open"))?;
    if metadata.is_dir() && ctf::is_trace(path) {
        return Ok(Container::Stream { reader: ctf::open(path)?, packed: false });
    }
    let file = open_regular(path).map_err(cannot("open"))?;
    let file = file.ok_or_else(|| TraceError::NotAFile { path: path.to_path_buf() })?;
    let mut file = BufReader::with_capacity(1 << 16, file);
    if file.fill_buf().map_err(cannot("read"))?.starts_with(b"PK\x03\x04") {
        let archive =
            ZipArchive::new(file).map_err(|why| TraceError::io(path, "open the archive", io::Error::other(why)))?;
        if archive.len() > ZIP_MEMBERS_MAX {
            return Err(TraceError::io(path, "open the archive", io::Error::other("more than a million members")));
        }
        return Ok(Container::Zip(Box::new(archive)));
    }
    stream(path, Box::new(file))
}

/// Opens standard input. An archive cannot be read from it, as the table of an archive is at its end.
fn standard_input(path: &Path) -> Result<Container, TraceError> {
    let mut input = io::stdin().lock();
    if input.fill_buf().map_err(|why| TraceError::io(path, "read", why))?.starts_with(b"PK\x03\x04") {
        let why = io::Error::other("an archive is read from a file, not from standard input");
        return Err(TraceError::io(path, "open the archive", why));
    }
    stream(path, Box::new(input))
}

fn stream(path: &Path, reader: Box<dyn BufRead>) -> Result<Container, TraceError> {
    let cannot = |why| TraceError::io(path, "decompress", why);
    let outer = unpack(reader).map_err(cannot)?;
    let (reader, packed) = match outer {
        Unpacked::Plain(reader) => (reader, false),
        Unpacked::Stream(reader) => (unpack(reader).map_err(cannot)?.reader(), true),
    };
    Ok(Container::Stream { reader, packed })
}

/// Name and contents of an archive's member.
pub(super) type Member<'a> = (String, Box<dyn BufRead + 'a>);

/// A member of an archive; `None` for a folder. If the member is itself a compressed file, it is also decompressed.
pub(super) fn member<'a>(
    path: &Path,
    archive: &'a mut ZipArchive<BufReader<File>>,
    index: usize,
) -> Result<Option<Member<'a>>, TraceError> {
    let cannot = |why| TraceError::io(path, "read the archive", why);
    let member = archive.by_index(index).map_err(|why| cannot(io::Error::other(why)))?;
    if member.is_dir() {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(member.name_raw()).into_owned();
    let reader = unpack(Box::new(BufReader::with_capacity(1 << 16, member))).map_err(cannot)?.reader();
    Ok(Some((name, reader)))
}

/// A reader of the file, or of a decompressor's output.
enum Unpacked<'a> {
    Plain(Box<dyn BufRead + 'a>),
    Stream(Box<dyn BufRead + 'a>),
}

impl<'a> Unpacked<'a> {
    fn reader(self) -> Box<dyn BufRead + 'a> {
        match self {
            Unpacked::Plain(reader) | Unpacked::Stream(reader) => reader,
        }
    }
}

/// Adds the decompressor that the first bytes indicate.
fn unpack<'a>(mut reader: Box<dyn BufRead + 'a>) -> io::Result<Unpacked<'a>> {
    let mut magic = Vec::new();
    (&mut reader).take(6).read_to_end(&mut magic)?;
    // zstd and lz4 share the format of skippable frames. The first other frame shows which of the two the file is.
    let mut has_skipped = false;
    while magic.first_chunk().is_some_and(|first| lz4::is_skipped(*first)) {
        has_skipped = true;
        lz4::skip(Cursor::new(&magic[4..]).chain(&mut reader))?;
        magic.clear();
        (&mut reader).take(6).read_to_end(&mut magic)?;
    }
    let reader = Cursor::new(magic.clone()).chain(reader);
    let is = |bytes: &[u8]| magic.starts_with(bytes);
    let unpacked: Box<dyn Read + 'a> = if is(b"\x1F\x8B") {
        Box::new(MultiGzDecoder::new(reader))
    } else if is(b"BZh") {
        Box::new(MultiBzDecoder::new(reader))
    } else if is(b"\xFD7zXZ\0") {
        let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED).map_err(io::Error::other)?;
        Box::new(XzDecoder::new_stream(reader, stream))
    } else if is(b"\x28\xB5\x2F\xFD") {
        Box::new(zstd::Decoder::with_buffer(reader)?)
    } else if is(&lz4::MAGIC) {
        Box::new(Lz4::new(reader))
    } else if has_skipped {
        let why = "no zstd or lz4 frame follows the skippable frames";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    } else {
        return Ok(Unpacked::Plain(Box::new(reader)));
    };
    Ok(Unpacked::Stream(Box::new(BufReader::with_capacity(1 << 16, unpacked))))
}

/// Returns an error if both paths are the same file: creating the output would destroy the input.
pub(super) fn refuse_same_file(path: &Path, out: &Path) -> Result<(), TraceError> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    if identity(path).is_some() && identity(path) == identity(out) {
        return Err(TraceError::SameFile { path: path.to_path_buf() });
    }
    Ok(())
}
