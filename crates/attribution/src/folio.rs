//! Which pages a trap made present.

use std::ops::Range;

use hksim_replay::explained::PresentRun;

use crate::pages::Pages;

/// The pages of the folio that a trap on `page` installed: the largest power of two of present pages around it, on its
/// natural boundary, of which no other was present before, and no other had a trap of its own. `trapped` are the pages
/// with traps, in order. `None` if the kernel cannot tell.
pub fn folio(page: u64, present: PresentRun, trapped: &[u64], pages: &Pages) -> Option<Range<u64>> {
    let run = present.first_page..present.first_page + present.pages;
    if present.pages == 0 || present.is_huge {
        return Some(run).filter(|run| !run.is_empty());
    }
    let is_new = |range: &Range<u64>| {
        let first = trapped.partition_point(|&other| other < range.start);
        let mut traps = trapped[first..].iter().take_while(|&&other| other < range.end);
        run.start <= range.start
            && range.end <= run.end
            && !traps.any(|&other| other != page)
            && !range.clone().any(|other| other != page && pages.is_present(other))
    };
    let around = |order: u32| page >> order << order..((page >> order) + 1) << order;
    Some((1..=9).rev().map(around).find(is_new).unwrap_or(page..page + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folio_ends_where_another_trap_or_an_older_page_is() {
        let mut pages = Pages::default();
        pages.install(64..65, false);
        let run = |first_page, pages| PresentRun { first_page, pages, is_huge: false };
        assert_eq!(folio(17, run(16, 16), &[], &pages), Some(16..32));
        assert_eq!(folio(17, run(16, 16), &[17, 24], &pages), Some(16..24));
        assert_eq!(folio(70, run(64, 64), &[], &pages), Some(68..72));
        assert_eq!(folio(17, run(17, 1), &[], &pages), Some(17..18));
        assert_eq!(folio(17, run(0, 0), &[], &pages), None);
        assert_eq!(
            folio(600, PresentRun { first_page: 512, pages: 512, is_huge: true }, &[600], &pages),
            Some(512..1024)
        );
    }
}
