//! The table of the policy's flags. The command line, the native allocator's environment variable and the reference
//! page are generated from it.

use core::fmt::{self, Write};

use crate::limits::HUGE_PAGE_BYTES;
use crate::policy::units::{Size, Time, parse_count_32, parse_size, parse_time};
use crate::policy::vocabulary::{
    Align, Carve, ClassListError, FreeOrder, Header, Huge, MetaPlace, Prefault, PrefaultScope, Purge, PurgeCurve,
    SizeClasses, SlabChoice,
};
use crate::policy::{Policy, is_mthp_size};

/// The values that a flag accepts.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these words, or a value of the form that the text describes.
    WordsOr(&'static [&'static str], &'static str),
    /// Bytes; the text names the range.
    Size(&'static str),
    /// A count; the text names what is counted.
    Count(&'static str),
    /// A time; the text names the units and the clock.
    Time(&'static str),
}

/// A field of [`Policy`] as users see it.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// The name of the field, as results have it. `--huge mthp-SIZE` also sets `huge_page_bytes`.
    pub field: &'static str,
    /// The values that it accepts.
    pub values: Values,
    /// What it does: one line in the imperative.
    pub help: &'static str,
    set: fn(&mut Policy, &str) -> Result<(), ValueError>,
    write: fn(&Policy, &mut dyn Write) -> fmt::Result,
}

/// Why a value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// Not one of these words.
    Word(&'static [&'static str]),
    /// Not a size.
    Size,
    /// Not a count.
    Count,
    /// A count above 2^32 - 1.
    CountTooLarge,
    /// Not a time.
    Time,
    /// Not a list of block sizes.
    ClassList(ClassListError),
    /// `mthp-` with a size that the kernel does not support.
    HugePageSize,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Word(words) => {
                f.write_str("expected one of ")?;
                words.iter().enumerate().try_for_each(|(index, word)| {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    f.write_str(word)
                })
            }
            ValueError::Size => f.write_str("expected a size: bytes, or a number with K, M, G or T (64K, 2M)"),
            ValueError::Count => f.write_str("expected a count: a number, optionally with k, M or G (8, 100k)"),
            ValueError::CountTooLarge => write!(f, "expected at most {}", u32::MAX),
            ValueError::ClassList(why) => why.fmt(f),
            ValueError::Time => f.write_str("expected a time: a number with its unit, ns, us, ms or s (100ms)"),
            ValueError::HugePageSize => {
                f.write_str("expected a size of multi-size THPs: mthp-16K, doubling up to mthp-1M; thp is 2M")
            }
        }
    }
}

impl core::error::Error for ValueError {}

impl Flag {
    /// The flag of that name.
    pub fn find(name: &str) -> Option<&'static Flag> {
        FLAGS.iter().find(|flag| flag.name == name)
    }

    /// Sets the flag's value in a policy. [`Policy::prepare`] detects values that exclude each other.
    ///
    /// # Errors
    /// The word is not a value of the flag.
    pub fn set(&self, policy: &mut Policy, word: &str) -> Result<(), ValueError> {
        (self.set)(policy, word)
    }

    /// The flag's value in a policy, in the form that [`Flag::set`] reads.
    pub fn show<'a>(&'a self, policy: &'a Policy) -> impl fmt::Display + 'a {
        Shown { flag: self, policy }
    }
}

struct Shown<'a> {
    flag: &'a Flag,
    policy: &'a Policy,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.flag.write)(self.policy, f)
    }
}

/// A flag whose values are words.
macro_rules! word_flag {
    ($name:literal, $type:ident, $field:ident, $help:literal) => {
        Flag {
            name: $name,
            field: stringify!($field),
            values: Values::Words($type::WORDS),
            help: $help,
            set: |policy, word| {
                policy.$field = $type::from_word(word).ok_or(ValueError::Word($type::WORDS))?;
                Ok(())
            },
            write: |policy, out| out.write_str(policy.$field.word()),
        }
    };
}

