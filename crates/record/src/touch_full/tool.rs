//! Finds the valgrind tool, or builds it from the embedded source.
//!
//! The source is under the GPL, so the tool remains a separate program. It is compiled and linked with valgrind on the
//! user's machine, and runs in its own process. hksim only reads the file that the tool writes.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use super::{LACKEY_SUFFIX, Merging};
use crate::error::RecordError;
use crate::program;
use crate::run::Host;

static SOURCE: &str = include_str!("../../../../tools/valgrind-touch/hktouch.c");

const TOOL_FILE: &str = "hktouch-amd64-linux";
const LACKEY_FILE: &str = "lackey-amd64-linux";
const LIBRARY_VARIABLE: &str = "VALGRIND_LIB";
/// Directories in which distributions install valgrind's run-time files.
const LIBRARIES: [&str; 4] = ["libexec/valgrind", "lib/valgrind", "lib/x86_64-linux-gnu/valgrind", "lib64/valgrind"];
/// Libraries of the tool, in link order.
const ARCHIVES: [&str; 2] = ["libcoregrind-amd64-linux.a", "libvex-amd64-linux.a"];
/// The flags with which valgrind builds its own tools: no C library, at an address that programs do not use.
const COMPILE: [&str; 13] = [
    "-m64",
    "-O2",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fno-strict-aliasing",
    "-fno-pic",
    "-no-pie",
    "-fomit-frame-pointer",
    "-DVGA_amd64=1",
    "-DVGO_linux=1",
    "-DVGP_amd64_linux=1",
    "-DVGPV_amd64_linux_vanilla=1",
    "-w",
];
const LINK: [&str; 7] = [
    "-static",
    "-nodefaultlibs",
    "-nostartfiles",
    "-u",
    "_start",
    "-Wl,--build-id=none",
    "-Wl,-Ttext-segment=0x58000000",
];

/// A tool that records every access of a program to its blocks.
#[derive(Clone, Debug)]
pub struct TouchFull {
    launcher: PathBuf,
    tool: Tool,
    merging: Merging,
}

#[derive(Clone, Debug)]
enum Tool {
    /// hksim's own tool, in a directory with links to the rest of valgrind.
    Own { library: PathBuf },
    /// lackey, because hksim's own tool is not available.
    Lackey { why: String },
}

/// An installed valgrind.
struct Installed {
    launcher: PathBuf,
    prefix: PathBuf,
    library: PathBuf,
}

impl TouchFull {
    /// Finds valgrind, and builds hksim's own tool unless the user's cache has it. If the tool cannot be built, lackey
    /// is used.
    ///
    /// # Errors
    /// valgrind is not installed.
    pub fn find() -> Result<Self, RecordError> {
        let installed = Installed::find()?;
        match installed.own_tool() {
            Ok(library) => Ok(Self::new(installed, Tool::Own { library })),
            Err(why) => installed.lackey(why),
        }
    }

    /// As [`TouchFull::find`], but always with lackey: about 60 times slower, for comparison.
    ///
    /// # Errors
    /// valgrind is not installed.
    pub fn lackey() -> Result<Self, RecordError> {
        Installed::find()?.lackey("requested".to_string())
    }

    fn new(installed: Installed, tool: Tool) -> Self {
        Self { launcher: installed.launcher, tool, merging: Merging::default() }
    }

    /// Sets whether consecutive touches are merged.
    #[must_use]
    pub fn with_merging(self, merging: Merging) -> Self {
        Self { merging, ..self }
    }

    /// Whether consecutive touches are merged.
    #[must_use]
    pub fn merging(&self) -> Merging {
        self.merging
    }

    /// Why hksim's own tool is not used; `None` if it is used.
    #[must_use]
    pub fn why_lackey(&self) -> Option<&str> {
        match &self.tool {
            Tool::Own { .. } => None,
            Tool::Lackey { why } => Some(why),
        }
    }

    /// The words and variables that make the program run in valgrind. valgrind's messages go to files in the session.
    pub(crate) fn host(&self, session: &Path) -> Host {
        let log = |suffix: &str| {
            let mut word = OsString::from("--log-file=");
            // % is special in valgrind's file names.
            word.push(session.to_string_lossy().replace('%', "%%"));
            word.push(format!("/%p{suffix}"));
            word
        };
        let common = ["--trace-children=yes", "--vgdb=no", "--run-libc-freeres=no", "--run-cxx-freeres=no"];
        let mut words = vec![self.launcher.clone().into_os_string()];
        words.extend(common.map(OsString::from));
        let mut variables = Vec::new();
        match &self.tool {
            Tool::Own { library } => {
                words.extend(["--tool=hktouch", "--quiet"].map(OsString::from));
                words.push(log(".valgrind"));
                variables.push((LIBRARY_VARIABLE, library.clone().into_os_string()));
            }
            Tool::Lackey { .. } => {
                let options =
                    ["--tool=lackey", "--trace-mem=yes", "--trace-sched=yes", "--basic-counts=no"].map(OsString::from);
                words.extend(options);
                words.push("--child-silent-after-fork=yes".into());
                words.push(log(LACKEY_SUFFIX));
            }
        }
        Host { words, variables }
    }
}

