//! Looks up allocators by name, for `--allocators` and `--on`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_replay::Target;
use hksim_replay::compare::{Allocator, Found};
use hksim_text::nearest;

use crate::allocator_settings::Settings;
use crate::flags::PolicyArgs;
use crate::host;

/// An allocator known by name.
struct Known {
    name: &'static str,
    /// File names of its library, newest first.
    files: &'static [&'static str],
    /// The Debian package that contains it.
    package: &'static str,
    /// How it is configured.
    settings: Settings,
}

const KNOWN: [Known; 4] = [
    Known {
        name: "mimalloc",
        files: &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"],
        package: "libmimalloc2.0",
        settings: Settings::Variables("MIMALLOC_"),
    },
    Known {
        name: "jemalloc",
        files: &["libjemalloc.so.2", "libjemalloc.so"],
        package: "libjemalloc2",
        settings: Settings::MallocConf,
    },
    Known {
        name: "tcmalloc",
        files: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"],
        package: "libtcmalloc-minimal4",
        settings: Settings::Variables("TCMALLOC_"),
    },
    Known {
        name: "tbbmalloc",
        files: &["libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy.so"],
        package: "libtbbmalloc2",
        settings: Settings::Variables("TBB_MALLOC_"),
    },
];

/// Looks up a word of a flag: `glibc`, a known allocator, `native`, `native:POLICY`, or the path of a library. All
/// but native may be followed by settings: `jemalloc:thp=always`, `glibc:hugetlb=1+arena_max=1`.
///
/// # Errors
/// The word is none of these, the policy is invalid, or the file does not exist.
pub fn named(flag: &str, word: &str) -> Result<Allocator> {
    let found = match word.split_once(':').map_or((word, ""), |(kind, policy)| (kind, policy)) {
        ("glibc", settings) => glibc(settings).with_context(|| format!("--{flag} {word}"))?,
        ("native", policy) => native(policy).with_context(|| format!("--{flag} {word}"))?,
        (name, settings) => match KNOWN.iter().find(|known| known.name == name) {
            Some(known) => {
                let variables = known.settings.variables(settings).with_context(|| format!("--{flag} {word}"))?;
                installed(known, &folders(), &variables)
            }
            None => library(flag, name, settings)?,
        },
    };
    Ok(Allocator { name: word.to_string(), found })
}

fn native(policy: &str) -> Result<Found> {
    let policy = PolicyArgs::of_word(policy)?.config()?.policy;
    Ok(match host::lacks_for(&policy)? {
        Some(lack) => Found::Missing(lack),
        None => Found::Here(Target::Native(Box::new(policy))),
    })
}

fn glibc(settings: &str) -> Result<Found> {
    let variables = Settings::Tunables.variables(settings)?;
    Ok(Found::Here(Target::Malloc { preload: None, variables }))
}

fn library(flag: &str, word: &str, settings: &str) -> Result<Found> {
    if !word.contains('/') && !word.contains(".so") {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        bail!(
            "--{flag} {word}: unknown; name glibc, {}, native, native:POLICY, or the path of a malloc library{}",
            names.join(", "),
            nearest::question(word, names.iter().copied().chain(["glibc", "native"]))
        );
    }
    let path = Path::new(word).canonicalize();
    let path = path.with_context(|| format!("{word}: cannot preload it; give the path of a shared object"))?;
    if !path.is_file() {
        bail!("{word}: cannot preload it: not a file; give the path of a shared object");
    }
    let variables = Settings::Variables("").variables(settings).with_context(|| format!("--{flag} {word}"))?;
    Ok(Found::Here(Target::Malloc { preload: Some(path), variables }))
}

fn installed(known: &Known, folders: &[PathBuf], variables: &[(String, String)]) -> Found {
    let paths = known.files.iter().flat_map(|file| folders.iter().map(move |folder| folder.join(file)));
    match paths.into_iter().find(|path| path.is_file()) {
        Some(path) => Found::Here(Target::Malloc { preload: Some(path), variables: variables.to_vec() }),
        None => Found::Missing(format!(
            "no {} in the library directories; install Debian's package {}, or give its path (LD_LIBRARY_PATH is searched too)",
            known.files[0], known.package
        )),
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
    fn the_newest_library_is_taken_and_a_missing_one_has_its_package() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = [folder.path().to_path_buf()];
        for known in &KNOWN {
            let Found::Missing(why) = installed(known, &folders, &[]) else { panic!("{}: found", known.name) };
            assert!(why.contains(known.package) && why.contains(known.files[0]), "{why}");
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
