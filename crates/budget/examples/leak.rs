//! Names the functions that free less than in an older trace: `cargo run --example leak -- before.hkt after.hkt`.

use std::env;
use std::error::Error;
use std::path::Path;

use hksim_budget::consumers::of_trace;
use hksim_budget::growth::growth;
use hksim_budget::metric::Metric;
use hksim_trace::hkt::TraceReader;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = env::args().skip(1).collect();
    let [before, now] = paths.as_slice() else { return Err("name two traces (.hkt)".into()) };
    let consumers = |path: &String| of_trace(&mut TraceReader::open(Path::new(path))?);
    for growth in growth(&[Metric::LiveBytesEnd], &consumers(before)?, &consumers(now)?) {
        println!("{}", growth.words());
    }
    Ok(())
}
