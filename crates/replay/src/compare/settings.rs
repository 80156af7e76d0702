//! Settings of real allocators, as environment variables.

use std::path::Path;

use hksim_policy::units::parse_size;

use super::lookup::LookupError;

/// How an allocator reads its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// `GLIBC_TUNABLES=glibc.malloc.KEY=VALUE:...` (glibc manual, "Memory Allocation Tunables").
    Tunables,
    /// `MALLOC_CONF=KEY:VALUE,...` (jemalloc(3), "TUNING").
    MallocConf,
    /// One variable for each setting: this prefix and the key in capitals (mimalloc: `MIMALLOC_`, gperftools'
    /// `TCMALLOC_`). With an empty prefix the key is the name of a variable.
    Variables(&'static str),
}

impl Settings {
    /// The variables for settings such as `thp=always+narenas=1`; none for an empty text. A size such as `128K` becomes a
    /// number of bytes for an allocator that reads no units.
    ///
    /// # Errors
    /// A setting is not `KEY=VALUE`, or has several values.
    pub fn variables(self, settings: &str) -> Result<Vec<(String, String)>, LookupError> {
        let mut pairs = Vec::new();
        for setting in settings.split('+').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                // A variable means what its library makes of it.
                Some((_, value)) if self != Self::Variables("") && has_several_values(value) => {
                    return Err(LookupError::Several(setting.to_string()));
                }
                Some((key, value)) if !key.is_empty() && (self == Self::Variables("") || !value.contains('=')) => {
                    let value = self.as_read(value).ok_or_else(|| LookupError::Value(setting.to_string()))?;
                    pairs.push((key, value));
                }
                _ => return Err(LookupError::Setting(setting.to_string())),
            }
        }
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let joined = |pair: fn(&(&str, String)) -> String, separator| {
            pairs.iter().map(pair).collect::<Vec<String>>().join(separator)
        };
        Ok(match self {
            Self::Tunables => {
                let value = joined(|(key, value)| format!("glibc.malloc.{key}={value}"), ":");
                vec![("GLIBC_TUNABLES".to_string(), value)]
            }
            Self::MallocConf => {
                vec![("MALLOC_CONF".to_string(), joined(|(key, value)| format!("{key}:{value}"), ","))]
            }
            Self::Variables("") => pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect(),
            Self::Variables(prefix) => {
                let name = |key: &str| format!("{prefix}{}", key.to_ascii_uppercase());
                pairs.into_iter().map(|(key, value)| (name(key), value)).collect()
            }
        })
    }

    /// A value in the form that the allocator reads. mimalloc reads units, in options that are sizes, and an environment
    /// variable means what its library makes of it; for others `128K` would be 128, or invalid.
    /// `None` if it would read something else: glibc takes the digits before the first other letter.
    fn as_read(self, value: &str) -> Option<String> {
        if matches!(self, Self::Variables("" | "MIMALLOC_")) {
            return Some(value.to_string());
        }
        let is_plain = value.strip_prefix('-').unwrap_or(value).bytes().all(|one| one.is_ascii_digit());
        let hexadecimal = value.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok());
        if (is_plain && !value.is_empty()) || hexadecimal {
            return Some(value.to_string());
        }
        let starts_as_size = value.starts_with(|one: char| one.is_ascii_digit());
        match parse_size(value) {
            Ok(bytes) if starts_as_size => Some(bytes.to_string()),
            _ => match self {
                Self::Tunables => None,
                Self::Variables(_) if starts_as_size && value.parse::<f64>().is_err() => None,
                Self::Variables(_) | Self::MallocConf => Some(value.to_string()),
            },
        }
    }

    /// The first of these settings that the file which reads them does not contain, where it would have to: an allocator
    /// ignores an unknown setting without a word.
    pub(super) fn unknown_to(self, file: &Path, settings: &str) -> Option<String> {
        let name = |key: &str| match self {
            Self::Tunables => Some(format!("glibc.malloc.{key}\0")),
            Self::Variables("MIMALLOC_") => Some(format!("{}\0", key.to_ascii_lowercase())),
            Self::Variables("TCMALLOC_") => Some(format!("TCMALLOC_{}\0", key.to_ascii_uppercase())),
            // jemalloc itself reports it; what a library of the user's reads is not known.
            Self::MallocConf | Self::Variables(_) => None,
        };
        let keys = settings.split('+').filter_map(|setting| setting.split_once('=')).map(|(key, _)| key);
        let mut names = keys.filter_map(|key| Some((key, name(key)?))).peekable();
        // Most lookups have nothing to look for.
        names.peek()?;
        let bytes = std::fs::read(file).ok()?;
        let is_missing = |name: &str| !bytes.windows(name.len()).any(|window| window == name.as_bytes());
        names.find(|(_, name)| is_missing(name)).map(|(key, _)| key.to_string())
    }

    /// The settings that variables, separated by blanks, make: `MALLOC_CONF=thp:always` is `thp=always`. `None` if the
    /// allocator does not read one of them.
    pub fn of_variables(self, variables: &str) -> Option<String> {
        let of_one = |variable: &str| {
            let (name, value) = variable.split_once('=')?;
            let pairs = |list: &str, separator: char, pair: &dyn Fn(&str) -> Option<String>| {
                list.split(separator).map(pair).collect::<Option<Vec<String>>>().map(|pairs| pairs.join("+"))
            };
            match self {
                Self::Tunables if name == "GLIBC_TUNABLES" => {
                    pairs(value, ':', &|pair| pair.strip_prefix("glibc.malloc.").map(str::to_string))
                }
                Self::MallocConf if name == "MALLOC_CONF" => {
                    pairs(value, ',', &|pair| pair.split_once(':').map(|(key, value)| format!("{key}={value}")))
                }
                Self::Variables(prefix) if !prefix.is_empty() => {
                    Some(format!("{}={value}", name.strip_prefix(prefix)?.to_ascii_lowercase()))
                }
                _ => None,
            }
        };
        variables.split(' ').map(of_one).collect::<Option<Vec<String>>>().map(|settings| settings.join("+"))
    }
}

