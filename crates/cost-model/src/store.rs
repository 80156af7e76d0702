//! The profile of this machine in the user's cache, so that commands find it without being asked.
//!
//! A profile is kept for one machine, processor, kernel and build of hksim. All four are in the file's name, so machines
//! that share a home folder, and builds side by side, have files of their own.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hksim_linux_probe::sysfs;
use hksim_output_files::Unfinished;

use crate::machine::Machine;
use crate::profile::{CostError, Profile};

/// Longest part of the file's name, in bytes. Four parts stay below the limit of 255.
const PART_BYTES_MAX: usize = 60;

/// The place of this machine's profile.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

/// A profile found in the store.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The profile.
    pub profile: Profile,
    /// The time since it was measured; zero if the clock was set back.
    pub age: Duration,
}

impl Store {
    /// The place in a folder, for this machine and a build of hksim: its version and commit.
    pub fn new(folder: &Path, build: &str) -> Store {
        let Machine { processor, kernel, .. } = Machine::here();
        let id = sysfs::text("/etc/machine-id").unwrap_or_default();
        let parts = [id.trim(), &processor, &kernel, build].map(plain);
        Store { path: folder.join(format!("{}.toml", parts.join("_"))) }
    }

    /// The file, which may not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The profile, if there is one.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn read(&self) -> Result<Option<Stored>, CostError> {
        let profile = match Profile::read(&self.path) {
            Ok(profile) => profile,
            Err(CostError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        let written = fs::metadata(&self.path).and_then(|metadata| metadata.modified());
        let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok()).unwrap_or_default();
        // Long names are cut.
        Ok(profile.is_of(&Machine::here()).then_some(Stored { profile, age }))
    }

    /// Keeps a profile. Of several processes that keep one at the same time, the last one's stays, whole.
    ///
    /// # Errors
    /// The folder cannot be created, or the file cannot be written.
    pub fn write(&self, profile: &Profile) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let unfinished = Unfinished::file(&self.path)?;
        fs::write(unfinished.path_of_file(), profile.text())?;
        unfinished.keep(&self.path)
    }
}

/// A text as a part of a file's name.
fn plain(text: &str) -> String {
    let kept =
        |character: char| if character.is_ascii_alphanumeric() || ".+-".contains(character) { character } else { '-' };
    text.chars().map(kept).take(PART_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::VERSION;

    fn profile(rounds: u32) -> Profile {
        let Machine { processor, processors, kernel } = Machine::here();
        let text = format!(
            "version = {VERSION}\nmachine = {processor:?}\nprocessors = {processors}\nkernel = {kernel:?}\nelapsed_s = 1.0\n\
             [costs.write_fault]\nlow_ns = 1.0\nmedian_ns = 2.0\nhigh_ns = 3.0\nkernel_share = 1.0\nrounds = {rounds}\n"
        );
        toml::from_str(&text).expect("a profile")
    }

    #[test]
    fn a_profile_is_found_by_the_build_that_kept_it_until_it_is_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(&folder.path().join("deep/er"), "0.2.0+abc");
        assert!(store.read().expect("no file is no error").is_none());
        store.write(&profile(9)).expect("it is kept");
        let stored = store.read().expect("it is read").expect("it is there");
        assert_eq!(stored.profile, profile(9));
        assert!(stored.age < Duration::from_secs(600), "{:?}", stored.age);
        let other = Store::new(&folder.path().join("deep/er"), "0.2.0+abd");
        assert!(other.read().expect("no file").is_none(), "another build");
        let elsewhere = Profile { machine: "another".into(), ..profile(9) };
        store.write(&elsewhere).expect("it is kept");
        assert!(store.read().expect("it is read").is_none(), "the machine changed");
        fs::write(store.path(), "version = ").expect("a damaged file");
        assert!(matches!(store.read(), Err(CostError::NotAProfile { .. })));
        store.write(&profile(8)).expect("it is replaced");
        assert_eq!(store.read().expect("it is read").expect("it is there").profile, profile(8));
    }

    #[test]
    fn profiles_kept_at_the_same_time_are_never_mixed() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path(), "build");
        store.write(&profile(1)).expect("it is kept");
        std::thread::scope(|scope| {
            for rounds in 2..6 {
                let store = store.clone();
                scope.spawn(move || (0..50).for_each(|_| store.write(&profile(rounds)).expect("it is kept")));
            }
            for _ in 0..200 {
                let found = store.read().expect("always a whole file").expect("always a file").profile;
                assert!((1..6).contains(&found.rounds_min()));
            }
        });
        let files = fs::read_dir(folder.path()).expect("the folder").count();
        assert_eq!(files, 1, "nothing is left over");
    }

    #[test]
    fn names_of_files_are_plain_and_short() {
        assert_eq!(plain("AMD EPYC (Zen 4)/../x"), "AMD-EPYC--Zen-4--..-x");
        assert_eq!(plain(&"é".repeat(500)).len(), PART_BYTES_MAX);
    }
}
