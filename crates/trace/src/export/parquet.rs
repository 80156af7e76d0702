//! Apache Parquet: the columns of the CSV format, typed and compressed.
//!
//! The trace's metadata is stored as JSON under `hksim.header` and `hksim.footer` in the file's metadata.

use super::Target;
use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::row::Row;
use crate::source::EventSource;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows per row group.
const GROUP_ROWS: usize = 1 << 17;

/// The columns, in the order of [`Columns::write`].
pub(crate) const SCHEMA: &str = "message event {
    required int64 time_ns (INTEGER(64, false));
    required int32 thread (INTEGER(32, false));
    required binary op (STRING);
    optional int64 object (INTEGER(64, false));
    optional int64 size (INTEGER(64, false));
    optional int32 align_log2 (INTEGER(8, false));
    optional binary call (STRING);
    optional binary birth (STRING);
    optional int64 offset (INTEGER(64, false));
    optional int64 bytes (INTEGER(64, false));
    optional binary access (STRING);
    optional int64 number (INTEGER(64, false));
    optional int64 site (INTEGER(64, false));
    optional binary text (STRING);
}";

pub(super) fn write(source: &mut dyn EventSource, to: &mut Target<'_>) -> Result<(), TraceError> {
    let cannot = |why: ParquetError| TraceError::io(to.name, "write", io::Error::other(why));
    let mut file = open(source, &mut to.out).map_err(cannot)?;
    let names: Vec<ByteArray> = source.footer().mark_names.iter().map(|name| ByteArray::from(name.as_str())).collect();
    let mut columns = Columns::default();
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            columns.push(event, &names);
            to.rows += 1;
            if columns.rows() == GROUP_ROWS {
                columns.write(&mut file).map_err(cannot)?;
            }
        }
    }
    if columns.rows() > 0 {
        columns.write(&mut file).map_err(cannot)?;
    }
    file.close().map(drop).map_err(cannot)
}

/// Opens a file with schema and metadata but without rows.
fn open<W: Write + Send>(source: &dyn EventSource, out: W) -> Result<SerializedFileWriter<W>, ParquetError> {
    let said = |key: &str, json: Result<String, serde_json::Error>| {
        json.map(|json| KeyValue::new(key.to_string(), json)).map_err(|why| ParquetError::External(Box::new(why)))
    };
    let metadata = vec![
        said("hksim.header", serde_json::to_string(source.header()))?,
        said("hksim.footer", serde_json::to_string(source.footer()))?,
    ];
    // Times grow in small steps and rarely repeat: deltas are short, and a dictionary would not help.
    let time = ColumnPath::from("time_ns");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_column_dictionary_enabled(time.clone(), false)
        .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
        .set_key_value_metadata(Some(metadata))
        .build();
    SerializedFileWriter::new(out, Arc::new(parse_message_type(SCHEMA)?), Arc::new(properties))
}

/// Rows not yet written, by column.
#[derive(Default)]
struct Columns {
    time_ns: Vec<i64>,
    thread: Vec<i32>,
    op: Vec<ByteArray>,
    object: Optional<i64>,
    size: Optional<i64>,
    align_log2: Optional<i32>,
    call: Optional<ByteArray>,
    initial_touch: Optional<ByteArray>,
    offset: Optional<i64>,
    bytes: Optional<i64>,
    access: Optional<ByteArray>,
    number: Optional<i64>,
    site: Optional<i64>,
    text: Optional<ByteArray>,
}

impl Columns {
    fn rows(&self) -> usize {
        self.time_ns.len()
    }

    fn push(&mut self, event: &Event, names: &[ByteArray]) {
        let row = Row::of(event);
        let word = |word: &'static str| ByteArray::from(Bytes::from_static(word.as_bytes()));
        // Unsigned numbers are stored as signed ones with the same bits.
        self.time_ns.push(event.time_ns.cast_signed());
        self.thread.push(event.thread.0.cast_signed());
        self.op.push(word(row.op));
        self.object.push(row.object.map(u64::cast_signed));
        self.size.push(row.size.map(u64::cast_signed));
        self.align_log2.push(row.align_log2.map(|log2| log2 as i32));
        self.call.push(row.call.map(word));
        self.initial_touch.push(row.initial_touch.map(word));
        self.offset.push(row.offset.map(u64::cast_signed));
        self.bytes.push(row.bytes.map(u64::cast_signed));
        self.access.push(row.access.map(word));
        self.number.push(row.number.map(u64::cast_signed));
        self.site.push(row.site.map(u64::cast_signed));
        self.text.push(match event.op {
            Op::Mark { name } => names.get(name as usize).cloned(),
            _ => None,
        });
    }

    /// Writes all rows as one group and clears them.
    fn write<W: Write + Send>(&mut self, file: &mut SerializedFileWriter<W>) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        required::<Int64Type, W>(&mut group, &mut self.time_ns)?;
        required::<Int32Type, W>(&mut group, &mut self.thread)?;
        required::<ByteArrayType, W>(&mut group, &mut self.op)?;
        self.object.write::<Int64Type, W>(&mut group)?;
        self.size.write::<Int64Type, W>(&mut group)?;
        self.align_log2.write::<Int32Type, W>(&mut group)?;
        self.call.write::<ByteArrayType, W>(&mut group)?;
        self.initial_touch.write::<ByteArrayType, W>(&mut group)?;
        self.offset.write::<Int64Type, W>(&mut group)?;
        self.bytes.write::<Int64Type, W>(&mut group)?;
        self.access.write::<ByteArrayType, W>(&mut group)?;
        self.number.write::<Int64Type, W>(&mut group)?;
        self.site.write::<Int64Type, W>(&mut group)?;
        self.text.write::<ByteArrayType, W>(&mut group)?;
        group.close().map(drop)
    }
}

/// A column with optional values: the values, and for each row whether it has a value (Parquet's definition level).
struct Optional<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Default for Optional<T> {
    fn default() -> Self {
        Optional { values: Vec::new(), levels: Vec::new() }
    }
}

impl<T> Optional<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(value.is_some() as i16);
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>, W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Err(too_few_columns()) };
        column.typed::<D>().write_batch(&self.values, Some(&self.levels), None)?;
        self.values.clear();
        self.levels.clear();
        column.close()
    }
}

fn required<D: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<D::T>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Err(too_few_columns()) };
    column.typed::<D>().write_batch(values, None, None)?;
    values.clear();
    column.close()
}

fn too_few_columns() -> ParquetError {
    ParquetError::General("the schema has too few columns".to_string())
}
