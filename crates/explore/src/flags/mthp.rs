//! Modes of the kernel's huge-page sizes, written as `64K=always,256K=madvise`.

use hksim_linux_mm::{PAGE_BYTES, PMD_ORDER, SizeMode};
use hksim_policy::units::parse_size;

pub use hksim_linux_mm::{SizeModes as Sizes, show_sizes as show, usual_sizes as usual};

/// The smallest large folio of anonymous memory: 16K.
const SMALLEST_ORDER: usize = 2;

/// Reads `SIZE=MODE`, separated by commas. Sizes that are not named keep their mode after boot.
///
/// # Errors
/// Names the expected form.
pub fn parse(word: &str) -> Result<Sizes, String> {
    let mut sizes = usual();
    let mut named = [false; PMD_ORDER + 1];
    for part in word.split(',') {
        let expected = || format!("`{part}`: write SIZE=MODE: 64K=always");
        let (size, mode) = part.split_once('=').ok_or_else(expected)?;
        let order = order_of(size).ok_or_else(|| format!("`{part}`: sizes are 16K and its doubles up to 2M"))?;
        let modes = || SizeMode::WORDS.map(|(known, _)| known).join(", ");
        sizes[order] = SizeMode::from_word(mode).ok_or_else(|| format!("`{part}`: modes are {}", modes()))?;
        if std::mem::replace(&mut named[order], true) {
            return Err(format!("`{part}`: {size} is named twice"));
        }
    }
    Ok(sizes)
}

/// Whether any size below 2M is on.
pub fn has_mthp_sizes(sizes: &Sizes) -> bool {
    sizes[..PMD_ORDER].iter().any(|mode| *mode != SizeMode::Never)
}

fn order_of(size: &str) -> Option<usize> {
    let bytes = parse_size(size).ok()?;
    (SMALLEST_ORDER..=PMD_ORDER).find(|order| PAGE_BYTES << order == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for word in
            ["2M=inherit", "64K=always", "16K=inherit,64K=always,256K=madvise", "1M=madvise,2M=never", "2M=always"]
        {
            assert_eq!(parse(word).map(|sizes| show(&sizes)).as_deref(), Ok(word));
        }
        assert_eq!(parse("256K=madvise,64K=always"), parse("64K=always,256K=madvise"));
        assert_eq!(parse("64K=never,2M=inherit").map(|sizes| show(&sizes)).as_deref(), Ok("2M=inherit"), "as it boots");
    }

    #[test]
    fn anything_else_is_refused() {
        for word in
            ["", "64K", "64K=", "64K=on", "8K=always", "4M=always", "48K=always", "64K=always,64K=never", "default"]
        {
            assert!(parse(word).is_err(), "{word:?}");
        }
    }
}
