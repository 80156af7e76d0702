//! One small script per rule, and tests of limits.

use hksim_conformance::catalogue::cases;
use hksim_conformance::{Machine, RuleVerdict, Runner, Verdict, check, predict, rules};
use hksim_linux_mm::script::Script;
use hksim_linux_mm::{KernelConfig, Rules};

pub fn each_rule_gives_its_figures() -> Result<(), String> {
    for case in cases() {
        let script = case.script().unwrap_or_else(|why| panic!("{}: {why}", case.title));
        let steps = predict(&KernelConfig::default(), &script);
        let last = steps.last().expect("no script is empty");
        for &(figure, expected) in case.figures {
            assert_eq!(figure.of(last), expected, "{} {}: {figure:?} of\n{script}{last:?}", case.rule, case.title);
        }
    }
    Ok(())
}

pub fn each_rule_holds_on_the_running_kernel() -> Result<(), String> {
    let mut runner = Runner::new(None).map_err(|why| why.to_string())?;
    let rows = rules(&mut runner, |_| {}).expect("every script is executed");
    let failed: Vec<_> = rows.iter().filter(|row| row.verdict == RuleVerdict::Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let passed = rows.iter().filter(|row| row.verdict == RuleVerdict::Pass).count();
    eprintln!("{passed} of {} scripts pass, none fails", rows.len());
    Ok(())
}

/// R14: operations when `max_map_count` permits only a few more mappings.
const AT_THE_LIMIT: &[&str] = &[
    "room 0; adv HUGEPAGE 0 16; unmap 100 1; unmap 0 1; prot 10 1 r; adv DONTNEED 200 1; map 300 1 w N; map 300 1 r N",
    "room 1; adv HUGEPAGE 10 1; unmap 100 1; map 0 1 w -; remap 50 1 60 0; w 11 1 1",
    "room 2; adv HUGEPAGE 10 1; adv NOHUGEPAGE 20 1; unmap 4095 1; prot 0 5 r",
    "room 3; prot 10 1 n; prot 20 1 n; adv DONTNEED 30 1; resize 0 4096 4095",
    "room 5; remap 0 1 100 0; remap 1 1 4000 0",
    "room 6; remap 0 1 100 0; remap 1 1 4000 0; unmap 200 1; unmap 210 1",
    "room 9; remap 0 1 100 0; w 1 1 1; remap 1 1 4000 0; remap 200 1 300 1",
];

pub fn the_model_enforces_max_map_count_as_the_kernel_does() -> Result<(), String> {
    let mut machine = Machine::open().map_err(|why| why.to_string())?;
    for lines in AT_THE_LIMIT {
        let script: Script = lines.replace("; ", "\n").parse().expect("a well-formed script");
        let checked = check(&mut machine, &script).expect("the script is executed");
        match checked.verdict {
            Verdict::Equal | Verdict::EqualButSplits => {}
            Verdict::Disturbed(why) => eprintln!("skipped: {lines}: {why}"),
            Verdict::Differs(_) => panic!("{lines}: {:?}", checked.difference()),
        }
    }
    Ok(())
}

pub fn multiples_of_2_mib_are_placed_on_2_mib_boundaries() -> Result<(), String> {
    let lengths = [1, 256, 511, 512, 513, 768, 1024, 1040, 2048, 3072, 16384, 262_144];
    let aligned = [512, 1024, 2048, 3072, 16384, 262_144];
    for pages in lengths {
        assert_eq!(Rules::LINUX_6_18.map_is_pmd_aligned(pages), aligned.contains(&pages), "{pages} pages");
    }
    let program = super::oracle::compile()?;
    for pages in lengths {
        let output = program.output(&[], &format!("aligned {pages}\n"));
        let count: u64 =
            output.lines().find_map(|line| line.strip_prefix("aligned ")?.parse().ok()).expect("a count of 20");
        // Other lengths are aligned by chance, one time in 512.
        assert_eq!(count > 10, Rules::LINUX_6_18.map_is_pmd_aligned(pages), "{pages} pages on this kernel");
    }
    Ok(())
}
