//! Converts traces of other programs to `.hkt`.
//!
//! Format and container are recognised by content, never by file name. Everything is streamed: memory use does not
//! depend on the length of the trace. Each format has one module here and one row in [`Format::ALL`]. The row states
//! how the format is recognised, where its times come from and how far its events may be out of order. It also names
//! the converter, which reads an `Input` and pushes calls to a `Sink`.

mod android;
mod bpftrace;
mod calls;
mod csv;
mod ctf;
mod failure;
pub mod faults;
mod heaptrack;
mod input;
mod jemalloc_pa;
mod logalloc;
mod ltrace;
mod lttng;
mod lz4;
mod memray;
mod mtrace;
mod open;
mod perf;
mod profiles;
mod protobuf;
mod reorder;
mod rep;
mod script;
mod sink;
mod threads;
mod times;
mod unseen;
mod valgrind;
mod wee;

use crate::error::TraceError;
use crate::header::{Clock, Header, Origin, Quality, TouchSource};
use crate::hkt::TraceWriter;
use crate::resolve::WaitLimits;
use crate::result_names::QualityNames;
use failure::Failure;
use input::{Head, Input};
use open::Container;
use serde::Serialize;
use sink::{Finished, Sink};
use std::path::Path;

/// A source format.
pub struct Format {
    name: &'static str,
    /// Whether a source that begins with these bytes may be in this format.
    recognise: fn(&Head) -> bool,
    /// Where the times of a source that begins with these bytes come from.
    clock: fn(&Head) -> Clock,
    /// How far its events may be out of order.
    window: WaitLimits,
    /// What the format does not record, in words.
    unknown: &'static [&'static str],
    /// Reads the whole input. The caller adds file and place to errors.
    convert: fn(&mut Input, &mut Sink) -> Result<(), Failure>,
}

impl Format {
    /// All formats, in the order in which they are tried.
    pub const ALL: &[Format] = &[
        script::FORMAT,
        android::FORMAT,
        csv::FORMAT,
        heaptrack::FORMAT,
        memray::FORMAT,
        protobuf::FORMAT,
        jemalloc_pa::FORMAT,
        rep::FORMAT,
        wee::FORMAT,
        mtrace::FORMAT,
        bpftrace::FORMAT,
        lttng::FORMAT,
        perf::FORMAT,
        logalloc::FORMAT,
        valgrind::FORMAT,
        ltrace::FORMAT,
    ];

    /// The name, as in `hksim import --from`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<&'static Format> {
        Format::ALL.iter().find(|format| format.name == name)
    }

    /// The names of all formats, for messages.
    pub fn names() -> String {
        Format::ALL.iter().map(Format::name).collect::<Vec<_>>().join(", ")
    }

    fn recognise(head: &Head) -> Option<&'static Format> {
        Format::ALL.iter().find(|format| (format.recognise)(head))
    }
}

/// The clock of formats without times.
fn no_times(_: &Head) -> Clock {
    Clock::PerEvent
}

/// Options of an import.
#[derive(Clone, Copy, Default)]
pub struct Options {
    /// The format. If `None`, it is recognised by content.
    pub format: Option<&'static Format>,
    /// The process to import if the source has several. If `None`, the first one.
    pub process: Option<u64>,
    /// What to do if the trace would differ much from what the program did.
    pub on_doubt: OnDoubt,
}

/// What to do with a source whose events do not fit together, or do not say whose they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDoubt {
    /// Report an error.
    Refuse,
    /// Import it nevertheless, with a note.
    #[default]
    Import,
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportReport {
    /// The format's name, given or recognised.
    pub format: &'static str,
    /// The member that was read, if the file is an archive.
    pub archive_member: Option<String>,
    /// Lines read, including comments and blank lines; 0 for binary formats.
    pub lines: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Events written.
    pub events: u64,
    /// Threads seen.
    pub threads: u32,
    /// Peak number of live objects.
    pub objects_peak: u32,
    /// What was left out, guessed or repaired.
    #[serde(serialize_with = "QualityNames::serialize")]
    pub quality: Quality,
    /// [`Quality::share`]: the share of all known calls that the trace contains unaltered, from 0 to 1.
    pub complete_share: f64,
    /// What the format does not record.
    pub not_recorded: &'static [&'static str],
    /// Further notes for the user.
    pub notes: Vec<String>,
}

