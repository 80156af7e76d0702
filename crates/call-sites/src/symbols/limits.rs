//! Limits on the files of modules, so that a forged or sparse one costs neither much memory nor much time. They are checked
//! before the file is parsed, because parsing reads whole tables.

use std::fs::File;

use object::elf::{FileHeader32, FileHeader64, PT_NOTE, SHT_NOBITS, SHT_NOTE, SHT_PROGBITS};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// Notes are read to find the build id. Those of a real file are a few kilobytes.
const NOTE_BYTES_MAX: u64 = 1 << 20;
/// Symbol tables, strings and other parts without debug information. Those of the largest programs have some 500 MiB.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// All compressed debug information, uncompressed.
const UNCOMPRESSED_BYTES_MAX: u64 = 8 << 30;
/// Compressed debug information is 3 to 10 times smaller than uncompressed one.
const COMPRESSION_RATIO_MAX: u64 = 64;

/// Whether a file is ELF and has parts of credible sizes.
///
/// # Errors
/// The reason why the file is not used.
pub fn check(file: &ReadCache<File>) -> Result<(), String> {
    let is_credible = match FileKind::parse(file) {
        Ok(FileKind::Elf32) => is_credible::<FileHeader32<Endianness>, _>(file),
        Ok(FileKind::Elf64) => is_credible::<FileHeader64<Endianness>, _>(file),
        Ok(_) => return Err("not an ELF file".to_string()),
        Err(why) => Err(why),
    };
    match is_credible {
        Ok(true) => Ok(()),
        Ok(false) => Err("parts of it are far larger than those of any program".to_string()),
        Err(why) => Err(why.to_string()),
    }
}

fn is_credible<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(file: R) -> object::Result<bool> {
    let header = Elf::parse(file)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, file)? {
        if segment.p_type(endian) == PT_NOTE && segment.p_filesz(endian).into() > NOTE_BYTES_MAX {
            return Ok(false);
        }
    }
    let mut uncompressed: u64 = 0;
    for section in header.section_headers(endian, file)? {
        let bytes = section.sh_size(endian).into();
        let limit = match section.sh_type(endian) {
            SHT_NOTE => NOTE_BYTES_MAX,
            // Code, data and debug information are mapped, not read, and only parts of them are used.
            SHT_PROGBITS | SHT_NOBITS => u64::MAX,
            _ => TABLE_BYTES_MAX,
        };
        let mut plain_bytes = 0;
        if let Some((compression, ..)) = section.compression(endian, file)? {
            plain_bytes = compression.ch_size(endian).into();
        }
        uncompressed = uncompressed.saturating_add(plain_bytes);
        if bytes > limit || plain_bytes / COMPRESSION_RATIO_MAX > bytes || uncompressed > UNCOMPRESSED_BYTES_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}