impl Installed {
    fn find() -> Result<Self, RecordError> {
        let found = program::find("valgrind".as_ref()).map_err(|_| RecordError::NoValgrind)?;
        let found = found.canonicalize().unwrap_or(found);
        let prefix = found.parent().and_then(Path::parent).unwrap_or(Path::new("/usr")).to_path_buf();
        // Debian's valgrind is a script that changes the program's environment; the launcher itself is `valgrind.bin`.
        let behind = found.with_file_name("valgrind.bin");
        let launcher = if behind.is_file() { behind } else { found };
        let named = env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
        let usual = LIBRARIES.iter().map(|library| prefix.join(library));
        let library = named.into_iter().chain(usual).find(|library| library.join(LACKEY_FILE).is_file());
        let library =
            library.ok_or_else(|| RecordError::NoLackey { tool: prefix.join(LIBRARIES[0]).join(LACKEY_FILE) })?;
        Ok(Self { launcher, prefix, library })
    }

    fn lackey(self, why: String) -> Result<TouchFull, RecordError> {
        Ok(TouchFull::new(self, Tool::Lackey { why }))
    }

    /// The directory of hksim's own tool, or the reason why it is not available.
    fn own_tool(&self) -> Result<PathBuf, String> {
        let headers = self.prefix.join("include/valgrind");
        let archives = LIBRARIES.iter().map(|library| self.prefix.join(library));
        let archives = archives.chain([self.library.clone()]).find(|place| place.join(ARCHIVES[0]).is_file());
        let archives = archives.filter(|_| headers.join("pub_tool_basics.h").is_file());
        let archives = archives.ok_or("this valgrind was installed without the headers and libraries for tools")?;
        let cache = cache().ok_or("there is no home directory for its cache")?;
        let place = cache.join(format!("valgrind-touch-{:016x}", self.key(&archives)));
        if place.join(TOOL_FILE).is_file() {
            return Ok(place);
        }
        self.build(&headers, &archives, &cache, &place)?;
        Ok(place)
    }

    /// A hash that identifies a build: source, flags and valgrind version.
    fn key(&self, archives: &Path) -> u64 {
        let mut hasher = DefaultHasher::new();
        (SOURCE, COMPILE, LINK, &self.library).hash(&mut hasher);
        for archive in ARCHIVES {
            let data = archives.join(archive).metadata().ok();
            let time = data.as_ref().and_then(|data| data.modified().ok()?.duration_since(UNIX_EPOCH).ok());
            (data.map(|data| data.len()), time).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Builds in a temporary directory, then renames it, because another recorder may be building at the same time.
    fn build(&self, headers: &Path, archives: &Path, cache: &Path, place: &Path) -> Result<(), String> {
        let failed = |why: io::Error| format!("{}: {why}", cache.display());
        fs::create_dir_all(cache).map_err(failed)?;
        let fresh = tempfile::Builder::new().prefix(".building-").tempdir_in(cache).map_err(failed)?;
        let source = fresh.path().join("hktouch.c");
        fs::write(&source, SOURCE).map_err(failed)?;
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(&compiler)
            .args(COMPILE)
            .arg("-I")
            .arg(headers)
            .arg("-o")
            .arg(fresh.path().join(TOOL_FILE))
            .arg(&source)
            .args(LINK)
            .args(ARCHIVES.map(|archive| archives.join(archive)))
            .arg("-lgcc")
            .stdin(Stdio::null())
            .output()
            .map_err(|why| format!("the C compiler `{}` cannot be run: {why}", compiler.to_string_lossy()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| line.contains("error")).or(said.lines().next()).unwrap_or_default();
            return Err(format!("it does not compile with this valgrind: {first}"));
        }
        for entry in fs::read_dir(&self.library).map_err(failed)?.flatten() {
            symlink(entry.path(), fresh.path().join(entry.file_name())).map_err(failed)?;
        }
        match fs::rename(fresh.path(), place) {
            Err(why) if !place.join(TOOL_FILE).is_file() => Err(failed(why)),
            _ => Ok(()),
        }
    }
}

/// The user's cache directory for hksim.
fn cache() -> Option<PathBuf> {
    Some(hksim_embedded::user_cache()?.join("hksim"))
}
