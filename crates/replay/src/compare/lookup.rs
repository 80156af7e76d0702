//! Looks up allocators by name.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use hksim_text::nearest;
use thiserror::Error;

use super::Found;
use super::settings::Settings;
use crate::{Target, library};

/// A word names no allocator.
#[derive(Debug, Error)]
pub enum LookupError {
    /// The allocator is not known.
    #[error("unknown; name glibc, {known}, native, native:POLICY, or the path of a malloc library{question}")]
    Unknown {
        /// The known ones.
        known: String,
        /// What was probably meant.
        question: String,
    },
    /// A setting is not `KEY=VALUE`.
    #[error("`{0}` is not a setting; write NAME:KEY=VALUE, several joined by +")]
    Setting(String),
    /// A setting has several values, where one allocator is meant.
    #[error("`{0}` has several values, and so stands for several allocators; give one value")]
    Several(String),
    /// The allocator would read another number.
    #[error("`{0}`: no number that the allocator reads; give one such as 131072 or 128K")]
    Value(String),
    /// The allocator does not read this setting.
    #[error(
        "`{key}` is no setting of {file}, which would ignore it (docs/reference/allocator-settings.md has those that were tried)"
    )]
    NoSetting {
        /// The setting.
        key: String,
        /// The file that would read it.
        file: String,
    },
    /// A range of a setting has no values.
    #[error("{range}: {why}")]
    Range {
        /// The range.
        range: String,
        /// Why.
        why: &'static str,
    },
    /// The file does not exist.
    #[error("{word}: cannot preload it; give the path of a shared object")]
    NoFile {
        /// The file.
        word: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no file.
    #[error("{0}: cannot preload it: not a file; give the path of a shared object")]
    OtherFile(String),
}

/// An allocator known by name.
struct Known {
    name: &'static str,
    /// File names of its library, newest first.
    files: &'static [&'static str],
    /// The Debian package that contains it, if one does.
    package: Option<&'static str>,
    /// How it is configured.
    settings: Settings,
}

const KNOWN: [Known; 8] = [
    Known {
        name: "mimalloc",
        files: &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"],
        package: Some("libmimalloc2.0"),
        settings: Settings::Variables("MIMALLOC_"),
    },
    Known {
        name: "jemalloc",
        files: &["libjemalloc.so.2", "libjemalloc.so"],
        package: Some("libjemalloc2"),
        settings: Settings::MallocConf,
    },
    Known {
        name: "gperftools",
        files: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"],
        package: Some("libtcmalloc-minimal4"),
        settings: Settings::Variables("TCMALLOC_"),
    },
    Known {
        name: "tbbmalloc",
        files: &["libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy.so"],
        package: Some("libtbbmalloc2"),
        settings: Settings::Variables("TBB_MALLOC_"),
    },
    Known {
        name: "mimalloc2",
        files: &["libmimalloc.so.2"],
        package: Some("libmimalloc2.0"),
        settings: Settings::Variables("MIMALLOC_"),
    },
    Known {
        name: "mimalloc3",
        files: &["libmimalloc.so.3"],
        package: None,
        settings: Settings::Variables("MIMALLOC_"),
    },
    Known {
        name: "rpmalloc",
        files: &["librpmallocwrap.so", "librpmalloc.so"],
        package: None,
        settings: Settings::Variables(""),
    },
    Known { name: "snmalloc", files: &["libsnmallocshim.so"], package: None, settings: Settings::Variables("") },
];

/// Other names of known allocators: what each stands for.
const ALIASES: [(&str, &str); 1] = [("tcmalloc", "gperftools")];

/// The name of the allocator that a word stands for, if it is another name of a known one. `tcmalloc` is the name of
/// gperftools' library, and of Google's TCMalloc, which is another allocator and has no library to preload.
pub fn meaning(word: &str) -> Option<&'static str> {
    ALIASES.iter().find(|(alias, _)| *alias == word).map(|(_, name)| *name)
}

/// Looks up an allocator that is not hksim's: `glibc`, a known allocator, or the path of a library, with settings such as
/// `thp=always` or none.
///
/// # Errors
/// The word is none of these, or the file does not exist.
pub fn lookup(name: &str, settings: &str) -> Result<Found, LookupError> {
    if name == "glibc" {
        return glibc(settings);
    }
    let meant = meaning(name).unwrap_or(name);
    match KNOWN.iter().find(|known| known.name == meant) {
        Some(known) => {
            let found = installed(known, &folders(), &known.settings.variables(settings)?);
            if let Found::Here(Target::Malloc { preload: Some(path), .. }) = &found {
                reads_all(known.settings, path, settings)?;
            }
            Ok(found)
        }
        None => by_path(name, settings),
    }
}

/// The settings of a known allocator, as in `NAME:SETTINGS`, that environment variables make. `None` if it does not read
/// them.
pub fn settings_of(name: &str, variables: &str) -> Option<String> {
    if name == "glibc" {
        return Settings::Tunables.of_variables(variables);
    }
    let meant = meaning(name).unwrap_or(name);
    KNOWN.iter().find(|known| known.name == meant)?.settings.of_variables(variables)
}

