//! Random traces as files.

use std::path::{Path, PathBuf};

use hksim_testkit::events::RandomTrace;
use hksim_trace::event::{Event, Op, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, TouchSource};
use hksim_trace::hkt::TraceWriter;

/// Writes a trace to a file.
pub fn written(folder: &Path, seed: u64, trace: &RandomTrace) -> PathBuf {
    let path = folder.join(format!("{seed}.hkt"));
    let origin = Origin::Generated { name: "random".into(), parameters: Default::default(), seed };
    let header = Header::new(origin, TouchSource::Assumed, Clock::Measured);
    let mut writer = TraceWriter::create(&path, &header).expect("a file");
    // A file numbers threads in the order of their first events.
    for thread in 0..trace.threads {
        writer.push(&Event::new(0, ThreadId(thread), Op::ThreadStart)).expect("a thread");
    }
    trace.events.iter().for_each(|event| writer.push(event).expect("a valid event"));
    writer.finish(&Footer::default()).expect("a full file");
    path
}
