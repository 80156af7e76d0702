//! Bad usage and input: one line that names the place, exit status 2.

use std::fs;

use crate::support::Bench;

#[test]
fn bad_usage_is_reported_by_name() {
    let bench = Bench::with_trace();
    let cases = [
        ("", "no command"),
        ("nonsense", "nonsense"),
        ("mark 4194305 x", "there is no such process"),
        ("report rm.hkt -o r.html", "rm.hkt: is a trace, not a result"),
        ("record --memory --only ls -o m.hkm ls", "leave out --only and --no-children"),
        ("sim", "<TRACE.hkt>"),
        ("sim rm.hkt --nonsense", "--nonsense"),
        ("sim rm.hkt --superslab", "--superslab"),
        ("sim rm.hkt --superslab 3M", "powers of two"),
        ("sim rm.hkt --superslab 1T", "64K to 32M"),
        ("sim rm.hkt --superslab 0", "powers of two"),
        ("sim rm.hkt --superslab -1", "`-1`: expected a size"),
        ("sim rm.hkt --superslab abc", "`abc`: expected a size"),
        ("sim rm.hkt --superslab 99999999999999999999M", "expected a size"),
        ("sweep rm.hkt --superslab 1M,", "``: expected a size"),
        ("sim rm.hkt --slab 4M", "512 slabs"),
        ("sim rm.hkt --header-bytes 3", "1 or 16"),
        ("sim rm.hkt --arena 1M", "64M to 16T"),
        ("sim rm.hkt --prewarm 99999999", "quarter of the arena"),
        ("sim rm.hkt --purge-delay 5", "expected a time"),
        ("sim rm.hkt --huge=maybe", "expected one of"),
        ("sim rm.hkt --huge mthp-2M", "expected a size of multi-size THPs"),
        ("sim rm.hkt --align sideways", "arena, trim, kernel"),
        ("sim rm.hkt --align trim --huge hugetlb", "align arena"),
        ("sim rm.hkt --align kernel --superslab 64K --arena 16T", "smaller arena"),
        ("replay rm.hkt --align trim --mode threaded", "--mode ordered"),
        ("run --align trim -- true", "use align=arena"),
        ("sim rm.hkt --kernel 6.6", "6.18"),
        ("sim rm.hkt --superslab 1M,2M", "hksim sweep"),
        ("sim rm.hkt --huge never,thp", "hksim sweep"),
        ("sim rm.hkt --preset nobody", "default, hakmem"),
        ("sim rm.hkt --policy nowhere.toml", "nowhere.toml"),
        ("sim rm.hkt --tlb abacus", "zen3"),
        ("sim rm.hkt --format xml", "xml"),
        ("sweep rm.hkt --jobs 0", "--jobs"),
        ("sweep rm.hkt --jobs 1000000", "--jobs"),
        ("replay rm.hkt --thp always", "--thp is about a simulated kernel"),
        ("validate rm.hkt --hugetlb-pool 3", "--hugetlb-pool is about a simulated kernel"),
        ("replay rm.hkt --on glibc --superslab 1M", "--superslab"),
        ("replay rm.hkt --on ./nowhere.so", "nowhere.so"),
        ("replay rm.hkt --mode sideways", "ordered and threaded"),
        ("gen random-mixed", "--output"),
        ("gen random-mixed --cycles 0 -o x.hkt", "cycles"),
        ("gen random-mixed --cycles -5 -o x.hkt", "-5"),
        ("gen random-mixed --min 10 --max 5 -o x.hkt", "min"),
        ("gen random-mixed --seed 4294967296 -o x.hkt", "4294967296"),
        ("gen server --live 1 -o x.hkt", "live"),
        ("gen somebody -o x.hkt", "somebody"),
        ("import rm.hkt --from nothing -o x.hkt", "script, android"),
        ("import rm.hkt -o x.hkt", "unknown trace format"),
        ("record -o x.hkt", "<CMD>"),
        ("record -o x.hkt --stcks ls", "--stcks: record has no such flag; did you mean --stacks?"),
        ("record --memroy -o x.hkm ls", "did you mean --memory?"),
        ("record -o x.hkt -- --stcks", "not found"),
        ("record -o x.hkt -- ./no-such-program", "not found"),
        ("plot rm.hkt -o x.svg", "rm.hkt"),
    ];
    for (line, needle) in cases {
        let message = bench.refused(line);
        assert!(message.contains(needle), "{line}: expected `{needle}` in: {message}");
    }
    assert!(!bench.path("x.hkt").exists() && !bench.path("x.svg").exists(), "a refused command left a file");
}

