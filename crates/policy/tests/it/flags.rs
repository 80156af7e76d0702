//! Flags and units: a displayed value parses to the same value, and invalid text is refused.

use hksim_policy::Policy;
use hksim_policy::flags::{FLAGS, Flag, ValueError, Values};
use hksim_policy::units::{Size, Time, parse_count, parse_count_32, parse_size, parse_time};
use hksim_testkit::Random;
use hksim_testkit::spread::random_classes;

/// A random valid value of a flag, as text.
fn random_word(flag: &Flag, random: &mut Random) -> String {
    match flag.values {
        Values::Words(words) => random.pick(words).to_string(),
        Values::WordsOr(..) => random_classes(random).to_string(),
        Values::Size(_) => Size(random.log_uniform(1 << 45)).to_string(),
        Values::Count(_) => random.log_uniform(1 << 31).to_string(),
        Values::Time(_) => Time(random.log_uniform(1 << 50)).to_string(),
    }
}

#[test]
fn a_policy_round_trips_through_its_flags() {
    let seed = 0x7_0000;
    eprintln!("seed {seed:#x}");
    let mut random = Random::new(seed);
    for _ in 0..2000 {
        let mut policy = Policy::default();
        let words: Vec<String> = FLAGS.iter().map(|flag| random_word(flag, &mut random)).collect();
        for (flag, word) in FLAGS.iter().zip(&words) {
            flag.set(&mut policy, word).unwrap_or_else(|why| panic!("--{} {word} {why}", flag.name));
        }
        let mut read = Policy::hakmem();
        for (flag, word) in FLAGS.iter().zip(&words) {
            let shown = flag.show(&policy).to_string();
            assert_eq!(&shown, word, "--{}", flag.name);
            flag.set(&mut read, &shown).unwrap();
        }
        assert_eq!(read, policy, "{words:?}");
    }
}

#[test]
fn every_flag_refuses_invalid_values() {
    for flag in FLAGS {
        for word in ["", "nonsense", "-1", "2MM", "mthp-2M", "mthp-48K", "mthp-8K", "99999999999999999999"] {
            let mut policy = Policy::default();
            assert!(flag.set(&mut policy, word).is_err(), "--{} {word}", flag.name);
            assert_eq!(policy, Policy::default(), "--{} {word}", flag.name);
        }
    }
    let huge = Flag::find("huge").unwrap();
    assert_eq!(huge.set(&mut Policy::default(), "mthp-2M"), Err(ValueError::HugePageSize));
    let why = huge.set(&mut Policy::default(), "tph").unwrap_err().to_string();
    assert!(why.starts_with("expected one of never, thp, mthp-16K, "), "{why}");
}

#[test]
fn invalid_lists_of_block_sizes_are_refused_with_a_remedy() {
    let too_many = (1..=96).map(|step| (step * 8).to_string()).collect::<Vec<String>>().join("/");
    let cases = [
        ("8/", "separated by slashes"),
        ("8/+16", "separated by slashes"),
        ("8/16K", "separated by slashes"),
        ("8,16", "separated by slashes"),
        ("0/8", "multiples of 8 up to 65536"),
        ("8/20", "multiples of 8 up to 65536"),
        ("8/65544", "multiples of 8 up to 65536"),
        ("8/99999999999", "separated by slashes"),
        ("8/32/16", "ascending"),
        ("8/8", "ascending"),
        (too_many.as_str(), "list fewer sizes"),
        ("spacing-0", "expected one of default"),
        ("spacing-9", "expected one of default"),
        ("spacing-+4", "expected one of default"),
    ];
    let classes = Flag::find("classes").unwrap();
    for (word, expected) in cases {
        let mut policy = Policy::default();
        let why = classes.set(&mut policy, word).unwrap_err().to_string();
        assert!(why.contains(expected), "{word}: {why}");
        assert_eq!(policy, Policy::default(), "{word}");
    }
    // Above 5184 to 5248 bytes, the default has 15 classes.
    let listed = |sizes: u32| (1..=sizes).map(|step| (step * 64).to_string()).collect::<Vec<String>>().join("/");
    assert!(classes.set(&mut Policy::default(), &listed(81)).is_ok());
    assert!(classes.set(&mut Policy::default(), &listed(82)).is_err());
}

#[test]
fn invalid_policies_are_refused_and_presets_are_valid() {
    let refused: [(&[(&str, &str)], &str); 8] = [
        (&[("superslab", "3M")], "powers of two"),
        (&[("superslab", "64M")], "64K to 32M"),
        (&[("superslab", "32M"), ("slab", "16K")], "512 slabs"),
        (&[("header-bytes", "8")], "1 or 16 bytes"),
        (&[("arena", "1M")], "64M to 16T"),
        (&[("arena", "64M"), ("prewarm", "99")], "a quarter"),
        (&[("huge", "hugetlb"), ("align", "trim")], "align arena"),
        (&[("superslab", "64K"), ("slab", "16K"), ("classes", "16384")], "list a smaller class"),
    ];
    for (flags, expected) in refused {
        let mut policy = Policy::default();
        flags.iter().for_each(|(name, word)| Flag::find(name).unwrap().set(&mut policy, word).unwrap());
        let why = policy.prepare().map(drop).unwrap_err().to_string();
        assert!(why.contains(expected), "{flags:?}: {why}");
    }
    assert!(Policy::PRESETS.iter().all(|name| Policy::preset(name).unwrap().prepare().is_ok()));
}

#[test]
fn sizes_are_binary_and_counts_decimal() {
    assert_eq!(parse_size("2M"), Ok(2 * 1024 * 1024));
    assert_eq!(parse_size("64KiB"), Ok(65_536));
    assert_eq!(parse_size("4096"), Ok(4_096));
    assert_eq!(parse_count("1M"), Ok(1_000_000));
    assert_eq!(parse_count("100k"), Ok(100_000));
    assert_eq!(parse_time("100ms"), Ok(100_000_000));
    assert_eq!(parse_time("0"), Ok(0));
}

#[test]
fn invalid_numbers_are_refused() {
    for word in ["", "-1", "+1", "abc", "M", "1.5M", "1 M", "2MM", "99999999999999999999", "20000000T", "1é", "é"] {
        assert!(parse_size(word).is_err(), "{word:?} as a size");
        assert!(parse_count(word).is_err(), "{word:?} as a count");
    }
    for word in ["", "5", "ms", "-1ms", "1.5s", "100 ms", "99999999999999999999ns", "99999999999s", "1m"] {
        assert!(parse_time(word).is_err(), "{word:?} as a time");
    }
    assert_eq!(parse_count_32("4294967296"), Err(ValueError::CountTooLarge));
}

#[test]
fn displayed_values_can_be_parsed() {
    for bytes in [0, 1, 1023, 1024, 1536, 2 << 20, 64 << 30, 16 << 40, u64::MAX] {
        assert_eq!(parse_size(&Size(bytes).to_string()), Ok(bytes));
    }
    for ns in [0, 1, 999, 1_000, 1_500, 100_000_000, 3_000_000_000, u64::MAX] {
        assert_eq!(parse_time(&Time(ns).to_string()), Ok(ns));
    }
    assert_eq!((Size(1536).to_string(), Time(100_000_000).to_string()), ("1536".into(), "100ms".into()));
}
