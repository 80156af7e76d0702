//! Memory policies: prctl, mlockall, personality, with their place in the order, against what the kernel told the program.

use std::process::Command;

use hksim_record::control::{Begin, Control};
use hksim_record::{Exit, Options, RecordReport, record};
use hksim_trace::event::{Event, Op};
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};

use crate::support::{compile, events, mallocs_of, record_words, scratch};

/// The allocations (by size) and changes of policy, in order.
#[derive(Debug, PartialEq)]
enum Told {
    Malloc(u64),
    Policy(MemoryPolicy, bool),
}

fn told(events: &[Event]) -> Vec<Told> {
    let one = |event: &Event| match event.op {
        Op::Alloc { size: size @ 101..=301, .. } => Some(Told::Malloc(size)),
        Op::MemoryPolicy { policy, inherited } => Some(Told::Policy(policy, inherited)),
        _ => None,
    };
    events.iter().filter_map(one).collect()
}

const FUTURE: LockAll = LockAll { future: true, ..LockAll::NONE };
const NO_RANDOM: u32 = 0x40000;

fn thp(disable: ThpDisable) -> MemoryPolicy {
    MemoryPolicy::ThpDisable(disable)
}

#[test]
fn every_change_stands_in_its_place() {
    let dir = scratch();
    let program = compile(dir.path(), "policies", &[]);
    // The program's own words, which it has of the kernel, without a recorder.
    let bare = Command::new(&program).arg("calls").output().expect("the program");
    if bare.status.code() == Some(77) {
        return eprintln!("skipped: mlockall is not allowed (ulimit -l)");
    }
    let said = String::from_utf8(bare.stdout).expect("digits");
    let persona = u32::from_str_radix(said.split_whitespace().nth(2).unwrap_or("0"), 16).expect("a personality");
    let line = |disable: u32, locked: u32, persona: u32| format!("{disable} {locked} {persona:x}\n");
    let changed = persona | NO_RANDOM;
    let expected = [(1, 0, persona), (0, 0, persona), (0, 1, persona), (0, 0, persona), (0, 0, changed)];
    assert_eq!(said, expected.map(|(disable, locked, persona)| line(disable, locked, persona)).concat());

    let report = record_words(dir.path(), [program.as_os_str(), "calls".as_ref()]);
    assert_eq!(report.exit, Some(Exit::Code(0)));
    let call = |policy| Told::Policy(policy, false);
    let mut expected = vec![
        Told::Malloc(101),
        call(thp(ThpDisable::All)),
        Told::Malloc(102),
        call(thp(ThpDisable::Off)),
        Told::Malloc(103),
        Told::Malloc(104),
        call(MemoryPolicy::LockAll(FUTURE)),
        Told::Malloc(105),
        call(MemoryPolicy::LockAll(LockAll::NONE)),
        Told::Malloc(106),
        call(MemoryPolicy::Personality(changed)),
        Told::Malloc(107),
    ];
    if persona != 0 {
        expected.insert(0, Told::Policy(MemoryPolicy::Personality(persona), true));
    }
    assert_eq!(told(&events(&report.traces[0])), expected);
}

/// A program that sets a policy before it allocates, with a child and a program that inherit it.
fn inherited(options: &Options) -> (tempfile::TempDir, RecordReport) {
    let dir = scratch();
    let program = compile(dir.path(), "policies", &[]);
    let options = Options { output: dir.path().join("app.hkt"), ..options.clone() };
    let words = [program.as_os_str().to_owned(), "quiet".into(), program.into(), "calls".into()];
    let report = record(&options, &words).expect("a recording");
    (dir, report)
}

#[test]
fn children_and_programs_begin_with_what_they_inherit() {
    let (_dir, report) = inherited(&Options::default());
    if report.exit == Some(Exit::Code(77)) {
        return eprintln!("skipped: mlockall is not allowed (ulimit -l)");
    }
    let of = |size| {
        let traces = report.traces.iter().map(events).filter(|events| mallocs_of(events, size) > 0);
        let traces: Vec<_> = traces.map(|events| told(&events)).collect();
        assert_eq!(traces.len(), 1, "{size}");
        traces.into_iter().flatten().filter(|told| !matches!(told, Told::Policy(MemoryPolicy::Personality(_), true)))
    };
    let child: Vec<Told> = of(301).collect();
    assert_eq!(child, [Told::Policy(thp(ThpDisable::All), true), Told::Malloc(301)], "the forked child");
    let first: Vec<Told> = of(101).take(3).collect();
    let again = Told::Policy(thp(ThpDisable::All), false);
    assert_eq!(first, [Told::Policy(thp(ThpDisable::All), true), Told::Malloc(101), again], "the executed program");
}

#[test]
fn changes_count_while_recording_is_switched_off() {
    let dir = scratch();
    let program = compile(dir.path(), "policies", &[]);
    let [ready, go] = ["ready", "go"].map(|name| dir.path().join(name));
    let options = Options { output: dir.path().join("app.hkt"), begin: Begin::Stopped, ..Options::default() };
    let words = [program.into(), "calls".into(), ready.clone().into(), go.clone().into()];
    let report = std::thread::scope(|scope| {
        let recording = scope.spawn(|| record(&options, &words).expect("a recording"));
        while !recording.is_finished() && !std::fs::read_to_string(&ready).is_ok_and(|pid| pid.ends_with('\n')) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if let Ok(pid) = std::fs::read_to_string(&ready) {
            let control = Control::of_process(pid.trim().parse().expect("a number")).expect("a recorded process");
            assert!(control.start().expect("a session"));
        }
        std::fs::write(&go, "").expect("a file");
        recording.join().expect("no panic")
    });
    if report.exit == Some(Exit::Code(77)) {
        return eprintln!("skipped: mlockall is not allowed (ulimit -l)");
    }
    let told = told(&events(&report.traces[0]));
    let changes = told.iter().filter(|told| matches!(told, Told::Policy(_, false))).count();
    let mallocs: Vec<_> = told.iter().filter(|told| matches!(told, Told::Malloc(_))).collect();
    assert_eq!((changes, mallocs), (5, vec![&Told::Malloc(108)]), "{told:?}");
}
