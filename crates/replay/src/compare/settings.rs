//! Settings of real allocators, as environment variables.

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
    /// The variables for settings such as `thp=always+narenas=1`; none for an empty text.
    ///
    /// # Errors
    /// A setting is not `KEY=VALUE`.
    pub fn variables(self, settings: &str) -> Result<Vec<(String, String)>, LookupError> {
        let mut pairs = Vec::new();
        for setting in settings.split('+').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some((key, value)) if !key.is_empty() => pairs.push((key, value)),
                _ => return Err(LookupError::Setting(setting.to_string())),
            }
        }
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let joined = |pair: fn(&(&str, &str)) -> String, separator| {
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
            Self::Variables("") => pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            Self::Variables(prefix) => {
                let name = |key: &str| format!("{prefix}{}", key.to_ascii_uppercase());
                pairs.iter().map(|(key, value)| (name(key), value.to_string())).collect()
            }
        })
    }
}

impl Settings {
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
