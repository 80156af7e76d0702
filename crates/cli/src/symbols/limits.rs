//! Limits on the files of modules, so that a forged or sparse one costs neither much memory nor much time.

use object::elf::{PT_NOTE, SHT_NOBITS, SHT_NOTE};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::{CompressionFormat, Endianness, File, Object, ObjectSection, ReadRef};

/// Notes are read to find the build id. Those of a real file are a few kilobytes.
const NOTE_BYTES_MAX: u64 = 1 << 20;
/// Symbol tables, strings and other parts without debug information. Those of the largest programs have some 500 MiB.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// All compressed debug information, uncompressed.
const UNCOMPRESSED_BYTES_MAX: u64 = 8 << 30;
/// Compressed debug information is 3 to 10 times smaller than uncompressed one.
const COMPRESSION_RATIO_MAX: u64 = 64;

/// Whether a file is ELF and has parts of credible sizes. The error explains why it is not used.
pub fn check<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Result<(), &'static str> {
    let is_credible = match file {
        File::Elf32(file) => has_credible_tables(file),
        File::Elf64(file) => has_credible_tables(file),
        _ => return Err("not an ELF file"),
    };
    let credible = is_credible && has_credible_compression(file);
    if credible { Ok(()) } else { Err("parts of it are far larger than those of any program") }
}

fn has_credible_tables<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    file: &ElfFile<'data, Elf, R>,
) -> bool {
    let endian = file.endian();
    let segments = file.elf_program_headers().iter().filter(|segment| segment.p_type(endian) == PT_NOTE);
    let sections = file.elf_section_table().iter().filter(|section| section.sh_type(endian) != SHT_NOBITS);
    segments.map(|segment| segment.p_filesz(endian).into()).all(|bytes| bytes <= NOTE_BYTES_MAX)
        && sections.map(|section| (section.sh_type(endian), section.sh_size(endian).into())).all(|(kind, bytes)| {
            // Code, data and debug information are mapped, not read, and only parts of them are used.
            let limit = match kind {
                SHT_NOTE => NOTE_BYTES_MAX,
                object::elf::SHT_PROGBITS => u64::MAX,
                _ => TABLE_BYTES_MAX,
            };
            bytes <= limit
        })
}

fn has_credible_compression<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> bool {
    let compressed = file.sections().filter_map(|section| section.compressed_file_range().ok());
    let compressed = compressed.filter(|range| range.format != CompressionFormat::None);
    let mut total: u64 = 0;
    for range in compressed {
        total = total.saturating_add(range.uncompressed_size);
        if range.uncompressed_size / COMPRESSION_RATIO_MAX > range.compressed_size {
            return false;
        }
    }
    total <= UNCOMPRESSED_BYTES_MAX
}
