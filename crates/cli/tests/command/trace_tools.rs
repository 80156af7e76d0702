//! `hksim trace`: traces written by the tools can be read and simulated, and have a history; invalid requests are
//! refused.

use std::fs;

use crate::support::Bench;

#[test]
fn a_damaged_header_is_damage_but_another_format_is_bad_input() {
    let bench = Bench::with_trace();
    let sound = std::fs::read(bench.path("rm.hkt")).expect("the trace");
    let mut damaged = sound.clone();
    damaged[30] ^= 0xFF;
    std::fs::write(bench.path("damaged.hkt"), &damaged).expect("a file");
    for line in ["trace verify damaged.hkt", "trace verify damaged.hkt --repair kept.hkt"] {
        let ran = bench.run(line);
        assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("NOT sound: damaged file header"), "{}", ran.stdout);
    }
    assert!(!bench.path("kept.hkt").exists(), "there is nothing to write");
    assert_eq!(bench.run("trace verify rm.hkt").code, Some(0));
    assert!(bench.refused("trace verify /etc/passwd").contains("not an .hkt trace"));
}

#[test]
fn every_tool_writes_a_valid_trace_with_its_history() {
    let bench = Bench::new();
    bench.ok("gen server --live 2M --events 30k --threads 3 -o s.hkt");
    for (line, tool) in [
        ("cut s.hkt --from 1ms --to 2ms", "cut"),
        ("cut s.hkt --mark steady..burst --thread 0,1", "cut"),
        ("cut s.hkt --events 5k.. --drop-live", "cut"),
        ("merge s.hkt s.hkt --at 0,1ms", "merge"),
        ("scale s.hkt --time 0.5", "scale"),
        ("scale s.hkt --size 2", "scale"),
        ("scale s.hkt --copies 2 --stagger 10us", "merge"),
        ("anonymise s.hkt --sizes classes", "anonymise"),
        ("shrink s.hkt --huge never --keep installs.total>100 --tries 20", "shrink"),
    ] {
        let made = bench.json(&format!("trace {line} -o out.hkt"));
        let verified = bench.json("trace verify out.hkt");
        assert_eq!((&verified["valid"], &verified["events"]), (&true.into(), &made["events"]), "{line}");
        let simulated = bench.json("sim out.hkt --huge never");
        assert_eq!(simulated["events"], made["events"], "{line}");
        let header = fs::read(bench.path("out.hkt")).expect("the trace");
        let history = format!("\"tool\":\"{tool}\"");
        assert!(header.windows(history.len()).any(|window| window == history.as_bytes()), "{line}");
    }
}

#[test]
fn shrinking_keeps_the_property_and_is_deterministic() {
    let bench = Bench::new();
    bench.ok("gen server --live 4M --events 60k --seed 3 -o s.hkt");
    let line = "trace shrink s.hkt --huge never --keep installs.total>=300 --tries 200 -o";
    let shrunk = bench.json(&format!("{line} one.hkt"));
    let [events, before] = ["events", "events_before"].map(|name| shrunk[name].as_u64().expect("a count"));
    assert!(before == 60_020 && events * 10 < before, "{shrunk}");
    let installs = bench.json("sim one.hkt --huge never")["installs"]["total"].as_u64().expect("a count");
    assert!((300..400).contains(&installs), "{installs}");
    bench.ok(&format!("{line} two.hkt"));
    assert_eq!(fs::read(bench.path("one.hkt")).expect("one"), fs::read(bench.path("two.hkt")).expect("two"));
    let info = bench.json("info one.hkt");
    let alone = bench.json("trace shrink s.hkt --while #{} -o alone.hkt");
    assert!(bench.json("info s.hkt")["marks"].as_u64() > Some(0));
    assert_eq!(bench.json("info alone.hkt")["marks"], 0, "events without an object are removed");
    assert!(alone["objects_peak"] == 1 && info["live_objects_peak"].as_u64() > Some(1), "{alone}");
}

#[test]
fn a_shrink_command_works_in_any_directory() {
    let bench = Bench::new();
    bench.ok("gen server --live 1M --events 5000 -o s.hkt");
    for folder in ["plain", "with space", "it's $HOME; `x` \"y\"", "line\nend"] {
        let temporary = bench.path(folder);
        fs::create_dir(&temporary).expect("a folder");
        let mut command = bench.command("trace shrink s.hkt --tries 3 --format json -o small.hkt --while");
        let ran = command.arg("test -s {} && cmp {} {}").env("TMPDIR", &temporary).output().expect("hksim starts");
        assert!(ran.status.success(), "{folder}: {}", String::from_utf8_lossy(&ran.stderr));
        let shrunk: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert!(shrunk["events"].as_u64() < shrunk["events_before"].as_u64(), "{folder}: {shrunk}");
    }
}

#[test]
fn damage_is_reported_and_repaired() {
    let bench = Bench::new();
    bench.ok("gen server --live 2M --events 40k -o s.hkt");
    let whole = fs::read(bench.path("s.hkt")).expect("the trace");
    fs::write(bench.path("cut.hkt"), &whole[..whole.len() * 2 / 3]).expect("a file");
    let ran = bench.run("trace verify cut.hkt --repair repaired.hkt");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("NOT sound") && ran.stdout.contains("16 384 events"), "{}", ran.stdout);
    assert_eq!(bench.json("trace verify repaired.hkt")["events"], 16_384);
    let again = bench.refused("trace verify cut.hkt --repair cut.hkt");
    assert!(again.contains("both input and output"), "{again}");
}

#[test]
fn invalid_requests_are_refused_with_a_remedy() {
    let bench = Bench::with_trace();
    for (line, part) in [
        ("trace cut rm.hkt -o rm.hkt", "both input and output"),
        ("trace cut rm.hkt --mark nowhere -o x.hkt", "no mark is named"),
        ("trace cut rm.hkt --from 5ms --to 1ms -o x.hkt", "its end must be after its start"),
        ("trace cut rm.hkt --events 9..3 -o x.hkt", "is empty"),
        (
            "trace cut rm.hkt --from 1000s -o x.hkt",
            "this part has no event and no live object; the trace has 20000 events, 1 thread (",
        ),
        ("trace cut rm.hkt --thread 7 -o x.hkt", "no event and no live object"),
        ("trace merge rm.hkt rm.hkt --at 1ms -o x.hkt", "give 2 times"),
        ("trace scale rm.hkt -o x.hkt", "--copies N"),
        ("trace scale rm.hkt --size 0 -o x.hkt", "is not a factor"),
        ("trace scale rm.hkt --copies 0 -o x.hkt", "from 1 to 256"),
        ("trace shrink rm.hkt -o x.hkt", "say what to keep"),
        ("trace shrink rm.hkt --while true -o x.hkt", "`true` does not use the candidate trace"),
        ("trace shrink rm.hkt --keep nonsense -o x.hkt", "is not a property"),
        ("trace shrink rm.hkt --keep falts>1 -o x.hkt", "figures are allocations"),
        ("trace shrink rm.hkt --keep faults>1e15 -o x.hkt", "does not have the property"),
        ("trace verify /dev/null", "not a regular file"),
    ] {
        let message = bench.refused(line);
        assert!(message.contains(part), "{line}: {message}");
        assert!(!bench.path("x.hkt").exists(), "{line}");
    }
}
