//! Memory policies (prctl, mlockall, personality): their positions among the events, and their values compared with
//! those that the kernel reports to the program.

use std::process::Command;

use hksim_record::control::{Begin, Control};
use hksim_record::{Exit, Options, RecordReport, record};
use hksim_trace::event::{Event, Op};
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};

use crate::support::{compile, events, mallocs_of, record_words, scratch};

/// The allocations (by size) and policy changes, in order.
#[derive(Debug, PartialEq)]
enum Seen {
    Malloc(u64),
    Policy(MemoryPolicy, bool),
}

fn seen(events: &[Event]) -> Vec<Seen> {
    let one = |event: &Event| match event.op {
        Op::Alloc { size: size @ 101..=301, .. } => Some(Seen::Malloc(size)),
        Op::MemoryPolicy { policy, inherited } => Some(Seen::Policy(policy, inherited)),
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
fn every_change_is_recorded_in_order() {
    let dir = scratch();
    let program = compile(dir.path(), "policies", &[]);
    // Without the recorder the program prints the values that the kernel reports.
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
    let call = |policy| Seen::Policy(policy, false);
    let mut expected = vec![
        Seen::Malloc(101),
        call(thp(ThpDisable::All)),
        Seen::Malloc(102),
        call(thp(ThpDisable::Off)),
        Seen::Malloc(103),
        Seen::Malloc(104),
        call(MemoryPolicy::LockAll(FUTURE)),
        Seen::Malloc(105),
        call(MemoryPolicy::LockAll(LockAll::NONE)),
        Seen::Malloc(106),
        call(MemoryPolicy::Personality(changed)),
        Seen::Malloc(107),
    ];
    if persona != 0 {
        expected.insert(0, Seen::Policy(MemoryPolicy::Personality(persona), true));
    }
    assert_eq!(seen(&events(&report.traces[0])), expected);
}

/// Records a program that sets a policy before it allocates. A forked child and an executed program inherit the policy.
fn inherited(options: &Options) -> (tempfile::TempDir, RecordReport) {
    let dir = scratch();
    let program = compile(dir.path(), "policies", &[]);
    let options = Options { output: dir.path().join("app.hkt"), ..options.clone() };
    let words = [program.as_os_str().to_owned(), "quiet".into(), program.into(), "calls".into()];
    let report = record(&options, &words).expect("a recording");
    (dir, report)
}

#[test]
fn children_and_executed_programs_begin_with_inherited_policies() {
    let (_dir, report) = inherited(&Options::default());
    if report.exit == Some(Exit::Code(77)) {
        return eprintln!("skipped: mlockall is not allowed (ulimit -l)");
    }
    let of = |size| {
        let traces = report.traces.iter().map(events).filter(|events| mallocs_of(events, size) > 0);
        let traces: Vec<_> = traces.map(|events| seen(&events)).collect();
        assert_eq!(traces.len(), 1, "{size}");
        traces.into_iter().flatten().filter(|seen| !matches!(seen, Seen::Policy(MemoryPolicy::Personality(_), true)))
    };
    let child: Vec<Seen> = of(301).collect();
    assert_eq!(child, [Seen::Policy(thp(ThpDisable::All), true), Seen::Malloc(301)], "the forked child");
    let first: Vec<Seen> = of(101).take(3).collect();
    let again = Seen::Policy(thp(ThpDisable::All), false);
    assert_eq!(first, [Seen::Policy(thp(ThpDisable::All), true), Seen::Malloc(101), again], "the executed program");
}

#[test]
fn changes_are_recorded_while_recording_is_paused() {
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
    let seen = seen(&events(&report.traces[0]));
    let changes = seen.iter().filter(|seen| matches!(seen, Seen::Policy(_, false))).count();
    let mallocs: Vec<_> = seen.iter().filter(|seen| matches!(seen, Seen::Malloc(_))).collect();
    assert_eq!((changes, mallocs), (5, vec![&Seen::Malloc(108)]), "{seen:?}");
}
