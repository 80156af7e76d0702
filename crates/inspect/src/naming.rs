//! The name of the region of each mapping.

use std::ops::Range;

use hksim_linux_probe::smaps::Mapping;

/// Size and alignment of the heaps of glibc's arenas (`HEAP_MAX_SIZE` on 64-bit machines).
const ARENA_BYTES: u64 = 64 << 20;
/// The longest gap without access that counts as the guard of a thread's stack.
const GUARD_BYTES_MAX: u64 = 1 << 20;

const ARENAS: &str = "glibc arenas";
/// Unnamed memory of which nothing more is known.
pub const ANONYMOUS: &str = "anonymous";

/// The name of the region of each mapping. Mappings are in ascending order.
///
/// `heap` (brk), `stack`, `named` ones and files follow from what the kernel says. `thread stacks`, `glibc arenas` and
/// `program data (bss)` are recognised by their shape: a stack by the guard before it and by its advice against huge pages,
/// an arena's heap by its alignment and by the reservation after it, bss by the file's data before it. What [`Runtime`]s have is recognised by their files and by addresses, which
/// is no proof: the name then says "looks like".
pub fn names(mappings: &[Mapping]) -> Vec<String> {
    let runtimes = Runtime::of(mappings);
    let placed = Placed::of(mappings);
    let mut names: Vec<String> = Vec::with_capacity(mappings.len());
    for (index, mapping) in mappings.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &mappings[before]);
        let before = before.filter(|before| before.addresses.end == mapping.addresses.start);
        let follows_arena = before.is_some() && names.last().is_some_and(|name| name == ARENAS);
        let runtime = runtimes.iter().find(|runtime| is_unnamed(mapping) && runtime.holds(mapping, &placed));
        let name = match (runtime, before) {
            // Go's heap and the Java heap can have the shape of an arena.
            (Some(runtime), _) if runtime.chooses_addresses() => runtime.words(),
            _ if begins_arena(mapping, mappings.get(index + 1), &placed) => ARENAS,
            _ if follows_arena && is_unnamed(mapping) && !mapping.addresses.start.is_multiple_of(ARENA_BYTES) => ARENAS,
            (_, Some(guard)) if is_stack(guard, mapping) => "thread stacks",
            (_, Some(file)) if is_bss(file, mapping) && !placed.joins(mapping) => "program data (bss)",
            (Some(runtime), _) => runtime.words(),
            (None, _) => {
                names.push(kernel_name(mapping));
                continue;
            }
        };
        names.push(name.to_string());
    }
    names
}

/// Where the kernel places mappings, unless a program asks for an address.
struct Placed {
    addresses: Range<u64>,
    /// At ascending addresses, so that what is mapped next continues the data of a library.
    is_ascending: bool,
}

impl Placed {
    /// The kernel places from the top of the address space downwards, within this distance.
    const USUAL: Range<u64> = 0x7e00_0000_0000..1 << 47;
    /// Gaps between its places, beside as much as is mapped.
    const GAPS_BYTES: u64 = 1 << 30;
    /// In the old layout it places from a third of the address space upwards.
    const ASCENDING_FROM: u64 = (1 << 47) / 3;
    /// The zeroed data of a library is seldom longer.
    const BSS_BYTES_MAX: u64 = 1 << 20;

    /// A process whose stack has no limit has its mappings below a sixth of the address space; one with the old layout
    /// (`setarch -L`) above a third. The kernel itself placed the dynamic linker and the vDSO, and the rest next to them.
    fn of(mappings: &[Mapping]) -> Self {
        let is_placed = |mapping: &&Mapping| {
            let file = mapping.name.rsplit('/').next().unwrap_or_default();
            mapping.name == "[vdso]" || (mapping.inode != 0 && file.starts_with("ld-"))
        };
        let elsewhere = mappings
            .iter()
            .filter(is_placed)
            .map(|mapping| mapping.addresses.start)
            .find(|start| !Self::USUAL.contains(start));
        match elsewhere {
            None => Self { addresses: Self::USUAL, is_ascending: false },
            Some(start) => {
                let mapped_bytes: u64 = mappings.iter().map(Mapping::bytes).sum();
                let spread_bytes = mapped_bytes.saturating_mul(2).saturating_add(Self::GAPS_BYTES);
                Self {
                    addresses: start.saturating_sub(spread_bytes)..start.saturating_add(spread_bytes),
                    is_ascending: start >= Self::ASCENDING_FROM,
                }
            }
        }
    }

