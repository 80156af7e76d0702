//! Completions, man pages, and the nearest word.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::Bench;

#[test]
fn completions_are_scripts_of_their_shells() {
    let bench = Bench::new();
    let script = bench.ok("completions bash");
    fs::write(bench.path("hksim.bash"), script).expect("a file");
    // What bash offers after `hksim sweep --supers`.
    let ask = "source ./hksim.bash; COMP_WORDS=(hksim sweep --supers); COMP_CWORD=2; _hksim hksim --supers sweep; \
        echo \"${COMPREPLY[@]}\"";
    let asked = Command::new("bash").args(["-c", ask]).current_dir(bench.folder()).output();
    match asked {
        Ok(asked) => assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "--superslab", "{asked:?}"),
        Err(why) => eprintln!("skipped: bash: {why}"),
    }
    // Values are words, or nothing: never files.
    for (option, expected) in [("--huge", "never thp"), ("--preset", "default hakmem"), ("--superslab", "")] {
        let ask = format!(
            "source ./hksim.bash; compopt() {{ :; }}; COMP_WORDS=(hksim sweep {option} ''); COMP_CWORD=3; \
             _hksim hksim '' {option}; echo \"${{COMPREPLY[@]}}\""
        );
        let asked = Command::new("bash").args(["-c", &ask]).current_dir(bench.folder()).output();
        let Ok(asked) = asked else { break };
        let offered = String::from_utf8_lossy(&asked.stdout).trim().to_string();
        assert!(offered.starts_with(expected) && (offered.is_empty() == expected.is_empty()), "{option}: {offered}");
    }
    for shell in ["zsh", "fish"] {
        assert!(bench.ok(&format!("completions {shell}")).contains("superslab"), "{shell}");
    }
    assert!(bench.refused("completions tcsh").contains("bash"));
}

#[test]
fn every_command_has_a_man_page() {
    let bench = Bench::new();
    bench.ok("man -o pages");
    let help = bench.ok("--help");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let mut pages = 0;
    for name in names.filter(|name| *name != "help").filter(|name| bench.run(&format!("{name} --help")).code == Some(0))
    {
        let path = bench.path(&format!("pages/hksim-{name}.1"));
        let page = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        assert!(page.contains(".SH NAME") && page.contains(&format!("hksim\\-{name}")), "{name}: {page}");
        pages += 1;
    }
    assert!(pages >= 18, "{pages} pages: {help}");
    assert!(bench.path("pages/hksim-trace-cut.1").exists(), "commands of commands have pages, too");
    // Errors of the formatter are errors of the pages.
    let mut formatted = Command::new("man");
    formatted.args(["--warnings", "-l", "pages/hksim-sweep.1"]).current_dir(bench.folder());
    if let Ok(output) = formatted.stdin(Stdio::null()).env("LC_ALL", "C").output() {
        assert!(output.stderr.is_empty() || !output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(bench.refused("man -o /dev/null/x").contains("/dev/null/x"));
}

#[test]
fn a_value_that_is_nearly_a_word_is_corrected() {
    let bench = Bench::with_trace();
    for (line, meant) in [
        ("sim rm.hkt --huge=nevr", "did you mean never?"),
        ("sweep rm.hkt --purge dontned,free", "did you mean dontneed?"),
        ("sim rm.hkt --touch frist", "did you mean first?"),
        ("sim rm.hkt --preset hakmen", "did you mean hakmem?"),
        ("sim rm.hkt --tlb zen44", "did you mean zen4?"),
        ("compare rm.hkt --allocators gilbc", "did you mean glibc?"),
        ("sweep rm.hkt --goal insalls", "did you mean installs?"),
        ("advise rm.hkt --limit rs+10%", "did you mean rss?"),
        ("replay rm.hkt --mode theaded", "did you mean threaded?"),
        ("export rm.hkt --to cvs -o x", "did you mean csv?"),
        ("import rm.hkt --from cvs -o x.hkt", "did you mean csv?"),
    ] {
        assert!(bench.refused(line).contains(meant), "{line}: {}", bench.refused(line));
    }
    assert!(!bench.refused("sim rm.hkt --huge=xyzzy").contains("did you mean"));
}
