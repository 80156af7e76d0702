//! Replays that cannot run: each fails with one clear error.

use std::path::Path;

use hksim_engine::TouchRule;
use hksim_replay::{ReplayError, Target, replay};

use crate::common::{Trace, design, malloc};

fn small() -> Trace {
    Trace::of([(0, malloc(0, 100))])
}

fn on_library(trace: &Trace, library: &Path) -> ReplayError {
    let on = Target::Malloc { preload: Some(library.to_path_buf()), variables: Vec::new() };
    replay(&trace.spec(on, TouchRule::All)).unwrap_err()
}

pub fn a_missing_library_is_an_error() -> Result<(), String> {
    let trace = small();
    let library = trace.folder().join("libmissing.so");
    let error = on_library(&trace, &library);
    assert!(matches!(error, ReplayError::NoLibrary { .. }), "{error}");
    assert!(error.to_string().contains("libmissing.so"), "{error}");
    Ok(())
}

pub fn a_file_that_is_not_a_library_is_an_error() -> Result<(), String> {
    let trace = small();
    let library = trace.folder().join("libtext.so");
    std::fs::write(&library, "not a shared object").unwrap();
    let error = on_library(&trace, &library);
    assert!(error.to_string().contains("was not loaded"), "{error}");
    Ok(())
}

pub fn a_killed_child_is_an_error() -> Result<(), String> {
    let trace = small();
    let (source, library) = (trace.folder().join("kill.c"), trace.folder().join("libkill.so"));
    let code = "#include <signal.h>\n__attribute__((constructor)) static void end(void) { raise(SIGKILL); }\n";
    std::fs::write(&source, code).unwrap();
    hksim_testkit::compile(&source, &library, &["-shared", "-fPIC"]).ok_or("no C compiler")?;
    let error = on_library(&trace, &library);
    assert!(matches!(error, ReplayError::Signal { signal: libc::SIGKILL, .. }), "{error}");
    Ok(())
}

pub fn a_damaged_trace_is_an_error() -> Result<(), String> {
    let trace = small();
    std::fs::write(trace.path(), "nothing of the kind").unwrap();
    let error = replay(&trace.spec(Target::Native(Box::new(design("{}"))), TouchRule::All)).unwrap_err();
    assert!(matches!(&error, ReplayError::Failed { message } if message.contains("test.hkt")), "{error}");
    Ok(())
}
