//! Addresses under another kernel. Kernels differ in which mappings they align to 2 MiB (R5), and alignment decides
//! about huge pages; they also differ in the size of the vdso, above all other mappings. The recording's mappings are
//! placed again, as the other kernel would have placed them.

use std::convert::Infallible;
use std::ops::Range;
use std::path::Path;

use hksim_linux_mm::{Backing, Kernel, KernelConfig, KernelVersion, MapFlags, PMD_PAGES, Rules};
use hksim_memory_trace::{
    Event, Machine, MapOp, MappingKind, MemoryTraceError, Moves, Op, Origin, Placement, Reader, Rewritten, SiteId,
    rewrite,
};

use crate::perform::Edits;
use crate::steps::{Translator, backing};

/// `MAP_FIXED`, `MAP_FIXED_NOREPLACE`, `MREMAP_FIXED`.
const MAP_FIXED: u32 = 0x10;
const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;
const MREMAP_FIXED: u32 = 2;
/// Mappings above this page are in the area that mmap fills from the top down.
const MMAP_AREA: u64 = 1 << 34;

/// Whether a kernel places mappings differently from the kernel on which a program was recorded.
pub fn places_differently(recorded_on: &Machine, rules: &Rules) -> bool {
    KernelVersion::nearest(&recorded_on.kernel_release).is_some_and(|(version, _)| {
        let recorded = Rules::of(version);
        // Random addresses hide the size of the vdso.
        recorded.mmap_alignment != rules.mmap_alignment
            || !recorded_on.addresses_random && !places_alike(&recorded, rules)
    })
}

/// Whether two kernels place mappings at the same addresses.
pub fn places_alike(rules: &Rules, others: &Rules) -> bool {
    rules.mmap_alignment == others.mmap_alignment && rules.version.vdso_pages() == others.version.vdso_pages()
}

/// Writes a copy of a recording in which mmap and mremap place mappings as under `kernel`. Mappings at addresses that
/// the program chose, the heap of brk, and the mappings of exec stay, except for the vdso. A mapping that the program
/// trimmed for alignment is trimmed again, and an address that it rounded within a mapping is rounded again. What else the
/// program would do differently at other addresses is unknown. Returns the number of mappings that the program aligned.
///
/// # Errors
/// The recording cannot be read or is damaged, or the copy cannot be written.
pub fn place_again(from: &Path, kernel: &KernelConfig, to: &Path) -> Result<u64, MemoryTraceError> {
    let step = format!("addresses of Linux {}", kernel.rules.version.word());
    let layout = Layout::of(from)?;
    let mut placer = Placer {
        kernel: Kernel::new(kernel.clone()),
        translator: Translator::default(),
        top: layout.top,
        vdso: layout.vdso,
        vdso_new: None,
        steps: Vec::new(),
    };
    let Rewritten { stopped: None, mappings_aligned, .. } = rewrite(from, to, &step, &mut placer, Moves::default())?;
    Ok(mappings_aligned)
}

/// What a recording shows about the area that mmap fills.
#[derive(Debug, Default)]
struct Layout {
    /// Its end: the end of the highest mapping below the stack.
    top: u64,
    /// The vdso and its data, if exec placed them in this area. With random addresses they are not moved.
    vdso: Option<Range<u64>>,
}

impl Layout {
    fn of(path: &Path) -> Result<Self, MemoryTraceError> {
        let mut reader = Reader::open(path)?;
        let is_random = reader.header().machine.addresses_random;
        // Exec makes the stack first.
        let (mut layout, mut stack, mut events) = (Self::default(), u64::MAX, Vec::new());
        while reader.next_chunk(&mut events)? {
            for event in &events {
                let Op::Map(map) = &event.op else { continue };
                let MapOp { pages, kind, origin, .. } = &**map;
                if *kind == MappingKind::GrowingStack && *origin == Origin::Exec {
                    stack = pages.start;
                } else if pages.start >= MMAP_AREA && pages.end <= stack && !is_fixed(map) {
                    layout.top = layout.top.max(pages.end);
                    if is_vdso(map) && !is_random {
                        let vdso = layout.vdso.get_or_insert(pages.clone());
                        *vdso = vdso.start.min(pages.start)..vdso.end.max(pages.end);
                    }
                }
            }
        }
        Ok(layout)
    }
}

/// Whether a mapping is a part of the vdso or of its data.
fn is_vdso(map: &MapOp) -> bool {
    map.kind == MappingKind::Special && map.origin == Origin::Exec
}

fn is_fixed(map: &MapOp) -> bool {
    map.origin == Origin::Mmap && map.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0
}

