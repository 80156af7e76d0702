//! The recordings of one run: the started program and its descendants.

use std::path::{Path, PathBuf};

use hksim_memory_trace::{Beginning, Header, MemoryTraceError, Reader};

use crate::family::candidates;

/// Number of process ids on a 64-bit machine (`PID_MAX_LIMIT`).
const PIDS: u32 = 1 << 22;

/// A recording of a run.
#[derive(Clone, Debug)]
pub struct RunFile {
    /// Its path.
    pub path: PathBuf,
    /// Its header.
    pub header: Header,
}

/// Identifies the same process in two runs of a program, whose process ids differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `None` for the program that was started: it may be named in several ways.
    program: Option<String>,
    is_forked: bool,
    /// Among those with the same program and beginning, in order of creation.
    number: usize,
}

/// The recordings of one run, in order of creation.
#[derive(Clone, Debug, Default)]
pub struct RunFiles(Vec<RunFile>);

impl RunFiles {
    /// The recordings of the run that `path` belongs to: files next to it, and in its directory of children. Files that
    /// cannot be read are left out.
    ///
    /// # Errors
    /// `path` itself cannot be read.
    pub fn around(path: &Path) -> Result<Self, MemoryTraceError> {
        let own = RunFile { path: path.to_path_buf(), header: Reader::open(path)?.header().clone() };
        let mut files = vec![own];
        for other in candidates(path) {
            let Ok(reader) = Reader::open(&other) else { continue };
            let header = reader.header();
            let is_known = files.iter().any(|file| is_same_space(&file.header, header));
            if header.run_id == files[0].header.run_id && !is_known {
                files.push(RunFile { path: other, header: header.clone() });
            }
        }
        let root_pid = root_pid(&files[0].header);
        // The kernel gives ids in ascending order, and starts again after the last one.
        files.sort_by_key(|file| (file.header.pid.wrapping_sub(root_pid) % PIDS, file.header.image));
        Ok(Self(files))
    }

    /// All files, in order of creation.
    pub fn files(&self) -> &[RunFile] {
        &self.0
    }

    /// The first program of the started process. Only its recording has the arguments of the command.
    pub fn started(&self) -> Option<&RunFile> {
        self.0.iter().find(|file| is_started(&file.header))
    }

    /// Where an address space is in this run.
    pub fn place(&self, header: &Header) -> Option<Place> {
        let index = self.0.iter().position(|file| is_same_space(&file.header, header))?;
        let number = self.0[..index].iter().filter(|file| is_alike(&file.header, header)).count();
        Some(Place { program: program(header), is_forked: is_forked(header), number })
    }

    /// The recording at a place.
    pub fn at(&self, place: &Place) -> Option<&RunFile> {
        self.0.iter().find(|file| self.place(&file.header).as_ref() == Some(place))
    }
}

impl Place {
    /// The place in words.
    pub fn text(&self) -> String {
        let forked = if self.is_forked { "forked " } else { "" };
        match &self.program {
            Some(program) => format!("{forked}process {} of program {program}", self.number + 1),
            None => "process of the program that was started".to_string(),
        }
    }
}

/// The started process.
fn root_pid(header: &Header) -> u32 {
    header.run_id.rsplit('-').next().and_then(|pid| pid.parse().ok()).unwrap_or(header.pid)
}

fn is_same_space(one: &Header, other: &Header) -> bool {
    (one.pid, one.image) == (other.pid, other.image)
}

fn is_started(header: &Header) -> bool {
    header.image == 0 && header.pid == root_pid(header)
}

/// The program of an address space, without its directory; `None` for the one that was started.
fn program(header: &Header) -> Option<String> {
    let name = |word: &String| word.rsplit('/').next().unwrap_or_default().to_string();
    (!is_started(header)).then(|| header.command.first().map(name).unwrap_or_default())
}

fn is_forked(header: &Header) -> bool {
    matches!(header.beginning, Beginning::Fork { .. })
}

/// Whether two address spaces run the same program, and both began by fork or both by exec.
fn is_alike(one: &Header, other: &Header) -> bool {
    program(one) == program(other) && is_forked(one) == is_forked(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_memory_trace::{Footer, Writer};

    #[test]
    fn processes_of_two_runs_correspond_by_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |run: &str, name: &str, command: &[&str], pid, image, parent: Option<u32>| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            let beginning =
                parent.map_or(Beginning::Exec, |parent_pid| Beginning::Fork { parent_pid, parent_image: 0 });
            let header = Header { run_id: run.to_string(), pid, image, beginning, ..Header::example(command) };
            Writer::create(&path, &header).and_then(|writer| writer.finish(&Footer::default())).expect("a file");
            path
        };
        let main = write("a-4194300", "a.hkm", &["sh", "-c", "x"], 4_194_300, 0, None);
        // Process ids wrapped around.
        let late = write("a-4194300", "a.hkm.processes/x.5.hkm", &["x"], 5, 1, None);
        let early = write("a-4194300", "a.hkm.processes/x.4194303.hkm", &["x"], 4_194_303, 1, None);
        write("a-4194300", "a.hkm.processes/sh.5.hkm", &["sh"], 5, 0, Some(4_194_300));
        // The folder of an earlier version.
        let other = write("b-70", "b.hkm", &["sh", "-c", "x"], 70, 0, None);
        write("b-70", "b.processes/x.71.hkm", &["x"], 71, 1, None);
        let expected = write("b-70", "b.processes/x.75.hkm", &["x"], 75, 1, None);
        let (run, again) = (RunFiles::around(&late).expect("files"), RunFiles::around(&other).expect("files"));
        assert_eq!(run.files().len(), 4);
        assert_eq!(run.started().map(|file| file.path.as_path()), Some(main.as_path()));
        let place = |path| run.place(Reader::open(path).expect("a file").header()).expect("a place");
        assert_eq!(again.at(&place(&late)).map(|file| file.path.as_path()), Some(expected.as_path()));
        assert_eq!((place(&early).number, place(&main).number), (0, 0));
    }
}
