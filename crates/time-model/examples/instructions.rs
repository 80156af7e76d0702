//! Predicts the instructions of the default allocator for a trace, by path: `instructions TRACE.hkt`.

use std::error::Error;
use std::path::Path;

use hksim_policy::Policy;
use hksim_time_model::predict_instructions;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

fn main() -> Result<(), Box<dyn Error>> {
    let trace = std::env::args_os().nth(1).ok_or("usage: instructions TRACE.hkt")?;
    let mut source = TraceReader::open(Path::new(&trace))?;
    let events = source.summary().events;
    let predicted = predict_instructions(&mut source, &Policy::DEFAULT)?;
    println!("{:.0} instructions, {:.1} per event", predicted.total, predicted.total / events as f64);
    for (path, instructions) in predicted.by_path.iter().take(20) {
        println!("{:>6.2} % {}", 100.0 * instructions / predicted.total, path.name());
    }
    Ok(())
}
