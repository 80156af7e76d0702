//! Comma-separated values: one line per event with all fields. docs/reference/export.md describes the columns.
//!
//! Two additional rows, `header` at the start and `footer` at the end, contain the trace's metadata as JSON. So the
//! file can be imported without loss.

use super::Target;
use crate::error::TraceError;
use crate::event::Op;
use crate::row::Row;
use crate::source::EventSource;
use std::fmt::{self, Display};

/// The first line.
pub(crate) const HEAD: &str =
    "event,time_ns,thread,op,object,size,align_log2,call,birth,offset,bytes,access,number,site,text";

pub(super) fn write(source: &mut dyn EventSource, to: &mut Target<'_>) -> Result<(), TraceError> {
    to.line(format_args!("{HEAD}"))?;
    to.line(format_args!(",0,0,header,,,,,,,,,,,{}", Quoted(&json(source.header()))))?;
    let names = source.footer().mark_names.clone();
    let (mut number, mut time_ns) = (0u64, 0);
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            time_ns = event.time_ns;
            let Row { op, object, size, align_log2, call, initial_touch, offset, bytes, access, number: value, site } =
                Row::of(event);
            let mark = match event.op {
                Op::Mark { name } => names.get(name as usize).map(|name| MarkName(name)),
                _ => None,
            };
            to.line(format_args!(
                "{number},{time_ns},{},{op},{},{},{},{},{},{},{},{},{},{},{}",
                event.thread.0,
                Cell(object),
                Cell(size),
                Cell(align_log2),
                Cell(call),
                Cell(initial_touch),
                Cell(offset),
                Cell(bytes),
                Cell(access),
                Cell(value),
                Cell(site),
                Cell(mark)
            ))?;
            number += 1;
        }
    }
    to.line(format_args!(",{time_ns},0,footer,,,,,,,,,,,{}", Quoted(&json(source.footer()))))
}

/// JSON on one line. Header and footer can always be serialised.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A value, or an empty cell.
struct Cell<T>(Option<T>);

impl<T: Display> Display for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}

/// The quoted name of a mark. If a spreadsheet would take it for a formula, it gets an apostrophe; the footer has the
/// name as it is.
struct MarkName<'a>(&'a str);

impl Display for MarkName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.starts_with(['=', '+', '-', '@', '\t', '\r']) {
            true => Quoted(&format!("'{}", self.0)).fmt(f),
            false => Quoted(self.0).fmt(f),
        }
    }
}

/// Quoted text on one line: line ends become spaces.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\"\"")?,
                '\n' | '\r' => f.write_str(" ")?,
                character => fmt::Write::write_char(f, character)?,
            }
        }
        f.write_str("\"")
    }
}
