//! A policy in words, as the environment gives it: `superslab=1M huge=never`.
//!
//! Words are those of the command line's policy flags, apart by spaces or commas, later ones counting before earlier ones.
//! Reading them allocates nothing: it happens inside the first `malloc` of a program.

use std::ffi::CStr;

use hksim_policy::HUGE_PAGE_BYTES;
use hksim_policy::classes::Scheme;
use hksim_policy::geometry::{RunGeometry, Shape, ShapeError};
use hksim_policy::options::{
    Carve, Checks, Fallback, Header, Huge, MetaPlace, Options, Prefault, PrefaultScope, Purge,
};

/// The environment variable that holds a policy.
pub const POLICY_VARIABLE: &CStr = c"HKSIM_NATIVE_POLICY";

/// Bytes every block of more than 8 must be aligned to.
const BLOCK_ALIGN: u32 = 16;
/// Smallest and largest arena, in bytes.
const ARENA_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=16 << 40;

/// A policy, ready to run in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What its geometry is made from.
    pub shape: Shape,
    /// What the slow paths look at.
    pub options: Options,
    /// Address space of the arena; a program that is limited gets less.
    pub arena_bytes: u64,
    /// What follows when the program errs.
    pub on_misuse: OnMisuse,
}

/// What follows when a program frees what is no live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnMisuse {
    /// One line on standard error, and the end.
    #[default]
    Abort,
    /// The same, and every free is checked closely.
    Check,
    /// Every free is checked closely; such calls are counted, and nothing else comes of them.
    Count,
}

/// Why a policy is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The words it is about; empty where all together cannot be.
    pub words: &'a str,
    /// The reason, with the mend.
    pub why: &'static str,
}

impl std::fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.words {
            "" => f.write_str(self.why),
            words => write!(f, "{words}: {}", self.why),
        }
    }
}

impl std::error::Error for Refusal<'_> {}

/// The words of a value.
type Words<T> = &'static [(&'static str, T)];

const SCHEMES: Words<Scheme> = &[("default", Scheme::Default), ("hakmem", Scheme::Hakmem), ("linear", Scheme::Linear)];
const HEADERS: Words<Header> =
    &[("none", Header::None), ("full", Header::Full), ("light", Header::Light), ("off", Header::Off)];
const PLAIN: Huge = Huge::Hugetlb(Fallback::Plain);
const HUGE: Words<Huge> = &[
    ("never", Huge::Never),
    ("thp", Huge::Thp),
    ("thp-always", Huge::Always),
    ("collapse", Huge::Collapse),
    ("mthp-16K", Huge::Thp),
    ("mthp-32K", Huge::Thp),
    ("mthp-64K", Huge::Thp),
    ("mthp-128K", Huge::Thp),
    ("mthp-256K", Huge::Thp),
    ("mthp-512K", Huge::Thp),
    ("mthp-1M", Huge::Thp),
    ("hugetlb", Huge::Hugetlb(Fallback::Thp)),
    ("hugetlb-plain", PLAIN),
];
const PREFAULTS: Words<Prefault> = &[
    ("off", Prefault::Off),
    ("populate", Prefault::Populate),
    ("populate-write", Prefault::PopulateWrite),
    ("populate-read", Prefault::PopulateRead),
    ("touch", Prefault::Touch),
    ("memset", Prefault::Memset),
];
const SCOPES: Words<PrefaultScope> =
    &[("superslab", PrefaultScope::SuperSlab), ("slab", PrefaultScope::Slab), ("init", PrefaultScope::Init)];
const PURGES: Words<Purge> =
    &[("none", Purge::None), ("dontneed", Purge::DontNeed), ("free", Purge::Free), ("unmap", Purge::Unmap)];
const METAS: Words<MetaPlace> = &[("inband", MetaPlace::InBand), ("sidecar", MetaPlace::Sidecar)];
const CARVES: Words<Carve> = &[("page", Carve::Page), ("bump", Carve::Bump), ("eager", Carve::Eager)];
const YES_NO: Words<bool> = &[("no", false), ("yes", true)];

const MISUSES: Words<OnMisuse> = &[("abort", OnMisuse::Abort), ("check", OnMisuse::Check), ("count", OnMisuse::Count)];

const NO_VALUE: &str = "no such value of this flag; docs/policy-flags.md has its values";

impl Default for Setup {
    /// `preset default`.
    fn default() -> Setup {
        Setup {
            shape: Shape {
                superslab_bytes: 2 << 20,
                slab_bytes: 64 << 10,
                scheme: Scheme::Default,
                header: Header::None,
                header_bytes: 1,
                carve: Carve::Page,
                meta_place: MetaPlace::InBand,
            },
            options: Options::default(),
            arena_bytes: 64 << 30,
            on_misuse: OnMisuse::Abort,
        }
    }
}

