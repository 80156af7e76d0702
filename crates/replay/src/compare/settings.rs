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
    }
}
