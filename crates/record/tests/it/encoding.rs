//! Records are unchanged after encoding and decoding, and the words have the documented layout.

use hksim_record::encoding::{ESCAPE_WORDS, Kind, Record, Regions, count_calls, site_word};
use hksim_testkit::Random;

fn random_record(random: &mut Random, ticks: &mut u64) -> Record {
    *ticks = match random.bits() % 20 {
        0 => random.bits(),
        1 => ticks.wrapping_sub(random.bits() % 1000),
        2 => ticks.wrapping_add(random.bits() % 100_000),
        _ => ticks.wrapping_add(random.bits() % 400),
    };
    let kind = Kind::from_number(1 + (random.bits() % 14) as u8).expect("there are 14 kinds");
    let has_compact_form = matches!(kind, Kind::Malloc | Kind::Free | Kind::Calloc);
    let address = match random.bits() % 8 {
        0 => random.bits(),
        1 => 0,
        2 => 0x7f12_3456_0000 + random.bits() % 0x10_0000,
        _ => (0x5555_0000_0000 + random.bits() % 0x10_0000) & !7,
    };
    Record {
        kind,
        align_log2: if has_compact_form { 0 } else { (random.bits() % 64) as u8 },
        ticks: *ticks,
        duration: if has_compact_form { 0 } else { random.bits() >> 24 },
        address,
        old: if has_compact_form { 0 } else { random.bits() },
        size: random.bits() >> (random.bits() % 64),
        site: if kind.asks_for_memory() { (random.bits() >> (32 + random.bits() % 32)) as u32 } else { 0 },
    }
}

#[test]
fn every_record_reads_back() {
    let seed = 0x5eed_0001;
    let mut random = Random::new(seed);
    let (mut writer, mut reader) = (Regions::new(), Regions::new());
    let (mut words, mut records) = (Vec::new(), Vec::new());
    let (mut ticks, mut short) = (1 << 50, 0);
    for _ in 0..100_000 {
        let record = random_record(&mut random, &mut ticks);
        let has_compact_form = matches!(record.kind, Kind::Malloc | Kind::Free | Kind::Calloc);
        if record.site != 0 {
            words.push(site_word(record.site));
        }
        // Like the recorder, try the fast path first.
        let likely = has_compact_form
            .then(|| writer.compact_likely(record.kind, record.ticks, record.address, record.size))
            .flatten();
        short += usize::from(likely.is_some());
        match likely.or_else(|| writer.compact(&record)) {
            Some(word) => words.push(word),
            None => words.extend(writer.escape(&record)),
        }
        records.push(record);
    }
    let with_site = records.iter().filter(|record| record.site != 0).count();
    let escapes = (words.len() - with_site - records.len()) / (ESCAPE_WORDS - 1);
    assert!(
        0 < short && short < records.len() - escapes,
        "the fast and the slow path both write compact records: {short}"
    );
    let calls = records.iter().filter(|record| record.kind != Kind::Thread).count();
    assert_eq!(count_calls(&words), calls as u64, "seed {seed:#x}");
    let mut at = 0;
    for (index, record) in records.iter().enumerate() {
        let (read, used) = reader.decode(&words[at..]).expect("a record");
        // A compact record stores the time in units of 4 ticks; errors do not accumulate.
        assert!(record.ticks.wrapping_sub(read.ticks) < 4, "seed {seed:#x}, record {index}: {record:?} {read:?}");
        assert_eq!(Record { ticks: record.ticks, ..read }, *record, "seed {seed:#x}, record {index}");
        at += used;
    }
    assert_eq!(at, words.len());
}

#[test]
fn compact_words_have_the_documented_layout() {
    let mut regions = Regions::new();
    let record = |ticks, address, size| Record::new(Kind::Malloc, ticks, address, size);
    assert_eq!(regions.compact(&record(1000, 0x5555_0000_1230, 77)), None, "no region is known yet");
    regions.escape(&record(1000, 0x5555_0000_1230, 77));
    // Region of 0x5555_0000_1230: bits 35 and 36 are 0b10, bit 45 is 0.
    let expected = 1 | 0b010 << 2 | 100 << 5 | 77 << 16 | (0x5_0000_1238_u64 >> 3) << 32;
    assert_eq!(regions.compact(&record(1400, 0x5555_0000_1238, 77)), Some(expected));
    for misfit in [
        record(1400 + 8192, 0x5555_0000_1238, 77),
        record(1404, 0x5555_0000_1234, 77),
        record(1404, 0x5555_0000_1238, 65536),
    ] {
        assert_eq!(regions.compact(&misfit), None, "{misfit:?}");
    }
}

#[test]
fn damaged_words_are_refused() {
    let mut regions = Regions::new();
    assert!(regions.decode(&[]).is_none());
    assert!(regions.decode(&[0; ESCAPE_WORDS]).is_none(), "no kind 0");
    assert!(regions.decode(&[(16 << 8), 0, 0, 0, 0]).is_none(), "no kind 16");
    assert!(regions.decode(&[(1 << 8), 0, 0]).is_none(), "cut off");
    assert!(regions.decode(&[1]).is_none(), "the region is unknown");
    assert!(regions.decode(&[site_word(1)]).is_none(), "a call site without a record");
    assert!(regions.decode(&[site_word(1), site_word(2), 1 << 8, 0, 0, 0, 0]).is_none(), "two call sites");
}