/// A flag whose value is a number.
macro_rules! number_flag {
    ($name:literal, $kind:ident($range:literal), $parse:ident, $show:expr, $field:ident, $help:literal) => {
        Flag {
            name: $name,
            field: stringify!($field),
            values: Values::$kind($range),
            help: $help,
            set: |policy, word| {
                policy.$field = $parse(word)?;
                Ok(())
            },
            write: |policy, out| write!(out, "{}", $show(policy.$field)),
        }
    };
}

/// A flag whose value is a size.
macro_rules! size_flag {
    ($name:literal, $range:literal, $field:ident, $help:literal) => {
        number_flag!($name, Size($range), parse_size, Size, $field, $help)
    };
}

/// A flag whose value is a count.
macro_rules! count_flag {
    ($name:literal, $what:literal, $field:ident, $help:literal) => {
        number_flag!($name, Count($what), parse_count_32, core::convert::identity, $field, $help)
    };
}

/// Every flag of a policy, in the order of the help text.
pub const FLAGS: &[Flag] = &[
    size_flag!("superslab", "64K to 32M", superslab_bytes, "Set the size and alignment of SuperSlabs"),
    size_flag!(
        "slab",
        "16K to the SuperSlab",
        slab_bytes,
        "Set the size of a slice; a slab (blocks of one size class) spans as few slices as keep its waste below 12.5 %"
    ),
    Flag {
        name: "classes",
        field: "classes",
        values: Values::WordsOr(SizeClasses::WORDS, "block sizes, multiples of 8 up to 65536, as in 8/16/32/48/64"),
        help: "Select the size classes: a scheme; spacing-N: N per doubling; or block sizes, and the default's above the last",
        set: |policy, word| {
            policy.classes = SizeClasses::parse(word)?;
            Ok(())
        },
        write: |policy, out| write!(out, "{}", policy.classes),
    },
    word_flag!(
        "header",
        Header,
        header,
        "Write block headers: none: no headers; full: at every allocation; light: if different; off: only if corrupt"
    ),
    count_flag!("header-bytes", "1 or 16", header_bytes, "Set the size of a block header"),
    Flag {
        name: "huge",
        field: "huge",
        values: Values::Words(HUGE_WORDS),
        help: "Request huge pages: never: no request, but a kernel in mode always gives them unasked; thp: \
               MADV_HUGEPAGE; mthp-SIZE: like thp, with SIZE as the kernel's largest size; system: no advice, the \
               kernel's mode decides; collapse: MADV_COLLAPSE a SuperSlab when its last slab is taken; hugetlb: MAP_HUGETLB, else thp; hugetlb-plain: MAP_HUGETLB, else 4K pages",
        set: set_huge,
        write: |policy, out| match policy.mthp_order() {
            Some(_) => write!(out, "{MTHP}{}", Size(policy.huge_page_bytes)),
            None => out.write_str(policy.huge.word()),
        },
    },
    word_flag!("prefault", Prefault, prefault, "Make memory present before its first use"),
    word_flag!(
        "prefault-scope",
        PrefaultScope,
        prefault_scope,
        "Prefault each SuperSlab, each slab, or (init) only the SuperSlabs prewarmed at start"
    ),
    count_flag!("prewarm", "SuperSlabs", prewarm_superslabs, "Reserve this many SuperSlabs at start"),
    count_flag!("cache", "SuperSlabs", cache_superslabs, "Keep up to this many empty SuperSlabs for reuse"),
    count_flag!(
        "huge-heaps",
        "heaps",
        huge_heaps,
        "Give this many heaps huge pages from their first SuperSlab on; further heaps get them from their second"
    ),
    count_flag!(
        "huge-fill",
        "percent; 0 to 100",
        huge_fill_percent,
        "Give a SuperSlab huge pages only if blocks of the size that it is taken for can fill at least this share of it"
    ),
    count_flag!("warm-slabs", "slabs", warm_slabs, "Keep this many empty slabs per size class besides the active one"),
    word_flag!("purge", Purge, purge, "Select how unused memory is returned to the kernel"),
    number_flag!(
        "purge-delay",
        Time("ns, us, ms or s of the event clock"),
        parse_time,
        Time,
        purge_delay_ns,
        "Purge memory that was unused for this long"
    ),
    word_flag!(
        "purge-curve",
        PurgeCurve,
        purge_curve,
        "Purge each piece of memory after the delay (step), or the oldest along a curve over the delay (smoothstep)"
    ),
    Flag {
        name: "purge-spans",
        field: "purge_spans",
        values: Values::Words(YES_NO),
        help: "Purge single empty slabs even where huge pages are requested",
        set: |policy, word| {
            let index = YES_NO.iter().position(|known| *known == word);
            policy.purge_spans = index.ok_or(ValueError::Word(YES_NO))? == 1;
            Ok(())
        },
        write: |policy, out| out.write_str(YES_NO[usize::from(policy.purge_spans)]),
    },
    word_flag!(
        "align",
        Align,
        align,
        "Map SuperSlabs: arena: in one reservation, at multiples of their size; trim: one mapping each, oversized and trimmed; \
         kernel: one mapping each, aligned by the kernel, else trimmed"
    ),
    size_flag!("arena", "64M to 16T", arena_bytes, "Set the address space reserved for the arena"),
    word_flag!(
        "meta",
        MetaPlace,
        meta,
        "Store metadata in the SuperSlab (inband) or in a separate dense mapping (sidecar)"
    ),
    word_flag!(
        "carve",
        Carve,
        carve,
        "Take fresh blocks from a slab: page: up to the end of a page; bump: one at a time; eager: all at once"
    ),
    word_flag!(
        "free-order",
        FreeOrder,
        free_order,
        "Reuse the free blocks of a slab: lifo: last freed first; fifo: first freed first; address: lowest address first"
    ),
    word_flag!(
        "slab-choice",
        SlabChoice,
        slab_choice,
        "Refill from the partial slab that is oldest or newest as such, fullest, or lowest in address"
    ),
    count_flag!(
        "front-cache",
        "blocks; at most 255",
        front_cache,
        "Keep up to this many freed blocks per thread and size class, of any heap, and reuse the last freed first"
    ),
    size_flag!(
        "startup-touch",
        "up to a quarter of the arena",
        startup_touch_bytes,
        "Touch this many bytes once at start"
    ),
    size_flag!(
        "huge-cache",
        "0 for none",
        huge_cache_bytes,
        "Keep up to this many bytes of freed blocks above half a SuperSlab for reuse"
    ),
];

const YES_NO: &[&str] = &["no", "yes"];

/// Prefix of the size of multi-size THPs.
const MTHP: &str = "mthp-";

/// The words of `--huge`: those of [`Huge`], and the sizes of multi-size THPs.
const HUGE_WORDS: &[&str] = &[
    Huge::Never.word(),
    Huge::Thp.word(),
    "mthp-16K",
    "mthp-32K",
    "mthp-64K",
    "mthp-128K",
    "mthp-256K",
    "mthp-512K",
    "mthp-1M",
    Huge::System.word(),
    Huge::Collapse.word(),
    Huge::Hugetlb.word(),
    Huge::HugetlbPlain.word(),
];

fn set_huge(policy: &mut Policy, word: &str) -> Result<(), ValueError> {
    (policy.huge, policy.huge_page_bytes) = match word.strip_prefix(MTHP) {
        Some(size) => {
            let bytes = parse_size(size).ok().filter(|&bytes| is_mthp_size(bytes));
            (Huge::Thp, bytes.ok_or(ValueError::HugePageSize)?)
        }
        None => (Huge::from_word(word).ok_or(ValueError::Word(HUGE_WORDS))?, HUGE_PAGE_BYTES),
    };
    Ok(())
}
