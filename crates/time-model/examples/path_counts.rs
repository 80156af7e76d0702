//! Prints how often the allocator runs each path, for every window of a trace:
//! `path_counts TRACE.hkt TOUCH WINDOW [POLICY]`. `TOUCH` is `none` or `all`, and `POLICY` is `FLAG=VALUE ...` as in HKSIM_NATIVE_POLICY. One row of counts for each window, after a row of names.

use std::error::Error;
use std::path::Path as File;

use hksim_engine::TouchRule;
use hksim_policy::flags::Flag;
use hksim_policy::{Path, Policy};
use hksim_time_model::count_by_window;
use hksim_trace::hkt::TraceReader;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (trace, (touch, window), words) = match arguments.as_slice() {
        [trace, touch, window] => (trace, (touch, window), ""),
        [trace, touch, window, words] => (trace, (touch, window), words.as_str()),
        _ => return Err("usage: path_counts TRACE.hkt none|all WINDOW ['FLAG=VALUE ...']".into()),
    };
    let mut policy = Policy::DEFAULT;
    for word in words.split_whitespace() {
        let (flag, value) = word.split_once('=').ok_or("write FLAG=VALUE")?;
        let flag = Flag::find(flag).ok_or_else(|| format!("{flag}: no such flag"))?;
        flag.set(&mut policy, value).map_err(|why| format!("{word}: {why}"))?;
    }
    let touch = if touch == "all" { TouchRule::All } else { TouchRule::None };
    let mut source = TraceReader::open(File::new(trace))?;
    println!("{}", Path::ALL.iter().map(|path| path.name()).collect::<Vec<_>>().join("\t"));
    for counts in count_by_window(&mut source, &policy, touch, window.parse()?)? {
        println!("{}", counts.iter().map(|(_, count)| count.to_string()).collect::<Vec<_>>().join("\t"));
    }
    Ok(())
}