    fn holds(&self, mapping: &Mapping) -> bool {
        self.addresses.contains(&mapping.addresses.start)
    }

    /// Whether a mapping after the data of a library has more than the library's zeroed data.
    fn joins(&self, mapping: &Mapping) -> bool {
        self.is_ascending && self.holds(mapping) && mapping.bytes() > Self::BSS_BYTES_MAX
    }
}

/// What places memory in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runtime {
    Java,
    V8,
    /// Its programs have no file by which they can be known.
    Go,
    Mimalloc,
    /// Has no addresses of its own.
    Jemalloc,
}

/// The Java heap is below this address if references are compressed: heaps of less than 32 GiB.
const COMPRESSED_END: u64 = 32 << 30;
/// Where Go's heap is up to Go 1.25, as far as it is recognised. Later ones choose a random place.
const GO: Range<u64> = 0xc0_0000_0000..0xe0_0000_0000;
/// Addresses for which mimalloc asks.
const MIMALLOC: Range<u64> = 2 << 40..30 << 40;
/// Size and alignment of V8's pages.
const V8_PAGE_BYTES: u64 = 256 << 10;
/// Smaller mappings may be those of the dynamic linker and of libraries.
const JEMALLOC_BYTES_MIN: u64 = 512 << 10;

impl Runtime {
    /// The most particular first.
    const ALL: [Self; 5] = [Self::Java, Self::Go, Self::V8, Self::Mimalloc, Self::Jemalloc];

    /// Those whose files are mapped, and Go.
    fn of(mappings: &[Mapping]) -> Vec<Self> {
        let files = || mappings.iter().filter(|mapping| mapping.inode != 0);
        let file_name = |mapping: &Mapping| {
            let name = mapping.name.rsplit('/').next().unwrap_or_default();
            name.strip_suffix(" (deleted)").unwrap_or(name).to_string()
        };
        // A library has a version after its name; a program whose name begins with another's is another.
        let is_named = |name: &str, file: &str| name == file || (file.ends_with(".so") && name.starts_with(file));
        let is_there = |runtime: &Self| match runtime {
            Self::Go => true,
            _ => files().any(|mapping| runtime.files().iter().any(|file| is_named(&file_name(mapping), file))),
        };
        Self::ALL.into_iter().filter(is_there).collect()
    }

    /// The names of its programs, and of its libraries without their versions.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Java => &["libjvm.so"],
            Self::V8 => &["node", "nodejs", "libnode.so", "chrome", "chromium", "electron"],
            Self::Jemalloc => &["libjemalloc.so"],
            Self::Mimalloc => &["libmimalloc.so"],
            Self::Go => &[],
        }
    }

    /// Whether its memory is at addresses that hardly anything else has.
    const fn chooses_addresses(self) -> bool {
        !matches!(self, Self::Jemalloc)
    }

    /// Whether it would place memory where an unnamed mapping is.
    fn holds(self, mapping: &Mapping, placed: &Placed) -> bool {
        let addresses = &mapping.addresses;
        // What is reserved only may belong to anything.
        !mapping.is_inaccessible()
            && match self {
                Self::Java => addresses.end <= COMPRESSED_END,
                Self::V8 => {
                    let is_own = addresses.start < Placed::USUAL.start && !placed.holds(mapping);
                    is_own && addresses.start.is_multiple_of(V8_PAGE_BYTES)
                }
                Self::Jemalloc => mapping.is_writable() && mapping.bytes() >= JEMALLOC_BYTES_MIN,
                Self::Mimalloc => MIMALLOC.contains(&addresses.start) && !placed.holds(mapping),
                Self::Go => GO.contains(&addresses.start),
            }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Java => "looks like the Java heap",
            Self::V8 => "looks like V8's heap",
            Self::Jemalloc => "looks like jemalloc",
            Self::Mimalloc => "looks like mimalloc",
            Self::Go => "looks like Go's heap",
        }
    }
}

fn is_unnamed(mapping: &Mapping) -> bool {
    mapping.is_anonymous() && mapping.name.is_empty()
}

