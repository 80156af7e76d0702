//! Prints the events of a memory recording: `cargo run -p hksim-memory-trace --example print app.hkm`.

use std::error::Error;
use std::path::Path;

use hksim_memory_trace::{Op, Reader};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: print FILE.hkm")?;
    let mut reader = Reader::open(Path::new(&path))?;
    println!("{}", reader.header().command.join(" "));
    let mut events = Vec::new();
    while reader.next_chunk(&mut events)? {
        for event in &events {
            let name = match &event.op {
                Op::Map(map) => map.name.map_or("", |name| reader.name(name)),
                _ => "",
            };
            println!("{:>12} ns, thread {}: {:x?} {name}", event.time_ns, event.thread, event.op);
        }
    }
    Ok(())
}