/// The new place of an address that the program chose. It may be in a mapping, directly after one, or anywhere.
fn chosen(start: u64, moves: &Moves) -> u64 {
    if moves.is_mapped(start) {
        moves.page(start)
    } else if moves.is_mapped(start - 1) {
        moves.page(start - 1) + 1
    } else {
        start
    }
}

/// Places mappings by the rules of a kernel. Its model holds all mappings of the process, but no pages.
struct Placer {
    kernel: Kernel,
    translator: Translator,
    top: u64,
    /// The recorded vdso, and where it is now.
    vdso: Option<Range<u64>>,
    vdso_new: Option<Range<u64>>,
    steps: Vec<crate::steps::Step>,
}

impl Placement for Placer {
    type Stop = Infallible;

    fn start(&mut self, op: &Op, moves: &Moves) -> Result<u64, Infallible> {
        Ok(match op {
            Op::Map(map) => self.start_of_map(map, moves),
            Op::Remap { old, new, flags } => {
                let (source, pages) = (moves.range(old), new.end - new.start);
                let is_kept = pages <= source.end - source.start && old.start == new.start;
                if flags & MREMAP_FIXED != 0 {
                    moves.page(new.start)
                } else if is_kept || self.has_room(source.end, source.start + pages) {
                    source.start
                } else {
                    self.kernel.unmapped_area(pages, self.top).unwrap_or(new.start)
                }
            }
            _ => 0,
        })
    }

    fn performed(&mut self, op: &Op) {
        let is_mapping = !matches!(op, Op::Touch { .. } | Op::Fork { .. } | Op::ChildEnded { .. } | Op::Lost { .. });
        if is_mapping {
            let event = Event { time_ns: 0, thread: 0, op: op.clone(), site: SiteId::UNKNOWN };
            self.translator.translate(&event, None, &mut self.steps);
            for step in self.steps.drain(..) {
                // Errors show in the simulation itself.
                let _ = Edits::default().perform(&mut self.kernel, &step.action);
            }
        }
    }
}

impl Placer {
    fn start_of_map(&mut self, map: &MapOp, moves: &Moves) -> u64 {
        let (start, pages) = (map.pages.start, map.pages.end - map.pages.start);
        let is_chosen = map.hint_page != 0 && map.hint_page == start;
        match map.origin {
            Origin::Exec if is_vdso(map) => self.start_of_vdso(map),
            Origin::Exec | Origin::Brk => start,
            Origin::Mmap if is_fixed(map) => chosen(start, moves),
            Origin::Mmap if is_chosen => {
                let wanted = chosen(start, moves);
                match self.kernel.mappings(wanted..wanted + pages).is_empty() {
                    true => wanted,
                    // A hint that is taken is no hint.
                    false => self.kernel.unmapped_area(pages, self.top).unwrap_or(start),
                }
            }
            Origin::Mmap | Origin::Kernel => {
                // A mapping of /dev/zero is placed as one of a file.
                let is_anonymous = matches!(map.kind, MappingKind::Anonymous | MappingKind::Harness)
                    && backing(map) != Backing::ZeroDevice;
                // Files on some file systems are aligned by every kernel; what was aligned stays so.
                let is_aligned_file = !is_anonymous && start.is_multiple_of(PMD_PAGES) && pages >= PMD_PAGES;
                let found = match (is_anonymous, is_aligned_file) {
                    (true, _) => self.kernel.unmapped_area(pages, self.top),
                    (false, true) => {
                        let gap = self.kernel.highest_gap(pages + PMD_PAGES, self.top);
                        gap.map(|start| start.next_multiple_of(PMD_PAGES))
                    }
                    (false, false) => self.kernel.highest_gap(pages, self.top),
                };
                found.unwrap_or(start)
            }
        }
    }

    /// Kernels map the vdso as one block. Its parts keep their distance from its end; a part that the kernel lacks shares
    /// the place of another one, since the program has no memory there.
    fn start_of_vdso(&mut self, map: &MapOp) -> u64 {
        let Some(recorded) = self.vdso.clone() else { return map.pages.start };
        let pages = self.kernel.config().rules.version.vdso_pages();
        if self.vdso_new.is_none()
            && let Some(start) = self.kernel.highest_gap(pages, self.top)
        {
            // Reserves the block, because the recorded parts may be smaller.
            let _ = self.kernel.map(start..start + pages, MapFlags::READ_WRITE);
            self.vdso_new = Some(start..start + pages);
        }
        let new = self.vdso_new.clone().unwrap_or(recorded.clone());
        (new.end + map.pages.start).saturating_sub(recorded.end).max(new.start)
    }

    /// Whether a mapping that ends at `from` can grow to `to`.
    fn has_room(&self, from: u64, to: u64) -> bool {
        from < to && self.kernel.mappings(from..to).is_empty()
    }
}
