//! Replays a trace and prints the result as JSON.
//!
//! Usage: `replay TRACE native|glibc|LIB.so [TOUCH] [DESIGN.json] [threaded]`. TOUCH is `all` (the default), `first`,
//! `none`, `read-then-all` or `recorded`. TRACE is an `.hkt` file, a file to import, or a generator: `random-mixed`, or
//! `{"name":"random-mixed","cycles":1000000,"ws":400,...}`.

use hksim_policy::Policy;
use std::path::Path;
use std::process::ExitCode;

use hksim_engine::TouchRule;
use hksim_replay::{CHILD_ARGUMENT, Mode, ReplaySpec, Target, child_main, replay};
use hksim_trace::error::TraceError;
use hksim_trace::generate::Workload;
use hksim_trace::hkt::TraceWriter;
use hksim_trace::import::import;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD_ARGUMENT) {
        return child_main();
    }
    match perform(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

/// Writes a generator's events to a file.
fn generate(workload: &Workload, path: &Path) -> Result<(), TraceError> {
    let mut source = workload.source()?;
    let mut writer = TraceWriter::create(path, source.header())?;
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            writer.push(event)?;
        }
    }
    writer.finish(source.footer()).map(|_| ())
}

fn perform(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let argument = |at: usize, default: &'static str| arguments.get(at).map_or(default, String::as_str);
    let folder = tempfile::tempdir()?;
    let trace = argument(0, "");
    let generator = Workload::with_defaults(trace).or_else(|| serde_json::from_str(trace).ok());
    let trace = match generator {
        None if trace.ends_with(".hkt") => trace.into(),
        None => {
            let path = folder.path().join("imported.hkt");
            import(Path::new(trace), &Default::default(), &path)?;
            path
        }
        Some(workload) => {
            let path = folder.path().join("generated.hkt");
            generate(&workload, &path)?;
            path
        }
    };
    let design: Policy = serde_json::from_str(argument(3, "{}"))?;
    let on = match argument(1, "native") {
        "native" => Target::Native(Box::new(design)),
        "glibc" => Target::Malloc { preload: None, variables: Vec::new() },
        library => Target::Malloc { preload: Some(library.into()), variables: Vec::new() },
    };
    let touch = serde_json::from_value::<TouchRule>(argument(2, "all").into())?;
    let mode = if argument(4, "ordered") == "threaded" { Mode::Threaded } else { Mode::Ordered };
    let spec = ReplaySpec { mode, ..ReplaySpec::ordered(trace, on, touch) };
    println!("{}", serde_json::to_string_pretty(&replay(&spec)?)?);
    Ok(())
}