/// Whether a mapping is the used part of an arena's heap: aligned, and with the rest of its reservation after it.
fn begins_arena(mapping: &Mapping, after: Option<&Mapping>, placed: &Placed) -> bool {
    let end = mapping.addresses.start.saturating_add(ARENA_BYTES);
    // Others are something else: the Java heap is longer, and Go's heap is where the program wants it.
    let fits = mapping.addresses.end <= end && placed.holds(mapping);
    let is_whole = mapping.addresses.end == end;
    let is_reserved = |after: &Mapping| {
        after.is_inaccessible()
            && is_unnamed(after)
            && after.addresses.start == mapping.addresses.end
            && after.addresses.end >= end
    };
    mapping.addresses.start.is_multiple_of(ARENA_BYTES)
        && is_unnamed(mapping)
        && mapping.is_writable()
        && fits
        && (is_whole || after.is_some_and(is_reserved))
}

fn is_stack(guard: &Mapping, mapping: &Mapping) -> bool {
    let is_guard = guard.is_inaccessible() && is_unnamed(guard) && guard.bytes() <= GUARD_BYTES_MAX;
    is_guard && is_unnamed(mapping) && mapping.is_writable() && mapping.has(b"nh")
}

/// Whether a mapping is the zeroed data of a file, which the loader maps after its other data.
fn is_bss(file: &Mapping, mapping: &Mapping) -> bool {
    let is_data = file.inode != 0 && file.mode.ends_with('p');
    is_data && is_unnamed(mapping) && mapping.is_writable() && !mapping.is_executable()
}

