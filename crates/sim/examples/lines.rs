//! Cache lines of a trace, every byte of whose blocks is written once: `lines TRACE.hkt`, or without a trace of a
//! generated workload. For caches of each size, the
//! lines that program, allocator and kernel miss in it.

use std::error::Error;

use hksim_engine::TouchRule;
use hksim_policy::Policy;
use hksim_policy::vocabulary::Huge;
use hksim_sim::lines::LINE_BYTES;
use hksim_sim::simulate::Marks;
use hksim_sim::{Counted, SimConfig, simulate};
use hksim_trace::generate::{RandomMixed, Workload};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

fn main() -> Result<(), Box<dyn Error>> {
    let mut source: Box<dyn EventSource + Send> = match std::env::args_os().nth(1) {
        Some(path) => Box::new(TraceReader::open(path.as_ref())?),
        None => Workload::RandomMixed(RandomMixed::default()).source()?,
    };
    let policy = Policy { huge: Huge::Never, ..Policy::default() };
    let config = SimConfig { policy, touch: TouchRule::All, counted: Counted::Time, ..SimConfig::default() };
    let counts =
        simulate(source.as_mut(), &config, Marks::Skip, &|_| ())?.report.lines.ok_or("no lines were counted")?;
    print!("{:>9}", "cache");
    counts.accessors.iter().for_each(|lines| print!(" {:>12?}", lines.accessor));
    print!("\n{:>9}", "none");
    counts.accessors.iter().for_each(|lines| print!(" {:>12}", lines.accesses.total()));
    for (size, cache_lines) in counts.cache_lines.iter().enumerate() {
        print!("\n{:>5} KiB", (cache_lines * LINE_BYTES) >> 10);
        counts.accessors.iter().for_each(|lines| print!(" {:>12}", lines.misses[size].by_pattern().total()));
    }
    println!("\nfootprint: {} KiB", (counts.footprint_lines * LINE_BYTES) >> 10);
    Ok(())
}