impl Setup {
    /// Reads a policy.
    ///
    /// # Errors
    /// A word that is no flag or no value, and what no program can run on.
    pub fn read(text: &str) -> Result<Setup, Refusal<'_>> {
        let mut setup = Setup::default();
        for word in text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty()) {
            let word = word.strip_prefix("--").unwrap_or(word);
            let refuse = |why| Refusal { words: word, why };
            let (flag, value) = word.split_once('=').ok_or(refuse("write FLAG=VALUE, as in superslab=1M"))?;
            setup.set(flag, value).map_err(refuse)?;
        }
        setup.check().map_err(|why| Refusal { words: "", why })?;
        Ok(setup)
    }

    fn hakmem() -> Setup {
        let Setup { shape, options, .. } = Setup::default();
        Setup {
            shape: Shape { scheme: Scheme::Hakmem, header: Header::Full, carve: Carve::Eager, ..shape },
            options: Options {
                huge: PLAIN,
                cache_superslabs: 8,
                purge_delay_ns: 0,
                purge_spans: true,
                warm_slabs: 2,
                startup_touch_bytes: 30 << 20,
                ..options
            },
            ..Setup::default()
        }
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), &'static str> {
        let Setup { shape, options, .. } = self;
        match flag {
            "preset" => {
                *self = match value {
                    "default" => Setup::default(),
                    "hakmem" => Setup::hakmem(),
                    _ => return Err("no such preset; there are default and hakmem"),
                }
            }
            "superslab" => shape.superslab_bytes = size(value)?,
            "slab" => shape.slab_bytes = size(value)?,
            "classes" => shape.scheme = one_of(SCHEMES, value)?,
            "header" => shape.header = one_of(HEADERS, value)?,
            "header-bytes" => shape.header_bytes = count(value)?,
            "carve" => shape.carve = one_of(CARVES, value)?,
            "meta" => shape.meta_place = one_of(METAS, value)?,
            "huge" => {
                options.huge = one_of(HUGE, value)?;
                options.huge_page_bytes = value.strip_prefix("mthp-").map_or(Ok(HUGE_PAGE_BYTES), size)?;
            }
            "prefault" => options.prefault = one_of(PREFAULTS, value)?,
            "prefault-scope" => options.prefault_scope = one_of(SCOPES, value)?,
            "prewarm" => options.prewarm_superslabs = count(value)?,
            "cache" => options.cache_superslabs = count(value)?,
            "huge-heaps" => options.huge_heaps = count(value)?,
            "warm-slabs" => options.warm_slabs = count(value)?,
            "purge" => options.purge = one_of(PURGES, value)?,
            "purge-delay" => options.purge_delay_ns = time(value)?,
            "purge-spans" => options.purge_spans = one_of(YES_NO, value)?,
            "startup-touch" => options.startup_touch_bytes = size(value)?,
            "huge-cache" => options.huge_cache_bytes = size(value)?,
            "arena" => self.arena_bytes = size(value)?,
            "misuse" => {
                self.on_misuse = one_of(MISUSES, value)?;
                options.checks = match self.on_misuse {
                    OnMisuse::Abort => Checks::Quick,
                    OnMisuse::Check | OnMisuse::Count => Checks::Full,
                };
            }
            "align" if value == "arena" => {}
            "align" => {
                return Err(
                    "in a program SuperSlabs lie in one arena, where every pointer that is freed can be told from others; use align=arena, or replay it",
                );
            }
            "touch" => return Err("is about a replayed program; a real one touches what it touches: leave it out"),
            "kernel" | "thp" | "mthp" | "hugetlb-pool" => {
                return Err("is about a simulated kernel; this runs on the one that is there: leave it out");
            }
            _ => return Err("no such policy flag; docs/policy-flags.md has them"),
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), &'static str> {
        let Setup { shape, options, arena_bytes, .. } = self;
        if !matches!(shape.header_bytes, 1 | 16) {
            return Err("a header has 1 or 16 bytes");
        }
        if shape.header != Header::None && shape.header_bytes % BLOCK_ALIGN != 0 {
            return Err("a header of 1 byte leaves blocks aligned to 1 byte, and programs crash on that (SSE moves); \
                        simulate and replay it, or run it with header-bytes=16 or header=none");
        }
        if !ARENA_BYTES.contains(arena_bytes) {
            return Err("an arena has 64M to 16T");
        }
        let warm = u64::from(options.prewarm_superslabs).saturating_mul(shape.superslab_bytes);
        if warm.saturating_add(options.startup_touch_bytes) > *arena_bytes / 4 {
            return Err("prewarming and start-up touch fill more than a quarter of the arena");
        }
        RunGeometry::new(*shape).map_err(|why| match why {
            ShapeError::NotPowerOfTwo => "superslab and slab sizes must be powers of two",
            ShapeError::SuperSlab => "a superslab has 64K to 32M",
            ShapeError::Slab => "a slab has 16K to one superslab, and a superslab at most 512 slabs",
        })?;
        // HAKMEM asks for huge pages only where a SuperSlab is exactly one of them.
        if options.huge == PLAIN && shape.superslab_bytes != HUGE_PAGE_BYTES {
            options.huge = Huge::Never;
        }
        Ok(())
    }
}

fn one_of<T: Copy>(words: Words<T>, value: &str) -> Result<T, &'static str> {
    words.iter().find(|(word, _)| *word == value).map(|(_, value)| *value).ok_or(NO_VALUE)
}

/// A number with one of the units behind it, each with what it stands for.
fn number(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = value.split_at(digits);
    let (_, scale) = units.iter().find(|(known, _)| *known == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*scale)
}

fn size(value: &str) -> Result<u64, &'static str> {
    number(value, &[("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)])
        .ok_or("no size; write bytes, or K, M, G or T behind a number: 64K, 2M")
}

fn count(value: &str) -> Result<u32, &'static str> {
    let count = number(value, &[("", 1), ("k", 1_000), ("M", 1_000_000)]);
    count.and_then(|count| u32::try_from(count).ok()).ok_or("no count; write a number, or k or M behind one: 8, 10k")
}

fn time(value: &str) -> Result<u64, &'static str> {
    match value {
        "0" => Ok(0),
        _ => number(value, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)])
            .ok_or("no time; write a number with its unit, ns, us, ms or s: 100ms"),
    }
}