fn glibc(settings: &str) -> Result<Found, LookupError> {
    let variables = Settings::Tunables.variables(settings)?;
    if let Some(loader) = library::loader() {
        reads_all(Settings::Tunables, &loader, settings)?;
    }
    Ok(Found::Here(Target::Malloc { preload: None, variables }))
}

fn reads_all(read: Settings, file: &Path, settings: &str) -> Result<(), LookupError> {
    match read.unknown_to(file, settings) {
        Some(key) => Err(LookupError::NoSetting { key, file: file.display().to_string() }),
        None => Ok(()),
    }
}

/// The same word, with the path of a library relative to this folder.
pub fn in_folder(folder: &Path, word: &str) -> String {
    let (name, settings) = word.split_at(word.find(':').unwrap_or(word.len()));
    if is_path(name) { format!("{}{settings}", folder.join(name).display()) } else { word.to_string() }
}

fn is_path(name: &str) -> bool {
    name.contains('/') || name.contains(".so")
}

fn by_path(word: &str, settings: &str) -> Result<Found, LookupError> {
    if !is_path(word) {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        let question = nearest::question(word, names.iter().copied().chain(["glibc", "native"]));
        return Err(LookupError::Unknown { known: names.join(", "), question });
    }
    let path = Path::new(word).canonicalize();
    let path = path.map_err(|source| LookupError::NoFile { word: word.to_string(), source })?;
    if !path.is_file() {
        return Err(LookupError::OtherFile(word.to_string()));
    }
    let variables = variables(&path, settings)?;
    Ok(Found::Here(Target::Malloc { preload: Some(path), variables }))
}

/// The variables for settings of a library. Those without capitals are settings of the known allocator that it is; others are
/// names of variables.
fn variables(file: &Path, settings: &str) -> Result<Vec<(String, String)>, LookupError> {
    let allocator = library::library(file).map(|library| library.allocator);
    let known = KNOWN.iter().find(|known| Some(known.name) == allocator);
    let is_own = |setting: &&str| {
        let key = setting.split('=').next().unwrap_or_default();
        known.is_some() && !key.contains(|letter: char| letter.is_ascii_uppercase())
    };
    let (own, others): (Vec<&str>, Vec<&str>) = settings.split('+').partition(is_own);
    let own = match known {
        Some(known) => {
            reads_all(known.settings, file, &own.join("+"))?;
            known.settings.variables(&own.join("+"))?
        }
        None => Vec::new(),
    };
    Ok([own, Settings::Variables("").variables(&others.join("+"))?].concat())
}

fn installed(known: &Known, folders: &[PathBuf], variables: &[(String, String)]) -> Found {
    let paths = known.files.iter().flat_map(|file| folders.iter().map(move |folder| folder.join(file)));
    match paths.into_iter().find(|path| path.is_file()) {
        Some(path) => Found::Here(Target::Malloc { preload: Some(path), variables: variables.to_vec() }),
        None => {
            let package = known.package.map(|package| format!("install Debian's package {package}, or "));
            Found::Missing(format!(
                "no {} in the library directories; {}give its path (LD_LIBRARY_PATH is searched too)",
                known.files[0],
                package.unwrap_or_default()
            ))
        }
    }
}

/// The directories that are searched: `LD_LIBRARY_PATH`, then those that distributions use.
fn folders() -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let usual = ["/usr/local/lib", "/usr/lib", "/lib"];
    let usual = usual.iter().flat_map(|folder| [Path::new(folder).join(&triplet), PathBuf::from(folder)]);
    let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named: Vec<PathBuf> = env::split_paths(&named).filter(|path| path.is_absolute()).collect();
    named.into_iter().chain(usual).chain(["/usr/lib64".into(), "/lib64".into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_stand_for_known_allocators() {
        for (alias, name) in ALIASES {
            assert!(KNOWN.iter().any(|known| known.name == name) && !KNOWN.iter().any(|known| known.name == alias));
            assert_eq!(meaning(alias), Some(name));
        }
        assert_eq!(meaning("gperftools"), None);
    }

    #[test]
    fn libraries_are_relative_to_a_folder_and_names_are_not() {
        let folder = Path::new("ci");
        for (word, expected) in [
            ("./my.so:MODE=a/b", "ci/./my.so:MODE=a/b"),
            ("/lib/my.so", "/lib/my.so"),
            ("jemalloc:thp=always", "jemalloc:thp=always"),
            ("glibc", "glibc"),
        ] {
            assert_eq!(in_folder(folder, word), expected);
        }
    }

    #[test]
    fn the_newest_library_is_taken_and_a_missing_one_has_its_package() {
        for known in &KNOWN {
            let folder = tempfile::tempdir().expect("a folder");
            let folders = [folder.path().to_path_buf()];
            let Found::Missing(why) = installed(known, &folders, &[]) else { panic!("{}: found", known.name) };
            assert!(why.contains(known.package.unwrap_or("; give its path")) && why.contains(known.files[0]), "{why}");
            for (index, file) in known.files.iter().enumerate().rev() {
                std::fs::write(folder.path().join(file), "").expect("a file");
                let Found::Here(Target::Malloc { preload: Some(path), .. }) = installed(known, &folders, &[]) else {
                    panic!("{}: not found", known.name)
                };
                assert_eq!(path, folder.path().join(known.files[index]));
            }
        }
    }
}
