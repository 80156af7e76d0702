//! Tables as Apache Parquet: the columns of CSV, typed and compressed.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use serde_json::Value;

use crate::table::{Column, Kind, Table, cell_text};

/// Writes a table. `metadata` becomes the file's key-value metadata.
///
/// # Errors
/// The table cannot be written.
pub fn write<W: Write + Send>(table: &Table, metadata: &[(&str, String)], out: W) -> Result<(), ParquetError> {
    let fields = table.columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("result").with_fields(fields).build()?;
    let metadata = metadata.iter().map(|(key, value)| KeyValue::new(key.to_string(), value.clone())).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_key_value_metadata(Some(metadata))
        .build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in &table.columns {
        match column.kind {
            // Unsigned numbers are stored as signed ones with the same bits.
            Kind::Unsigned => cells::<Int64Type, W>(&mut group, column, |cell| cell.as_u64().map(u64::cast_signed))?,
            Kind::Float => cells::<DoubleType, W>(&mut group, column, Value::as_f64)?,
            Kind::Bool => cells::<BoolType, W>(&mut group, column, Value::as_bool)?,
            Kind::Text => cells::<ByteArrayType, W>(&mut group, column, |cell| {
                (!cell.is_null()).then(|| ByteArray::from(cell_text(cell).into_bytes()))
            })?,
        }
    }
    group.close()?;
    file.close().map(drop)
}

/// A column of the schema. Every cell may be empty.
fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, converted) = match column.kind {
        Kind::Unsigned => (Physical::INT64, ConvertedType::UINT_64),
        Kind::Float => (Physical::DOUBLE, ConvertedType::NONE),
        Kind::Bool => (Physical::BOOLEAN, ConvertedType::NONE),
        Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    let builder = Type::primitive_type_builder(&column.name, physical);
    builder.with_repetition(Repetition::OPTIONAL).with_converted_type(converted).build()
}

fn cells<D: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    value: impl Fn(&Value) -> Option<D::T>,
) -> Result<(), ParquetError> {
    let too_few = || ParquetError::General("the schema has too few columns".into());
    let mut writer = group.next_column()?.ok_or_else(too_few)?;
    let cells: Vec<Option<D::T>> = column.cells.iter().map(value).collect();
    // Parquet's definition levels: 1 for a value, 0 for an empty cell.
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<D::T> = cells.into_iter().flatten().collect();
    writer.typed::<D>().write_batch(&values, Some(&levels), None)?;
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    #[test]
    fn cells_are_read_back_with_their_types() {
        let rows = [
            json!({"n": u64::MAX, "f": 0.1, "b": true, "t": "a, b", "gap": null}),
            json!({"n": 0, "f": 2, "b": false, "t": null, "gap": "x"}),
        ];
        let table = Table::of(&rows).expect("a table");
        let mut file = Vec::new();
        write(&table, &[("hksim.version", "1".into())], &mut file).expect("a file");
        let reader = SerializedFileReader::new(Bytes::from(file)).expect("a Parquet file");
        let metadata = reader.metadata().file_metadata();
        let keys = metadata.key_value_metadata().expect("metadata");
        assert!(keys.iter().any(|pair| pair.key == "hksim.version" && pair.value.as_deref() == Some("1")));
        let mut read = Vec::new();
        for row in reader.get_row_iter(None).expect("rows") {
            let row = row.expect("a row");
            read.push(row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect::<Vec<_>>());
        }
        let cell =
            |row: usize, name: &str| read[row].iter().find(|(known, _)| known == name).map(|(_, field)| field.clone());
        assert_eq!((cell(0, "n"), cell(1, "n")), (Some(Field::ULong(u64::MAX)), Some(Field::ULong(0))));
        assert_eq!((cell(0, "f"), cell(1, "f")), (Some(Field::Double(0.1)), Some(Field::Double(2.0))));
        assert_eq!((cell(0, "b"), cell(1, "t")), (Some(Field::Bool(true)), Some(Field::Null)));
        assert_eq!((cell(0, "t"), cell(0, "gap")), (Some(Field::Str("a, b".into())), Some(Field::Null)));
    }
}
