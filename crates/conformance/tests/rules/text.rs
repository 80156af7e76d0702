//! The text form of scripts.

use hksim_conformance::Generator;
use hksim_linux_mm::script::{OpError, Script};

const EVERYTHING: &str = "thp always\nmthp 64 inherit\nmthp 2048 never\nzero_page off\nmax_ptes_shared 9\npool 4\nmax_map_count 1000\nroom 3\n\
    base 17\nmap 0 16 r pNHS\nunmap 1 2\nadv COLLAPSE 0 512\nprot 3 4 n\nremap 0 1 2 1\nresize 1 2 3\nmremap 1 2 3 4\nw 0 16 2\nt k 1 2 3\nfork 0 16 1\nforkw 3 0 2\n\
    name 0 4 17\nname 0 4 -\nmapfile 4 5\nf 4 5 2\nadv DONTNEED_LOCKED 3 4\nscan 1\nforkscan 20\n";

pub fn printed_scripts_parse_to_the_same_script() -> Result<(), String> {
    let script: Script = EVERYTHING.parse().expect("a well-formed script");
    assert_eq!(script.to_string(), EVERYTHING);
    for seed in 0..500 {
        let script = Generator::new(seed).script();
        assert_eq!(script.to_string().parse(), Ok(script));
    }
    Ok(())
}

pub fn invalid_lines_are_reported_with_their_numbers() -> Result<(), String> {
    let cases = [
        ("w 0 1 1\n\nfrob 1 2", 3, OpError::UnknownOperation),
        ("adv SOON 0 1", 1, OpError::UnknownAdvice),
        ("w 0 1", 1, OpError::Operands),
        ("w 0 4097 1", 1, OpError::OutOfArena),
        ("w 0 18446744073709551615 1", 1, OpError::OutOfArena),
        ("w 0 99999999999999999999 1", 1, OpError::Operands),
        ("r 0 1 0", 1, OpError::OutOfArena),
        ("prot 0 1 xr", 1, OpError::UnknownProtection),
        ("map 0 1 w q", 1, OpError::UnknownFlags),
        ("thp sometimes", 1, OpError::UnknownMode),
        ("mthp 48 always", 1, OpError::UnknownSize),
        ("base 512", 1, OpError::OutOfArena),
        ("w 0 1 1\nthp always", 2, OpError::LateHeader),
        ("t fork 0 1 1", 1, OpError::OnlyByFirst),
        ("t scan 1", 1, OpError::OnlyByFirst),
        ("scan", 1, OpError::Operands),
        ("scan 0", 1, OpError::Scans),
        ("forkscan 21", 1, OpError::Scans),
        ("max_ptes_shared x", 1, OpError::Operands),
        ("t t w 0 1 1", 1, OpError::UnknownOperation),
    ];
    for (text, line, reason) in cases {
        let error = text.parse::<Script>().expect_err(text);
        assert_eq!((error.line, error.reason), (line, reason), "{text}");
    }
    assert_eq!("w 0 1 1\nend\nanything".parse::<Script>().map(|script| script.steps.len()), Ok(1));
    Ok(())
}
