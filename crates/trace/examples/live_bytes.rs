//! Prints the peak of live bytes in a trace: `cargo run --example live_bytes -- app.hkt`.

use std::error::Error;
use std::path::PathBuf;

use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

fn main() -> Result<(), Box<dyn Error>> {
    let path: PathBuf = std::env::args_os().nth(1).ok_or("usage: live_bytes FILE.hkt")?.into();
    let mut trace = TraceReader::open(&path)?;
    // Ids are dense, so a vector holds the sizes of live objects.
    let mut sizes = vec![0; trace.summary().objects_peak as usize];
    let (mut live_bytes, mut live_bytes_peak, mut events) = (0, 0, 0);
    while let Some(batch) = trace.next_batch()? {
        for event in batch {
            let (object, size) = match event.op {
                Op::Alloc { object, size, .. } | Op::Realloc { object, size, .. } => (object, size),
                Op::ReallocUnknown { object, size, .. } => (object, size),
                Op::Free { object, .. } | Op::ReallocFree { object, .. } => (object, 0),
                _ => continue,
            };
            let before = std::mem::replace(&mut sizes[object.0 as usize], size);
            live_bytes = live_bytes + size - before;
            live_bytes_peak = live_bytes_peak.max(live_bytes);
        }
        events += batch.len();
    }
    println!("{events} events, at most {live_bytes_peak} bytes live");
    Ok(())
}
