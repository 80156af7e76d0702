//! Modes of transparent huge pages in an explained replay, on a machine that has one.

use hksim_linux_probe::sysfs::{THP, choice};
use hksim_replay::HugePages;

/// The machine's mode of transparent huge pages; `None` if the kernel has none.
pub(crate) fn here() -> Option<String> {
    choice(&format!("{THP}/enabled"))
}

/// The huge pages of a replay in this mode, or why this machine cannot have it.
///
/// # Errors
/// The machine's mode does not allow it.
pub fn huge_pages(mode: &str) -> Result<HugePages, String> {
    within(here().as_deref(), mode)
}

fn within(here: Option<&str>, mode: &str) -> Result<HugePages, String> {
    match (here, mode) {
        (Some(here), mode) if here == mode => Ok(HugePages::AsTheyAre),
        (_, "never") => Ok(HugePages::Disabled),
        (Some("madvise"), "always") => Ok(HugePages::Advised),
        (here, mode) => {
            let here = here.unwrap_or("not supported");
            Err(format!("a replay cannot have mode `{mode}`, because this machine's mode is {here} ({THP}/enabled)"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_the_machines_or_is_brought_about() {
        assert_eq!(within(Some("madvise"), "madvise"), Ok(HugePages::AsTheyAre));
        assert_eq!(within(Some("madvise"), "always"), Ok(HugePages::Advised));
        assert_eq!(within(Some("always"), "never"), Ok(HugePages::Disabled));
        assert_eq!(within(None, "never"), Ok(HugePages::Disabled));
        assert!(within(Some("always"), "madvise").is_err());
        assert!(within(Some("never"), "always").is_err_and(|why| why.contains("mode is never")));
    }
}
