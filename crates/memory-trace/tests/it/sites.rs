//! Call sites survive writing, reading and every tool.

use std::path::Path;

use hksim_memory_trace::{
    Cut, Header, SiteId, Sites, Verified, Writer, anonymise, cut, relocate, repair, summarise, verify,
};

use crate::support::{
    Named, NamedStack, add_sites, footer, named_stack, random_events, random_sites, read_stacks, write,
    write_with_sites,
};

/// A recording of some chunks with 500 call sites.
fn recording(path: &Path, seed: u64) -> (Vec<Named>, Sites) {
    let (mut events, sites) = (random_events(seed, 150_000), random_sites(seed, 500));
    add_sites(seed, &mut events, &sites);
    write_with_sites(path, &events, &sites);
    (events, sites)
}

fn expected(events: &[Named], sites: &Sites) -> Vec<Option<NamedStack>> {
    events.iter().map(|(event, _)| named_stack(sites, event.site)).collect()
}

#[test]
fn every_call_site_survives() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    for seed in [1, 2] {
        let (events, sites) = recording(&path, seed);
        assert!(read_stacks(&path) == expected(&events, &sites), "seed {seed}");
        let Verified { valid, events: found, .. } = verify(&path).expect("the file");
        assert_eq!((valid, found), (true, events.len() as u64));
        let summary = summarise(&path).expect("the file");
        let with_site = events.iter().filter(|(event, _)| event.site != SiteId::UNKNOWN).count() as u64;
        assert_eq!(summary.stacks.expect("call stacks").values().sum::<u64>(), with_site);
    }
}

#[test]
fn tools_keep_call_sites() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, other] = ["t.hkm", "other.hkm"].map(|name| folder.path().join(name));
    let (events, sites) = recording(&path, 3);
    let stacks = expected(&events, &sites);
    cut(&path, &other, Cut { events: 70_000, ..Cut::NOTHING }).expect("a part");
    assert!(read_stacks(&other) == stacks[..70_000]);
    repair(&path, &other).expect("a copy");
    assert!(read_stacks(&other) == stacks);
    // A recording has the addresses of itself.
    assert_eq!(relocate(&path, &path, &other).expect("a copy"), None);
    assert!(read_stacks(&other) == stacks);
}

#[test]
fn anonymised_call_sites_have_addresses_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, public] = ["t.hkm", "public.hkm"].map(|name| folder.path().join(name));
    let (events, sites) = recording(&path, 4);
    anonymise(&path, &public).expect("a copy");
    for (found, whole) in read_stacks(&public).into_iter().zip(expected(&events, &sites)) {
        let (Some((found, end)), Some((whole, whole_end))) = (found, whole) else { continue };
        assert_eq!((end, found.len()), (whole_end, whole.len()));
        for ((frame, module), (whole_frame, whole_module)) in found.iter().zip(&whole) {
            assert_eq!((frame.address, module.is_some()), (whole_frame.address, whole_module.is_some()));
            assert_eq!((&frame.function, &frame.source), (&None, &None));
            let is_nameless = |module: &_| {
                let hksim_memory_trace::Module { path, build_id } = module;
                path.starts_with("module-") && build_id.is_none()
            };
            assert!(module.as_ref().is_none_or(is_nameless), "{module:?}");
        }
    }
    let bytes = std::fs::read(&public).expect("the copy");
    assert!(!bytes.windows(7).any(|part| part == b"/usr/li"));
}

#[test]
fn recordings_without_call_stacks_are_of_version_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plain, with_sites] = ["plain.hkm", "sites.hkm"].map(|name| folder.path().join(name));
    let mut events = random_events(5, 1_000);
    write(&plain, &events);
    let bytes = std::fs::read(&plain).expect("the file");
    assert_eq!(bytes[8..12], [1, 0, 0, 0]);
    // A writer without call stacks leaves call sites out.
    let sites = random_sites(5, 10);
    add_sites(5, &mut events, &sites);
    let mut writer = Writer::create(&with_sites, &Header::example(&["app", "--flag"])).expect("a file");
    for (event, name) in &events {
        let mut event = event.clone();
        if let (Some(map), Some(name)) = (event.op.mapping_mut(), name) {
            map.name = Some(writer.name(name));
        }
        event.site = writer.site_of(&sites, event.site);
        writer.push(event).expect("an event");
    }
    writer.finish(&footer()).expect("the end");
    assert!(std::fs::read(&with_sites).expect("the file") == bytes);
    write_with_sites(&with_sites, &events, &sites);
    assert_eq!(std::fs::read(&with_sites).expect("the file")[8..12], [2, 0, 0, 0]);
}
