//! Exhaustive tests of classes and spans: every size under every scheme, every valid policy.

use hksim_policy::classes::{Classes, STRIDE_MAX};
use hksim_policy::geometry::{
    ConstGeometry, Geometry, GeometryError, RunGeometry, SLICE_BYTES_MIN, SUPERSLAB_BYTES, is_same,
};
use hksim_policy::layout::{Layout, block_slices, reserved_bytes, slab_slices};
use hksim_policy::vocabulary::{Carve, ClassList, Header, MetaPlace, PerDoubling, SizeClasses};
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES, Policy};
use hksim_testkit::spread::{META_PLACES, SCHEMES};

/// The strides of a scheme according to its documentation, independent of the code.
fn documented_strides(scheme: SizeClasses) -> Vec<u32> {
    let mut strides = match scheme {
        SizeClasses::Default => {
            vec![8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
        }
        SizeClasses::Hakmem => vec![8, 16, 32, 64, 128, 256, 512, 1024],
        SizeClasses::Linear => std::iter::once(8).chain((16..=1024).step_by(16)).collect(),
        SizeClasses::Spacing(per_doubling) => return evenly_spaced(f64::from(per_doubling.get())),
        SizeClasses::List(list) => {
            let mut strides: Vec<u32> = list.strides().collect();
            let last = strides[strides.len() - 1];
            strides.extend(documented_strides(SizeClasses::Default).into_iter().filter(|&stride| stride > last));
            return strides;
        }
    };
    for kib in [1u32, 2, 4, 8, 16, 32] {
        strides.extend([5, 6, 7, 8].map(|quarters| kib * 1024 / 4 * quarters));
    }
    strides
}

/// 8; 16; then the classes in each doubling, rounded up to multiples of 16.
fn evenly_spaced(per_doubling: f64) -> Vec<u32> {
    let doublings = (4..16).map(|log2| f64::from(1 << log2));
    let spaced = doublings.flat_map(|from| {
        let parts = (1..=per_doubling as u32).map(move |part| from + from * f64::from(part) / per_doubling);
        parts.map(|bytes| (bytes / 16.0).ceil() as u32 * 16)
    });
    let mut strides: Vec<u32> = [8, 16].into_iter().chain(spaced).collect();
    strides.dedup();
    strides
}

/// Every scheme, every rule, and lists: of the other schemes, with sizes that are no multiples of 16, and beyond 1 KiB.
fn schemes() -> Vec<SizeClasses> {
    let list = |strides: &[u32]| SizeClasses::List(ClassList::new(strides).unwrap());
    let mut schemes = SCHEMES.to_vec();
    schemes.extend((1..=8).map(|classes| SizeClasses::Spacing(PerDoubling::new(classes).unwrap())));
    schemes.extend([list(&[8]), list(&[16, 48]), list(&[8, 16, 24, 40, 1000]), list(&[24, 1008, 1040, 5000, 40_000])]);
    schemes.push(list(&documented_strides(SizeClasses::Linear)));
    schemes
}

#[test]
fn a_list_of_a_schemes_sizes_is_that_scheme() {
    let strides = |classes: SizeClasses| {
        let classes = Classes::new(classes);
        (0..classes.count()).map(|class| classes.stride(class)).collect::<Vec<u32>>()
    };
    for (word, scheme) in [("8/16/32/64/128/256/512/1024", "hakmem"), ("8", "default"), ("8/16/32/48/64", "default")] {
        assert_eq!(strides(SizeClasses::parse(word).unwrap()), strides(SizeClasses::parse(scheme).unwrap()), "{word}");
    }
}

#[test]
fn classes_match_the_documentation() {
    for scheme in schemes() {
        let classes = Classes::new(scheme);
        let strides: Vec<u32> = (0..classes.count()).map(|class| classes.stride(class)).collect();
        assert_eq!(strides, documented_strides(scheme), "{scheme:?}");
        assert!(strides.is_sorted_by(|one, next| one < next), "{scheme:?}");
        let is_aligned = strides.iter().filter(|&&stride| stride > 8).all(|stride| stride.is_multiple_of(16));
        assert_eq!(classes.block_align(), if is_aligned { 16 } else { 8 }, "{scheme:?}");
        assert!(is_aligned || matches!(scheme, SizeClasses::List(_)), "{scheme:?}");
        assert_eq!(strides.last(), Some(&STRIDE_MAX));
    }
}

#[test]
fn every_size_gets_the_smallest_class_that_holds_it() {
    for scheme in schemes() {
        let classes = Classes::new(scheme);
        let strides = documented_strides(scheme);
        for bytes in 0..=STRIDE_MAX {
            let smallest = strides.iter().position(|&stride| stride >= bytes);
            assert_eq!(Some(classes.class_of(bytes)), smallest, "{bytes} bytes under {scheme:?}");
        }
    }
}

/// Slices of a slab according to the documentation, computed from the number of blocks.
fn documented_span_slices(stride: u32, slab_bytes: u64, reserved: u64) -> u64 {
    let wastes_little = |slices: u64| {
        let blocks = slices * slab_bytes / u64::from(stride);
        blocks * u64::from(stride) * 8 >= slices * slab_bytes * 7
    };
    (least_span_slices(stride, slab_bytes, reserved)..)
        .find(|&slices| wastes_little(slices))
        .expect("some number of slices wastes little")
}

/// The fewest slices that hold one block, even directly after the metadata.
fn least_span_slices(stride: u32, slab_bytes: u64, reserved: u64) -> u64 {
    let end = |slices: u64| (reserved / slab_bytes + slices) * slab_bytes;
    (1..).find(|&slices| end(slices) >= reserved + u64::from(stride)).expect("some number of slices is enough")
}

fn policies() -> impl Iterator<Item = Policy> {
    let powers = || (10..=30).map(|shift| 1u64 << shift);
    powers().flat_map(move |superslab_bytes| {
        powers().flat_map(move |slab_bytes| {
            META_PLACES.into_iter().flat_map(move |meta| {
                schemes().into_iter().map(move |classes| Policy {
                    superslab_bytes,
                    slab_bytes,
                    classes,
                    meta,
                    ..Policy::default()
                })
            })
        })
    })
}

#[test]
fn geometries_are_valid_only_within_the_documented_bounds() {
    for policy in policies() {
        let legal = SUPERSLAB_BYTES.contains(&policy.superslab_bytes)
            && (SLICE_BYTES_MIN..=policy.superslab_bytes).contains(&policy.slab_bytes)
            && policy.superslab_bytes / policy.slab_bytes <= 512;
        assert_eq!(RunGeometry::new(&policy).is_ok(), legal, "{policy:?}");
        let odd = Policy { slab_bytes: policy.slab_bytes + 1, ..policy };
        assert_eq!(RunGeometry::new(&odd).err(), Some(GeometryError::NotPowerOfTwo), "{odd:?}");
    }
}

#[test]
fn every_position_of_a_slab_holds_a_block_of_its_class() {
    let mut spans = 0;
    for (policy, geometry) in policies().filter_map(|policy| Some((policy, RunGeometry::new(&policy).ok()?))) {
        let reserved = u64::from(reserved_bytes(&geometry));
        let first_slice = reserved / policy.slab_bytes;
        let slices = policy.superslab_bytes / policy.slab_bytes;
        assert!(first_slice < slices, "metadata fills all of {policy:?}");
        let strides = documented_strides(policy.classes);
        let limit = policy.slab_bytes.min(policy.superslab_bytes / 8).min(u64::from(STRIDE_MAX));
        let largest = strides.iter().copied().rfind(|&stride| u64::from(stride) <= limit);
        assert_eq!(Some(geometry.stride_max()), largest, "{policy:?}");
        for stride in strides.into_iter().filter(|&stride| stride <= geometry.stride_max()) {
            let span_slices = documented_span_slices(stride, policy.slab_bytes, reserved);
            assert_eq!(u64::from(slab_slices(&geometry, stride)), span_slices, "{stride} of {policy:?}");
            let slices_max = if SCHEMES.contains(&policy.classes) { 3 } else { 7 };
            assert!(
                span_slices <= slices_max && first_slice + span_slices <= slices,
                "{span_slices} for {stride} of {policy:?}"
            );
            let least = u64::from(block_slices(&geometry, stride));
            assert_eq!(least, least_span_slices(stride, policy.slab_bytes, reserved), "{stride} of {policy:?}");
            for slice in first_slice..=slices - least {
                let area = (slice * policy.slab_bytes).max(reserved);
                let capacity = ((slice + least) * policy.slab_bytes - area) / u64::from(stride);
                assert!(capacity >= 1, "no block of {stride} bytes fits at slice {slice} of {policy:?}");
                spans += 1;
            }
        }
    }
    assert!(spans > 100_000, "only {spans} spans");
}

#[test]
fn the_parts_of_a_layout_are_aligned_and_in_order() {
    for (policy, geometry) in policies().filter_map(|policy| Some((policy, RunGeometry::new(&policy).ok()?))) {
        for arena_bytes in [1, 64 << 20, (64 << 20) + 1, 64 << 30] {
            let layout = Layout::new(&geometry, arena_bytes);
            assert!(layout.arena_bytes >= arena_bytes && layout.arena.is_multiple_of(layout.base_align), "{policy:?}");
            assert!(layout.base_align.is_multiple_of(policy.superslab_bytes.max(HUGE_PAGE_BYTES)), "{policy:?}");
            assert_eq!(u64::from(layout.ordinals()) * policy.superslab_bytes, layout.arena_bytes, "{policy:?}");
            let last = layout.ordinals() - 1;
            assert_eq!(layout.superslab_of(last) + policy.superslab_bytes, layout.bytes(), "{policy:?}");
            let heaps_end = layout.heap_of(hksim_policy::layout::HEAPS_MAX);
            assert!(PAGE_BYTES <= layout.heaps && heaps_end <= layout.table, "{policy:?}");
            let table_end = layout.entry_of(last) + hksim_policy::meta::ENTRY_BYTES;
            assert!(table_end <= layout.sidecar && layout.sidecar <= layout.arena, "{policy:?}");
            let meta_end = layout.meta_of(last) + u64::from(layout.meta_bytes);
            match policy.meta {
                MetaPlace::InBand => assert_eq!(layout.meta_of(last), layout.superslab_of(last), "{policy:?}"),
                MetaPlace::Sidecar => assert!(meta_end <= layout.arena, "{policy:?}"),
            }
        }
    }
}

#[test]
fn the_constant_geometry_equals_only_that_of_the_default_policy() {
    let is_constant = |policy: Policy| is_same(&RunGeometry::new(&policy).unwrap(), &ConstGeometry::<21, 16>);
    assert!(is_constant(Policy::default()));
    // Without headers, the header size has no effect.
    assert!(is_constant(Policy { header_bytes: 16, ..Policy::default() }));
    let others = [
        Policy { superslab_bytes: 1 << 20, ..Policy::default() },
        Policy { slab_bytes: 128 << 10, ..Policy::default() },
        Policy { classes: SizeClasses::Linear, ..Policy::default() },
        Policy { header: Header::Full, ..Policy::default() },
        Policy { carve: Carve::Bump, ..Policy::default() },
        Policy { meta: MetaPlace::Sidecar, ..Policy::default() },
    ];
    assert!(others.into_iter().all(|policy| !is_constant(policy)));
}
