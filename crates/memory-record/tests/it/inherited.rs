//! What an address space had at its beginning: fork, vfork and exec pass it on.

use std::collections::BTreeMap;

use hksim_memory_record::{HugePages, Source, inherited_here};
use hksim_memory_trace::{Beginning, Inherited, Reader, ThpDisabled};

use crate::support::{options, recorded, with_program};

/// What executed programs inherited, by name and number.
fn recorded_images(source: Source, arguments: &[&str]) -> Option<BTreeMap<(String, u32), Inherited>> {
    let (directory, program) = with_program("inherits.c")?;
    let options = options(&directory.path().join("a.hkm"), source);
    let report = recorded(&options, &program, arguments)?;
    assert_eq!(report.exit_code, Some(0), "{arguments:?}");
    let executed = report.files.iter().filter(|file| file.beginning == Beginning::Exec);
    let images = executed.map(|file| {
        let header = Reader::open(&file.path).expect("a recording").header().clone();
        let name = file.program.rsplit('/').next().unwrap_or_default().to_string();
        ((name, header.image), header.inherited)
    });
    Some(images.collect())
}

#[test]
fn each_way_to_execute_a_program_passes_the_setting_on() {
    for source in [Source::Stops, Source::Tracepoints] {
        for (way, image) in [("exec", 1), ("fork", 1), ("vfork", 0)] {
            let Some(images) = recorded_images(source, &["1", "0", way, "/bin/true"]) else { return };
            let first = &images[&("inherits".to_string(), 0)];
            assert_eq!(
                (first.thp_disable, first.thp_chosen),
                (inherited_here().thp_disable, false),
                "{source:?} {way}"
            );
            assert_eq!(first.limits, inherited_here().limits);
            let executed = &images[&("true".to_string(), image)];
            assert_eq!((executed.thp_disable, executed.thp_chosen), (ThpDisabled::All, true), "{source:?} {way}");
            assert_eq!(executed.limits, None, "a program could have changed them");
        }
    }
}

#[test]
fn a_setting_taken_back_is_not_passed_on() {
    let path = |program: &std::path::Path| program.to_str().expect("a path").to_string();
    let Some((_directory, program)) = with_program("inherits.c") else { return };
    let Some(images) =
        recorded_images(Source::Stops, &["1", "0", "exec", &path(&program), "0", "0", "exec", "/bin/true"])
    else {
        return;
    };
    assert_eq!(images[&("inherits".to_string(), 1)].thp_disable, ThpDisabled::All);
    let last = &images[&("true".to_string(), 2)];
    assert_eq!((last.thp_disable, last.thp_chosen), (ThpDisabled::Off, true));
}

/// A measured run begins with the setting that it is given.
#[test]
fn a_run_is_given_its_setting() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let mut options = options(&directory.path().join("a.hkm"), Source::Stops);
    options.huge_pages = HugePages::With(ThpDisabled::All);
    let Some(report) =
        recorded(&options, std::path::Path::new("/bin/sh"), &["-c", "grep THP_enabled /proc/self/status"])
    else {
        return;
    };
    let printed = std::fs::read_to_string(options.output.with_extension("output")).expect("its output");
    assert_eq!(printed, "THP_enabled:\t0\n");
    let header = Reader::open(&report.files[0].path).expect("a recording").header().clone();
    assert_eq!((header.inherited.thp_disable, header.machine.thp_disabled), (ThpDisabled::All, false));
}
