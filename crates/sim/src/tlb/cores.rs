//! The cores known by name. Figures are for loads; a separate store TLB is not modelled.

use super::geometry::{Array, Geometry, Level};

const fn array(entries: u32, ways: u32) -> Array {
    match Array::new(entries, ways) {
        Ok(array) => array,
        Err(_) => panic!("the number of sets must be a power of two"),
    }
}

const fn shared(entries: u32, ways: u32) -> Level {
    Level::Shared(array(entries, ways))
}

/// One fully associative array for both page sizes.
const fn full(entries: u32) -> Level {
    shared(entries, entries)
}

const fn split(base: Array, huge: Array) -> Level {
    Level::Split { base, huge }
}

pub(super) const CORES: &[Geometry] = &[
    Geometry {
        name: "skylake-sp",
        l1: split(array(64, 4), array(32, 4)),
        l2: shared(1536, 12),
        source: "WikiChip; the 6 ways that CPUID reports are erratum SKL148",
        unverified: "",
    },
    Geometry {
        name: "ice-lake",
        l1: split(array(64, 4), array(32, 4)),
        l2: shared(2048, 16),
        source: "no source checked",
        unverified: "all of it",
    },
    Geometry {
        name: "golden-cove",
        l1: split(array(96, 6), array(32, 4)),
        l2: shared(2048, 16),
        source: "jiegec, blog sources; the measured knee of the second level is near 1600 entries",
        unverified: "ways of the second level",
    },
    Geometry {
        name: "zen2",
        l1: full(64),
        l2: shared(2048, 16),
        source: "WikiChip, whose 12 ways do not divide 2048",
        unverified: "ways of the second level",
    },
    Geometry {
        name: "zen3",
        l1: full(64),
        l2: shared(2048, 16),
        source: "AnandTech (walkers only)",
        unverified: "entries and ways of both levels",
    },
    Geometry {
        name: "zen4",
        l1: full(72),
        l2: shared(3072, 24),
        source: "notes on Chips and Cheese",
        unverified: "ways of the second level",
    },
    Geometry {
        name: "zen5",
        l1: full(96),
        l2: shared(4096, 16),
        source: "AMD 58455 by way of jiegec; first level by CPUID and by a measured knee",
        unverified: "",
    },
    Geometry {
        name: "neoverse-n1",
        l1: full(48),
        l2: shared(1280, 5),
        source: "SagePTE artifact; the second level also holds instruction entries",
        unverified: "",
    },
    Geometry {
        name: "neoverse-n2",
        l1: full(44),
        l2: shared(1280, 5),
        source: "notes; the second level also holds instruction entries",
        unverified: "",
    },
    Geometry {
        name: "neoverse-v1",
        l1: full(40),
        l2: shared(2048, 8),
        source: "no source checked",
        unverified: "all of it",
    },
    Geometry {
        name: "neoverse-v2",
        l1: full(48),
        l2: shared(2048, 8),
        source: "Arm's manual by way of jiegec; the second level also holds instruction entries",
        unverified: "",
    },
    Geometry {
        name: "neoverse-v3",
        l1: full(96),
        l2: shared(2048, 8),
        source: "Arm's manual by way of jiegec; the second level also holds instruction entries",
        unverified: "",
    },
];
