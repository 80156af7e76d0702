//! A file of code: its build id, its segments and its unwind tables.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Section, UnwindContext, UnwindOffset,
    UnwindSection, UnwindTableRow,
};
use hksim_memory_trace::Module;
use hksim_recording_files::open_regular;
use object::elf::{FileHeader64, PT_NOTE, SHT_NOBITS, SHT_NOTE, SHT_PROGBITS};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection, ObjectSegment, ReadCache};

/// Maximum size of a table; those of the largest programs have some 500 MiB. The recorded program may map a forged file.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// Maximum size of a section of notes, one of which is the build id.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a table.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// A file that code was loaded from.
pub struct ModuleFile {
    /// Its path and build id.
    pub module: Arc<Module>,
    segments: Vec<Segment>,
    tables: Vec<Table>,
}

/// A part of the file that is loaded.
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// The kind of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    EhFrame,
    /// Programs without `.eh_frame`, such as those of Go, have it with their debug information.
    DebugFrame,
}

struct Table {
    kind: Kind,
    address: u64,
    bytes: Vec<u8>,
    /// Functions by first address: the address after the last, and the offset of the entry.
    functions: Vec<(u64, u64, usize)>,
}

/// Whether the parts that parsing reads are not larger than those of any program: symbols and notes.
fn has_credible_tables(file: &ReadCache<File>) -> object::Result<bool> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let mut segments = header.program_headers(endian, file)?.iter();
    let mut sections = header.section_headers(endian, file)?.iter();
    Ok(segments.all(|segment| segment.p_type(endian) != PT_NOTE || segment.p_filesz(endian) <= NOTE_BYTES_MAX)
        && sections.all(|section| match section.sh_type(endian) {
            SHT_NOTE => section.sh_size(endian) <= NOTE_BYTES_MAX,
            SHT_PROGBITS | SHT_NOBITS => true,
            _ => section.sh_size(endian) <= TABLE_BYTES_MAX,
        }))
}

impl ModuleFile {
    /// Reads a file. Without a readable ELF file there are no tables.
    pub fn open(path: &Arc<str>) -> Self {
        let nothing = |build_id: &[u8]| Self {
            module: Arc::new(Module::new(Arc::clone(path), build_id)),
            segments: Vec::new(),
            tables: Vec::new(),
        };
        // The program may have replaced the file by a pipe since it was mapped.
        let Ok(Some(file)) = open_regular(Path::new(&**path)) else { return nothing(&[]) };
        let cache = ReadCache::new(file);
        if !has_credible_tables(&cache).unwrap_or(false) {
            return nothing(&[]);
        }
        let Ok(elf) = object::File::parse(&cache) else { return nothing(&[]) };
        let segments = elf.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            Segment { offset, bytes, address: segment.address() }
        });
        let tables = [(".eh_frame", Kind::EhFrame), (".debug_frame", Kind::DebugFrame)];
        let tables = tables.into_iter().filter_map(|(name, kind)| {
            let section = elf.section_by_name(name)?;
            let bytes = section.compressed_file_range().ok()?.uncompressed_size;
            (bytes <= TABLE_BYTES_MAX).then_some(())?;
            let bytes = section.uncompressed_data().ok()?.into_owned();
            Some(Table::new(kind, section.address(), bytes))
        });
        let build_id = elf.build_id().ok().flatten().unwrap_or_default();
        let build_id = &build_id[..build_id.len().min(hksim_memory_trace::BUILD_ID_BYTES_MAX)];
        Self { segments: segments.collect(), tables: tables.collect(), ..nothing(build_id) }
    }

    /// The address in the file's own numbering of the byte at an offset.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|part| (part.offset..part.offset + part.bytes).contains(&offset))?;
        Some(offset - segment.offset + segment.address)
    }

    /// Calls `use_row` with the unwind rules at an address of the file; `None` if it has none.
    pub fn with_row<T>(
        &self,
        address: u64,
        context: &mut UnwindContext<usize>,
        use_row: impl FnOnce(Row<'_>) -> T,
    ) -> Option<T> {
        let (table, offset) = self.tables.iter().find_map(|table| Some((table, table.function_at(address)?)))?;
        match table.kind {
            Kind::EhFrame => {
                let section = EhFrame::new(&table.bytes, LittleEndian);
                row_of(&section, &table.bases(), offset, address, context, use_row)
            }
            Kind::DebugFrame => {
                let section = DebugFrame::new(&table.bytes, LittleEndian);
                row_of(&section, &table.bases(), offset, address, context, use_row)
            }
        }
    }
}

/// The rules at an address.
pub struct Row<'a> {
    /// Locations of the caller's registers.
    pub rules: &'a UnwindTableRow<usize>,
    /// The table, in which expressions lie.
    pub table: &'a [u8],
    /// How numbers in expressions are stored.
    pub encoding: gimli::Encoding,
    /// The caller was interrupted by a signal, so its address is not that of a call.
    pub is_signal: bool,
}

fn row_of<'a, S, T>(
    section: &S,
    bases: &BaseAddresses,
    offset: usize,
    address: u64,
    context: &mut UnwindContext<usize>,
    use_row: impl FnOnce(Row<'_>) -> T,
) -> Option<T>
where
    S: UnwindSection<Bytes<'a>> + Section<Bytes<'a>>,
    S::Offset: UnwindOffset<usize> + From<usize>,
{
    let entry = section.fde_from_offset(bases, offset.into(), S::cie_from_offset).ok()?;
    let (encoding, is_signal) = (entry.cie().encoding(), entry.is_signal_trampoline());
    let rules = entry.unwind_info_for_address(section, bases, context, address).ok()?;
    Some(use_row(Row { rules, table: section.reader().slice(), encoding, is_signal }))
}

impl Table {
    fn new(kind: Kind, address: u64, bytes: Vec<u8>) -> Self {
        let mut table = Self { kind, address, bytes, functions: Vec::new() };
        let mut functions = match kind {
            Kind::EhFrame => functions_of(&EhFrame::new(&table.bytes, LittleEndian), &table.bases()),
            Kind::DebugFrame => functions_of(&DebugFrame::new(&table.bytes, LittleEndian), &table.bases()),
        };
        functions.sort_unstable();
        table.functions = functions;
        table
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address)
    }

    /// The offset of the entry for the function at an address.
    fn function_at(&self, address: u64) -> Option<usize> {
        let after = self.functions.partition_point(|&(start, ..)| start <= address);
        let &(_, end, offset) = self.functions.get(after.checked_sub(1)?)?;
        (address < end).then_some(offset)
    }
}

/// The functions of a table, up to the first damaged entry.
fn functions_of<'a, S>(section: &S, bases: &BaseAddresses) -> Vec<(u64, u64, usize)>
where
    S: UnwindSection<Bytes<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    let (mut functions, mut entries) = (Vec::new(), section.entries(bases));
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        if let Ok(entry) = partial.parse(S::cie_from_offset) {
            let start = entry.initial_address();
            functions.push((start, start.saturating_add(entry.len()), entry.offset()));
        }
    }
    functions
}