/// Whether a value is a list or a range, which stands for several allocators.
fn has_several_values(value: &str) -> bool {
    let is_range = |(first, _): (&str, &str)| first.starts_with(|one: char| one.is_ascii_digit());
    value.contains(',') || value.split_once("..").is_some_and(is_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_the_variables_of_each_manual() {
        let variables = |settings: Settings, text| settings.variables(text).expect("valid settings");
        let one = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
        assert_eq!(
            variables(Settings::Tunables, "hugetlb=1+arena_max=2"),
            one("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=2")
        );
        assert_eq!(variables(Settings::MallocConf, "thp=always+narenas=1"), one("MALLOC_CONF", "thp:always,narenas:1"));
        assert_eq!(
            variables(Settings::Variables("MIMALLOC_"), "arena_eager_commit=1"),
            one("MIMALLOC_ARENA_EAGER_COMMIT", "1")
        );
        assert_eq!(variables(Settings::Variables(""), "MY_OPTION=a=b"), one("MY_OPTION", "a=b"));
        assert_eq!(variables(Settings::Tunables, ""), []);
        assert!(Settings::Tunables.variables("hugetlb").is_err());
        assert!(Settings::MallocConf.variables("narenas=dirty_decay_ms=0").is_err(), "a comma instead of +");
        // jemalloc's and glibc's numbers have no units; mimalloc's have.
        for (settings, text, expected) in [
            (Settings::Tunables, "mmap_threshold=128K", one("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072")),
            (Settings::MallocConf, "oversize_threshold=8m", one("MALLOC_CONF", "oversize_threshold:8388608")),
            (
                Settings::MallocConf,
                "tcache_ncached_max=8-32768:64",
                one("MALLOC_CONF", "tcache_ncached_max:8-32768:64"),
            ),
            (Settings::Variables("TCMALLOC_"), "sample_parameter=1M", one("TCMALLOC_SAMPLE_PARAMETER", "1048576")),
            (Settings::Variables("MIMALLOC_"), "reserve_os_memory=1G", one("MIMALLOC_RESERVE_OS_MEMORY", "1G")),
            (Settings::Variables(""), "MY_CACHE=1G", one("MY_CACHE", "1G")),
        ] {
            assert_eq!(variables(settings, text), expected);
        }
        for wrong in ["mmap_threshold=abc", "arena_max=", "mmap_threshold=1.5M", "top_pad=99999999999G"] {
            let error = Settings::Tunables.variables(wrong).expect_err(wrong);
            assert!(error.to_string().contains("no number"), "{error}");
        }
        for (size, bytes) in [("2M", "2097152"), ("64KiB", "65536"), ("0x1000", "0x1000"), ("-1", "-1")] {
            let (setting, expected) = (format!("top_pad={size}"), format!("glibc.malloc.top_pad={bytes}"));
            assert_eq!(
                Settings::Tunables.variables(&setting).expect("valid settings"),
                one("GLIBC_TUNABLES", &expected)
            );
        }
        assert_eq!(variables(Settings::Variables(""), "MY_CLASSES=16,32"), one("MY_CLASSES", "16,32"));
        for several in ["arena_max=1,2", "mmap_threshold=128K..64M"] {
            let error = Settings::Tunables.variables(several).expect_err(several);
            assert!(error.to_string().contains(several), "{error}");
        }
        for (settings, text) in [
            (Settings::Tunables, "hugetlb=1+arena_max=2"),
            (Settings::MallocConf, "tcache_ncached_max=8-32768:64+narenas=1"),
            (Settings::Variables("MIMALLOC_"), "purge_delay=5+arena_purge_mult=1"),
        ] {
            let made =
                variables(settings, text).iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
            assert_eq!(settings.of_variables(&made.join(" ")).as_deref(), Some(text));
        }
        assert_eq!(Settings::MallocConf.of_variables("MIMALLOC_PURGE_DELAY=5"), None);
    }
}
