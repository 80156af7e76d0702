//! Versions of libraries, and the ranges of them for which a setting holds.

/// A version: numbers, the most significant first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// Reads a version such as `2.36` or `5.3.0`; `None` if a part is no number.
    pub fn parse(text: &str) -> Option<Version> {
        text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>().map(Version)
    }

    /// Whether this is `series` or a version of it, as 2.0.9 is of 2.0.
    fn is_of(&self, series: &Version) -> bool {
        self.0.starts_with(&series.0)
    }
}

/// Ranges of versions: `2.35+` is 2.35 and all later ones, `2.1-2` is 2.1 up to the last of 2. Several are joined by
/// a comma.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions(Vec<(Version, Option<Version>)>);

impl Versions {
    /// Reads ranges; `None` if the text has another form.
    pub fn parse(text: &str) -> Option<Versions> {
        let range = |text: &str| match text.strip_suffix('+') {
            Some(first) => Some((Version::parse(first)?, None)),
            None => {
                let (first, last) = text.split_once('-')?;
                Some((Version::parse(first)?, Some(Version::parse(last)?)))
            }
        };
        text.split(", ").map(range).collect::<Option<Vec<_>>>().map(Versions)
    }

    /// Whether a version is in one of the ranges.
    pub fn contain(&self, version: &Version) -> bool {
        self.0.iter().any(|(first, last)| {
            first <= version && last.as_ref().is_none_or(|last| version <= last || version.is_of(last))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_both_ends_and_the_last_series() {
        let versions = Versions::parse("2.2.6-2, 3.2.8+").expect("ranges");
        for (version, expected) in [
            ("2.2.5", false),
            ("2.2.6", true),
            ("2.10", true),
            ("3", false),
            ("3.2.7", false),
            ("3.2.8", true),
            ("10.0", true),
        ] {
            assert_eq!(versions.contain(&Version::parse(version).expect("a version")), expected, "{version}");
        }
        let exact = Versions::parse("5.0-5.3.0").expect("a range");
        assert!(exact.contain(&Version::parse("5.3.0").expect("a version")));
        assert!(!exact.contain(&Version::parse("5.3.1").expect("a version")));
        for bad in ["", "any", "2.x+", "2.1-", "2.1+,3+"] {
            assert_eq!(Versions::parse(bad), None, "{bad}");
        }
    }
}
