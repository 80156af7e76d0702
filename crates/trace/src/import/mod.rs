//! Traces of other programs, turned into `.hkt`.
//!
//! Format and container are recognised by content, never by name. Everything is streamed: memory does not depend on
//! the length of the trace.

mod android;
mod lines;
mod open;
mod reorder;
mod script;

use crate::error::TraceError;
use crate::header::{Clock, Footer, Header, Origin, Quality, Summary, Touch};
use crate::hkt::TraceWriter;
use lines::Lines;
use open::Container;
use serde::Serialize;
use std::path::Path;

/// A source format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `a ID SIZE`, `r ID SIZE`, `f ID` lines of allocator course work.
    Script,
    /// Android's `record_allocs` text.
    Android,
}

impl Kind {
    /// All formats.
    pub const ALL: [Kind; 2] = [Kind::Script, Kind::Android];

    /// The name, as `hksim import --from` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Script => "script",
            Kind::Android => "android",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The format whose first line this can be.
    fn recognise(line: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| match kind {
            Kind::Script => script::parse(line).is_ok(),
            Kind::Android => android::parse(line).is_ok(),
        })
    }
}

/// What an import did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportReport {
    /// The format, given or recognised.
    pub kind: Kind,
    /// The member read, where the file is an archive.
    pub member: Option<String>,
    /// Lines read, comments and blank ones included.
    pub lines: u64,
    /// Events written.
    pub events: u64,
    /// Threads seen.
    pub threads: u32,
    /// Most objects live at once.
    pub objects_peak: u32,
    /// What was left out, guessed or repaired.
    pub quality: Quality,
}

/// Reads `path` (plain, xz, zstd or a zip archive) and writes the trace `out`.
///
/// Without a `kind` the format is recognised. Of an archive, the first member of a format (of `kind`, if given) is read.
///
/// # Errors
/// Unreadable input, a format that is not known, a line that does not belong to it: each names file, line and mend. `out` is
/// then incomplete.
pub fn import(path: &Path, kind: Option<Kind>, out: &Path) -> Result<ImportReport, TraceError> {
    open::refuse_same_file(path, out)?;
    match open::container(path)? {
        Container::Stream(reader) => {
            let mut lines = Lines::new(path, None, reader);
            match lines.kind(kind)? {
                Some(kind) => convert(kind, lines, out),
                None => Err(TraceError::UnknownFormat { path: path.to_path_buf(), known: "script, android" }),
            }
        }
        Container::Zip(mut archive) => {
            for index in 0..archive.len() {
                let Some((name, reader)) = open::member(path, &mut archive, index)? else { continue };
                let mut lines = Lines::new(path, Some(name), reader);
                if let Ok(Some(kind)) = lines.kind(kind) {
                    return convert(kind, lines, out);
                }
            }
            Err(TraceError::UnknownFormat { path: path.to_path_buf(), known: "script, android" })
        }
    }
}

fn convert(kind: Kind, mut lines: Lines<'_>, out: &Path) -> Result<ImportReport, TraceError> {
    let clock = match kind {
        Kind::Script => Clock::PerEvent,
        Kind::Android => android::clock(&mut lines)?,
    };
    let file = lines.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let origin = Origin::Imported { format: kind.name().to_string(), file };
    let mut writer = TraceWriter::create(out, &Header::new(origin, Touch::Assumed, clock))?;
    let quality = match kind {
        Kind::Script => script::convert(&mut lines, &mut writer)?,
        Kind::Android => android::convert(&mut lines, clock, &mut writer)?,
    };
    let Summary { events, threads, objects_peak, .. } = writer.finish(&Footer { quality, ..Footer::default() })?;
    let (lines_read, member) = lines.end();
    Ok(ImportReport { kind, member, lines: lines_read, events, threads, objects_peak, quality })
}