/// Reads `path` and writes the trace `out`.
///
/// `path` is a plain file, a gz, bz2, xz, zstd or lz4 file (possibly compressed twice), a zip archive, an LTTng folder,
/// or `-` for standard input. From an archive, the first member in the selected format is read, or the first in any
/// known format.
///
/// # Errors
/// Unreadable input, an unknown format, or a place that does not fit the format. Each error names file and place, and
/// says what to do. After an error `out` is incomplete.
pub fn import(path: &Path, options: &Options, out: &Path) -> Result<ImportReport, TraceError> {
    open::refuse_same_file(path, out)?;
    let unknown = || TraceError::UnknownFormat { path: path.to_path_buf(), known: Format::names() };
    match open::container(path)? {
        Container::Stream { reader, packed } => {
            let mut input = Input::new(path, None, packed, reader);
            let head = input.head()?;
            let empty = head.bytes().is_empty();
            match options.format.filter(|_| !empty).or_else(|| Format::recognise(&head)) {
                Some(format) => convert(format, &head, input, options, out),
                None => Err(profiles::refusal(path, &head).unwrap_or_else(unknown)),
            }
        }
        Container::Zip(mut archive) => {
            for index in 0..archive.len() {
                // A member that cannot be read (encrypted, unknown compression method) is skipped.
                let Ok(Some((name, reader))) = open::member(path, &mut archive, index) else { continue };
                let mut input = Input::new(path, Some(name), true, reader);
                let Ok(head) = input.head() else { continue };
                let fits = |&format: &&Format| options.format.is_none_or(|asked| asked.name == format.name);
                if let Some(format) = Format::recognise(&head).filter(fits) {
                    return convert(format, &head, input, options, out);
                }
            }
            Err(unknown())
        }
    }
}

fn convert(
    format: &'static Format,
    head: &Head,
    mut input: Input<'_>,
    options: &Options,
    out: &Path,
) -> Result<ImportReport, TraceError> {
    let clock = (format.clock)(head);
    let file = input.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let origin = Origin::Imported { format: format.name.to_string(), file };
    let writer = TraceWriter::create(out, &Header::new(origin, TouchSource::Assumed, clock))?;
    let mut sink = Sink::new(writer, clock, format.window, options.process, input.any_event());
    (format.convert)(&mut input, &mut sink).map_err(|why| input.place_error(why))?;
    let Finished { summary, quality, mut notes, doubts } = sink.finish()?;
    if !input.any_event().is_found() {
        let notes = notes.iter().map(|note| format!(": {note}")).collect();
        return Err(TraceError::NoCall { path: input.path().to_path_buf(), format: format.name, notes });
    }
    match options.on_doubt {
        OnDoubt::Refuse if !doubts.is_empty() => {
            return Err(TraceError::Doubtful { path: input.path().to_path_buf(), why: doubts.join("; ") });
        }
        OnDoubt::Refuse | OnDoubt::Import => notes.extend(doubts),
    }
    Ok(ImportReport {
        format: format.name,
        archive_member: input.member().map(str::to_string),
        lines: input.lines_read(),
        bytes: input.bytes_read(),
        events: summary.events,
        threads: summary.threads,
        objects_peak: summary.objects_peak,
        quality,
        complete_share: quality.share(summary.events),
        not_recorded: format.unknown,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recording_matches_only_its_own_format() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Container::Stream { reader, packed } = open::container(&path).unwrap() else { continue };
            let head = Input::new(&path, None, packed, reader).head().unwrap();
            let fits: Vec<_> =
                Format::ALL.iter().filter(|format| (format.recognise)(&head)).map(Format::name).collect();
            let none = path.extension().is_some_and(|extension| extension == "c");
            assert_eq!(fits.len(), !none as usize, "{}: {fits:?}", path.display());
            seen += 1;
        }
        assert!(seen > 10);
    }
}