/// The name that follows from what the kernel says.
fn kernel_name(mapping: &Mapping) -> String {
    let is_shared = mapping.mode.ends_with('s');
    let in_brackets = mapping.name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match (in_brackets, mapping.name.as_str()) {
        _ if mapping.is_hugetlb() => "hugetlb".to_string(),
        (Some(name), _) => match name.split_once(':') {
            Some((kind @ ("anon" | "anon_shmem"), name)) => {
                format!("{}named {name}", if kind == "anon" { "" } else { "shared, " })
            }
            _ => name.to_string(),
        },
        (None, "") if mapping.is_inaccessible() => "reserved".to_string(),
        (None, "") if mapping.is_executable() => "anonymous code".to_string(),
        (None, "") => ANONYMOUS.to_string(),
        (None, path) if is_shared => format!("shared {path}"),
        (None, path) => format!("file {path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_linux_probe::smaps::parse;

    #[test]
    fn stacks_and_arenas_are_recognised_by_their_shape() {
        let text = "555000000000-555000021000 rw-p 0 00:00 0 [heap]\n\
                    7f1ff0000000-7f1ff0021000 rw-p 0 00:00 0 \n\
                    7f1ff0021000-7f1ff4000000 ---p 0 00:00 0 \n\
                    7f1ff4000000-7f1ff4021000 rw-p 0 00:00 0 \n\
                    7f1ff4021000-7f1ff8000000 ---p 0 00:00 0 \n\
                    7f1ff8800000-7f1ff8801000 ---p 0 00:00 0 \n\
                    7f1ff8801000-7f1ff9001000 rw-p 0 00:00 0 \nVmFlags: rd wr nh\n\
                    7f1ff9001000-7f1ff9101000 rw-p 0 00:00 0 \n\
                    7f1ff9200000-7f1ff9300000 rw-p 0 00:00 0 [anon:Go: heap]\n\
                    7f1ff9400000-7f1ff9500000 rw-s 0 00:01 7 /dev/shm/a\n\
                    7f1ff9600000-7f1ff9700000 rw-p 0 fe:01 8 /lib/libc.so.6\n\
                    7f1ff9700000-7f1ff9701000 rw-p 0 00:00 0 \n\
                    7f1ff9800000-7f1ff9900000 rwxp 0 00:00 0 \n\
                    7fff00000000-7fff00021000 rw-p 0 00:00 0 [stack]";
        let arenas = ["glibc arenas"; 4];
        let rest = [
            "thread stacks",
            "anonymous",
            "named Go: heap",
            "shared /dev/shm/a",
            "file /lib/libc.so.6",
            "program data (bss)",
            "anonymous code",
            "stack",
        ];
        let expected: Vec<&str> = ["heap"].into_iter().chain(arenas).chain(["reserved"]).chain(rest).collect();
        assert_eq!(names(&parse(text)), expected);
    }

    /// As in a process whose stack has no limit, and in one with the old layout; the libraries are where they were.
    #[test]
    fn arenas_are_recognised_wherever_the_kernel_places_mappings() {
        let text = "{0}20000000-{0}2004b000 rw-p 0 00:00 0 \n\
                    {0}2004b000-{0}24000000 ---p 0 00:00 0 \n\
                    {0}30000000-{0}30040000 rw-p 0 00:00 0 \n\
                    {0}303cb000-{0}303cd000 rw-p 0 fe:00 7 /lib/libc.so.6\n\
                    {0}303cd000-{0}303da000 rw-p 0 00:00 0 \n\
                    {0}303da000-{0}303db000 rw-p 0 fe:00 7 /lib/libm.so.6\n\
                    {0}303db000-{0}32000000 rw-p 0 00:00 0 \n\
                    {0}32000000-{0}32001000 r--p 0 fe:00 8 {1}\n\
                    {0}32001000-{0}32003000 r-xp 0 00:00 0 [vdso]\n\
                    7fff13654000-7fff13675000 rw-p 0 00:00 0 [stack]";
        let named = |place: &str, linker: &str| names(&parse(&text.replace("{0}", place).replace("{1}", linker)));
        let (loader, bss) = ("/lib64/ld-linux-x86-64.so.2", "program data (bss)");
        for (place, long) in [("7f12", bss), ("14fe", bss), ("2aeb", "anonymous")] {
            let found = named(place, loader);
            assert_eq!((&found[0][..], &found[2][..]), ("glibc arenas", "anonymous"), "{place}");
            assert_eq!([&found[4], &found[6]], [bss, long], "{place}: what follows libm may have joined its data");
            assert_eq!(named(place, "/usr/bin/node")[2], "anonymous", "{place}: only the vDSO tells");
            // Where V8 wanted it, far from there.
            let far = text.replace("{0}30000000-{0}30040000", "130030000000-130030040000");
            let far = names(&parse(&far.replace("{0}", place).replace("{1}", "/usr/bin/node")));
            assert_eq!(far[2], "looks like V8's heap", "{place}");
        }
    }

    /// The places are those of OpenJDK 17, Node.js 20, jemalloc 5.3, and Go 1.26 without its random heap base.
    #[test]
    fn runtimes_are_named_only_where_their_files_are_mapped() {
        let memory = "e0000000-f7a00000 rw-p 0 00:00 0 \n\
                      f7a00000-100000000 ---p 0 00:00 0 \n\
                      c000000000-c000400000 rw-p 0 00:00 0 \n\
                      c000400000-c004000000 ---p 0 00:00 0 \n\
                      38bcc1f00000-38bcc2051000 rw-p 0 00:00 0 \n\
                      38bcc3001000-38bcc3051000 rw-p 0 00:00 0 \n\
                      7fafd7600000-7fafd7e00000 rw-p 0 00:00 0 \n\
                      7fafd87ff000-7fafd8800000 rw-p 0 00:00 0 \n";
        let with = |file: &str| names(&parse(&format!("{memory}7fafd9000000-7fafd9100000 r-xp 0 fe:01 8 {file}")));
        let expected = |changed: &[(usize, &'static str)]| {
            let mut names = ["anonymous"; 8];
            (names[1], names[2], names[3]) = ("reserved", "looks like Go's heap", "reserved");
            changed.iter().for_each(|&(at, name)| names[at] = name);
            names
        };
        assert_eq!(with("/lib/libc.so.6")[..8], expected(&[]));
        assert_eq!(with("/lib/jvm/libjvm.so")[..8], expected(&[(0, "looks like the Java heap")]));
        let jemalloc = "looks like jemalloc";
        assert_eq!(with("/lib/libjemalloc.so.2")[..8], expected(&[(0, jemalloc), (4, jemalloc), (6, jemalloc)]));
        let v8 = "looks like V8's heap";
        assert_eq!(with("/usr/bin/node (deleted)")[..8], expected(&[(0, v8), (4, v8)]));
        assert_eq!(with("/usr/bin/node_exporter")[..8], expected(&[]), "written in Go");
    }
}
