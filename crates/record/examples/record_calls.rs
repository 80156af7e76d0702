//! Records a command: `cargo run -p hksim-record --example record_calls OUTPUT.hkt COMMAND [ARGUMENT...]`.

use std::error::Error;
use std::ffi::OsString;

use hksim_record::{Options, record};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let output = arguments.next().ok_or("usage: record_calls OUTPUT.hkt COMMAND [ARGUMENT...]")?;
    let command: Vec<OsString> = arguments.collect();
    let report = record(&Options { output: output.into(), ..Options::default() }, &command)?;
    for trace in &report.traces {
        println!("{}: process {}", trace.path.display(), trace.pid);
    }
    Ok(())
}
