//! What `tools/path-costs` measures with.
//!
//! - `path_costs object` prints the path of the preloadable allocator that this build contains.
//! - `path_costs replay OBJECT.so TRACE.hkt TOUCH WINDOW` replays a trace on such an object, under callgrind.
//! - `path_costs count TRACE.hkt TOUCH WINDOW POLICY` prints how often a simulated allocator runs each path: a row of
//!   names, then a row of counts for each window.
//!
//! `TOUCH` is a touch rule (`none`, `all`), `WINDOW` a number of events, and `POLICY` is `FLAG=VALUE ...` as in
//! HKSIM_NATIVE_POLICY.

mod loaded;
mod replay;

use std::error::Error;
use std::path::Path as File;

use hksim_embedded::{ALLOCATOR, cached};
use hksim_engine::TouchRule;
use hksim_policy::flags::Flag;
use hksim_policy::{Path, Policy};
use hksim_time_model::count_by_window;
use hksim_trace::hkt::TraceReader;

use loaded::Loaded;
use replay::{Rules, replay};

const USAGE: &str =
    "usage: path_costs object | replay OBJECT.so TRACE.hkt TOUCH WINDOW | count TRACE.hkt TOUCH WINDOW POLICY";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["object"] => println!("{}", cached("native", ALLOCATOR)?.display()),
        ["replay", object, trace, touch, window] => {
            replay(Loaded::open(object)?, &mut TraceReader::open(File::new(trace))?, rules(touch, window)?)?;
            // Not by returning, which would end the trace's threads.
            std::process::exit(0)
        }
        ["count", trace, touch, window, policy] => {
            let Rules { touch, window } = rules(touch, window)?;
            let windows =
                count_by_window(&mut TraceReader::open(File::new(trace))?, &policy_of(policy)?, touch, window)?;
            println!("{}", Path::ALL.iter().map(|path| path.name()).collect::<Vec<_>>().join("\t"));
            for counts in windows {
                println!("{}", counts.iter().map(|(_, count)| count.to_string()).collect::<Vec<_>>().join("\t"));
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn rules(touch: &str, window: &str) -> Result<Rules, Box<dyn Error>> {
    let touch = TouchRule::from_word(touch).ok_or("TOUCH is a touch rule, such as none or all")?;
    Ok(Rules { touch, window: window.parse::<u64>()?.max(1) })
}

fn policy_of(words: &str) -> Result<Policy, Box<dyn Error>> {
    let mut policy = Policy::DEFAULT;
    for word in words.split_whitespace() {
        let (flag, value) = word.split_once('=').ok_or_else(|| format!("{word}: write FLAG=VALUE"))?;
        let flag = Flag::find(flag).ok_or_else(|| format!("{flag}: no such flag"))?;
        flag.set(&mut policy, value).map_err(|why| format!("{word}: {why}"))?;
    }
    Ok(policy)
}
