//! Records the page operations of a program:
//! `cargo run -p hksim-memory-record --example record_pages [--tracepoints|--stops] app.hkm ls -l`.

use std::error::Error;
use std::ffi::OsString;

use hksim_memory_record::{HugePages, Options, SnapshotsOf, Source, Streams, record};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1).peekable();
    let source = match words.peek().and_then(|word| word.to_str()) {
        Some("--tracepoints") => Source::Tracepoints,
        Some("--stops") => Source::Stops,
        _ => Source::Auto,
    };
    if source != Source::Auto {
        words.next();
    }
    let output = words.next().ok_or("usage: record_pages [--tracepoints|--stops] FILE.hkm CMD...")?.into();
    let command: Vec<OsString> = words.collect();
    let options = Options {
        output,
        fixes_addresses: false,
        huge_pages: HugePages::Off,
        duration: None,
        directory: None,
        shown_thp_mode: None,
        variables: Vec::new(),
        streams: Streams::Inherited,
        snapshots_of: SnapshotsOf::Nothing,
        source,
        stack_depth: None,
    };
    let report = record(&options, &command)?;
    for file in &report.files {
        eprintln!("{}: {} events of {}", file.path.display(), file.events, file.program);
    }
    let visibility = report.visibility;
    eprintln!("{visibility:?}, {} events lost, {:.3} s", report.lost_events, report.elapsed_s);
    Ok(())
}