#[test]
fn misspelt_values_are_refused_as_values() {
    let bench = Bench::with_trace();
    let cases = [
        ("plot rm.hkt -o x.pdf", "ends in .svg or .png"),
        ("sweep rm.hkt --plot=x.pdf", "ends in .svg or .png"),
        ("info rm.hkt --plot x.pdf", "ends in .svg or .png"),
        ("sim rm.hkt --fork-at 7,7", "both event 7"),
        ("sim rm.hkt --huge tph", "`tph`: expected one of never, thp"),
        ("sweep --huge tph", "`tph`: expected one of never, thp"),
        ("sweep --huge never,tph rm.hkt", "`tph`: expected one of never, thp"),
        ("sweep rm.hkt --plot x.pdf", "ends in .svg or .png"),
        ("replay rm.hkt --on nobody", "name glibc, mimalloc"),
        ("replay rm.hkt --on native:huge=tph", "`tph`: expected one of never"),
        ("replay rm.hkt --on native:huge=never --superslab 1M", "--superslab"),
    ];
    for (line, needle) in cases {
        let message = bench.refused(line);
        assert!(message.contains(needle), "{line}: expected `{needle}` in: {message}");
    }
    assert!(!bench.path("x.png").exists(), "a refused command left a file");
}

#[test]
fn every_command_names_an_unreadable_trace() {
    let bench = Bench::with_trace();
    fs::write(bench.path("empty.hkt"), "").expect("a file");
    // xorshift64 with a fixed seed: bytes of no format.
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    let noise: Vec<u8> = noise.take(20_000).collect();
    fs::write(bench.path("noise.hkt"), noise).expect("a file");
    let mut damaged = fs::read(bench.path("rm.hkt")).expect("the trace");
    let middle = damaged.len() / 3;
    damaged[middle] ^= 0xFF;
    fs::write(bench.path("damaged.hkt"), damaged).expect("a file");
    fs::create_dir(bench.path("folder.hkt")).expect("a folder");
    let traces = [
        ("missing.hkt", "No such file"),
        ("folder.hkt", "not a regular file"),
        ("/dev/null", "not a regular file"),
        ("empty.hkt", "not an .hkt trace"),
        ("noise.hkt", "not an .hkt trace"),
        ("damaged.hkt", "damaged"),
    ];
    for (name, needle) in traces {
        for command in ["info", "sim", "sweep", "replay", "compare"] {
            let message = bench.refused(&format!("{command} {name}"));
            assert!(message.contains(needle) && message.contains(name), "{command} {name}: {message}");
        }
    }
}

#[test]
fn an_invalid_policy_file_is_refused_with_its_line() {
    let bench = Bench::with_trace();
    let cases = [
        ("superslab_bytes = 1048576\nsuperslab = 5\n", "p.toml:2"),
        ("\n\nhuge = \"maybe\"\n", "p.toml:3"),
        ("what is this", "p.toml:1"),
        ("superslab_bytes = -1\n", "p.toml:1"),
        ("superslab_bytes = 3000000\n", "powers of two"),
    ];
    for (text, needle) in cases {
        fs::write(bench.path("p.toml"), text).expect("a policy file");
        let message = bench.refused("sim rm.hkt --policy p.toml");
        assert!(message.contains(needle), "{text:?}: {message}");
    }
}

#[test]
fn a_truncated_trace_is_simulated_up_to_its_last_complete_chunk() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 60k -o whole.hkt");
    let bytes = fs::read(bench.path("whole.hkt")).expect("the trace");
    fs::write(bench.path("cut.hkt"), &bytes[..bytes.len() * 2 / 3]).expect("a file");
    let info = bench.run("info cut.hkt --format json");
    assert_eq!(info.code, Some(0), "{}", info.stderr);
    assert!(info.stderr.contains("cut.hkt") && info.stderr.contains("ends early"), "{}", info.stderr);
    let value: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
    assert_eq!(value["complete"], false);
    let events = value["events"].as_u64().expect("events");
    assert!(events > 0 && events < 60_000, "{events} events");
    assert!(bench.ok("info cut.hkt").contains("truncated"));
    let sim = bench.json("sim cut.hkt");
    assert_eq!(sim["events"], events);
    assert_eq!(sim["trace"]["complete"], false);
    assert!(bench.ok("sim cut.hkt").contains("(truncated)"));
}
