//! The recordings that are simulated together. Forked processes share pages, so the cost of one process depends on its
//! relatives. Which pages processes shared before a recording began is taken from their addresses.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_linux_mm::Access;
use hksim_memory_trace::{
    Beginning, Event, Footer, Header, MemoryTraceError, Op, PageAtStart, Reader, SiteTable, Sites,
};
use thiserror::Error;

use crate::at_start::SharedHuge;
use crate::steps::{Action, Step, Translator};

/// Why recordings cannot be simulated.
#[derive(Debug, Error)]
pub enum FamilyError {
    /// A file cannot be read.
    #[error(transparent)]
    Trace(#[from] MemoryTraceError),
    /// The parent's recording is missing.
    #[error(
        "{}: the process began as a copy of process {parent_pid}, whose recording is not next to it; keep the files of a \
         recording together",
        path.display()
    )]
    NoParent {
        /// The file.
        path: PathBuf,
        /// The parent.
        parent_pid: u32,
    },
}

/// One recording of the family.
struct Member {
    reader: Reader,
    events: VecDeque<Event>,
    /// `None` until the parent forks.
    translator: Option<Translator>,
    is_at_end: bool,
    /// Time of the last event so far.
    time_last_ns: u64,
    has_ended: bool,
}

/// Which member a fork creates: by the parent's number and the child's process id.
pub(crate) type Children = HashMap<(usize, u32), usize>;

/// A recording with those of its relatives. Member 0 is the recording that was asked for.
pub struct Family {
    members: Vec<Member>,
    /// The members in the order in which they act at equal times: it does not depend on which one was asked for.
    order: Vec<usize>,
    children: Children,
    /// Forks so far whose child has no recording here.
    children_missing: u64,
    /// The call sites of all members. A forked child begins with mappings of its parent, and with their sites.
    sites: SiteTable,
    /// Times at which the process that was asked for is sampled.
    moments: Arc<[u64]>,
}

/// Steps of a batch.
const BATCH_STEPS: usize = 1 << 16;

impl Family {
    /// Samples the process that was asked for at these moments, which must be in ascending order: times since the start of the
    /// recording.
    pub fn with_moments(self, moments: Arc<[u64]>) -> Self {
        Self { moments, ..self }
    }

    /// The moments at which the process that was asked for is sampled.
    pub(crate) fn moments(&self) -> &Arc<[u64]> {
        &self.moments
    }

    /// Opens a recording, and its relatives in the same run: files in its directory, in its directory of children
    /// (`app.hkm.processes`), or in the parent directory. Relatives are those by fork, and if the recording began in the
    /// middle of a running program, all of the program's processes that were there.
    ///
    /// # Errors
    /// A file is damaged, or the recording of a parent is missing.
    pub fn open(path: &Path) -> Result<Self, FamilyError> {
        let reader = Reader::open(path)?;
        let mut members = vec![Member::new(reader)];
        let mut others: Vec<Reader> = Vec::new();
        for other in candidates(path) {
            // A file that cannot be read belongs to nobody.
            let Ok(other) = Reader::open(&other) else { continue };
            let (own, theirs) = (members[0].reader.header(), other.header());
            let is_relative = theirs.run_id == own.run_id && (theirs.pid, theirs.image) != (own.pid, own.image);
            let is_known = |known: &Reader| (known.header().pid, known.header().image) == (theirs.pid, theirs.image);
            // Of several copies of a recording, the one without changes is meant.
            match others.iter().position(is_known) {
                Some(known) if is_relative && theirs.history.len() < others[known].header().history.len() => {
                    others[known] = other;
                }
                None if is_relative => others.push(other),
                _ => {}
            }
        }
        // Add relatives until none is left.
        let is_relative = |other: &Reader, members: &[Member]| {
            members.iter().any(|it| are_related(other.header(), it.reader.header()))
        };
        while let Some(found) = others.iter().position(|other| is_relative(other, &members)) {
            members.push(Member::new(others.swap_remove(found)));
        }
        let (children, sites, moments) = (HashMap::new(), SiteTable::default(), Arc::default());
        let mut family = Self { members, order: Vec::new(), children, children_missing: 0, sites, moments };
        family.link()?;
        Ok(family)
    }

    /// Finds each member's parent.
    fn link(&mut self) -> Result<(), FamilyError> {
        let shared_huge = Arc::new(self.shared_huge_at_start()?);
        let mut parents = vec![None; self.members.len()];
        for (index, found) in parents.iter_mut().enumerate() {
            let header = self.members[index].reader.header();
            let Beginning::Fork { parent_pid, .. } = header.beginning else {
                let translator = Translator::at_exec(&header.inherited).among(Arc::clone(&shared_huge));
                self.members[index].translator = Some(translator);
                continue;
            };
            let parent = self.members.iter().position(|member| is_child(header, member.reader.header()));
            let parent = parent.ok_or_else(|| FamilyError::NoParent {
                path: self.members[index].reader.path().to_path_buf(),
                parent_pid,
            })?;
            self.children.insert((parent, header.pid), index);
            *found = Some(parent);
        }
        self.order = self.ordered(&parents);
        Ok(())
    }

    /// The huge pages that members shared when the recording began. Those of a process without relatives do not matter.
    fn shared_huge_at_start(&mut self) -> Result<SharedHuge, FamilyError> {
        let mut found = SharedHuge::default();
        let were_there = |member: &&mut Member| member.reader.header().beginning.is_attached();
        if self.members.iter_mut().filter(were_there).count() < 2 {
            return Ok(found);
        }
        for member in self.members.iter_mut().filter(were_there) {
            member.read_start()?;
            for event in &member.events {
                match &event.op {
                    Op::PagesAtStart(start) if start.state == PageAtStart::HugeShared => {
                        found.insert(start.pages.clone(), ());
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// The members with parents before their children, given each one's parent.
    fn ordered(&self, parents: &[Option<usize>]) -> Vec<usize> {
        // Damaged headers can name each other as parents.
        let depth =
            |index: usize| std::iter::successors(parents[index], |&parent| parents[parent]).take(parents.len()).count();
        let mut order: Vec<usize> = (0..parents.len()).collect();
        order.sort_by_key(|&index| {
            let header = self.members[index].reader.header();
            (depth(index), header.pid, header.image)
        });
        order
    }

    /// Number of recordings.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The header of the recording that was asked for.
    pub fn header(&self) -> &Header {
        self.members[0].reader.header()
    }

    /// Paths and headers of all recordings.
    pub fn recordings(&self) -> impl Iterator<Item = (&Path, &Header)> {
        self.members.iter().map(|member| (member.reader.path(), member.reader.header()))
    }

    /// The footer of the recording that was asked for, after its end. `None` if the file ends early.
    pub(crate) fn footer(&self) -> Option<&Footer> {
        self.members[0].reader.footer()
    }

    /// Forks so far whose child has no recording here. The pages that such a child copies are not predicted.
    pub(crate) fn children_missing(&self) -> u64 {
        self.children_missing
    }

    /// The call sites of the events so far.
    pub(crate) fn sites(&self) -> &Sites {
        self.sites.sites()
    }

    pub(crate) fn children(&self) -> &Children {
        &self.children
    }

    /// Whether a member began by exec, or in the middle.
    pub(crate) fn begins_empty(&self, member: usize) -> bool {
        !matches!(self.members[member].reader.header().beginning, Beginning::Fork { .. })
    }

    /// The translator of the recording that was asked for.
    pub(crate) fn translator(&self) -> Translator {
        self.members[0].translator.clone().unwrap_or_default()
    }

    /// Replaces `batch` with the next steps of all members, in order of time. False at the end.
    pub(crate) fn next_batch(&mut self, batch: &mut Vec<(usize, Step)>) -> Result<bool, FamilyError> {
        batch.clear();
        let mut steps = Vec::new();
        while batch.len() < BATCH_STEPS {
            let Some(member) = self.earliest()? else { break };
            let Some(mut event) = self.members[member].events.pop_front() else {
                let time_ns = self.members[member].end_ns();
                self.members[member].has_ended = true;
                batch.push((member, Step { time_ns, action: Action::End, populates: Vec::new() }));
                continue;
            };
            event.site = self.sites.import(self.members[member].reader.sites(), event.site);
            if let Op::Fork { child_pid } = event.op {
                self.fork(member, child_pid);
            }
            let Member { reader, translator, time_last_ns, .. } = &mut self.members[member];
            *time_last_ns = event.time_ns;
            let name = event.op.mapping().and_then(|map| map.name).map(|name| reader.name(name));
            if let Some(translator) = translator {
                translator.translate(&event, name, &mut steps);
            }
            batch.extend(steps.drain(..).map(|step| (member, step)));
        }
        Ok(!batch.is_empty())
    }

    /// How often each page of modelled memory faulted in the recording that was asked for, by reads and by writes.
    ///
    /// # Errors
    /// A recording cannot be read.
    pub fn touches(mut self) -> Result<BTreeMap<u64, [u64; 2]>, FamilyError> {
        let (mut batch, mut touches) = (Vec::new(), BTreeMap::new());
        while self.next_batch(&mut batch)? {
            for (member, step) in &batch {
                if let (0, Action::Touch { page, access, .. }) = (*member, &step.action) {
                    let counts: &mut [u64; 2] = touches.entry(*page).or_default();
                    counts[usize::from(*access != Access::Read)] += 1;
                }
            }
        }
        Ok(touches)
    }

    /// The member with the earliest event or end. Of equal times, the parent's event is first.
    fn earliest(&mut self) -> Result<Option<usize>, FamilyError> {
        let mut earliest: Option<(u64, usize)> = None;
        for position in 0..self.order.len() {
            let index = self.order[position];
            let is_forked = !self.begins_empty(index);
            let member = &mut self.members[index];
            // A child's events wait for its fork.
            if member.translator.is_none() {
                continue;
            }
            let time_ns = match member.is_finished()? {
                false => member.events.front().map(|event| event.time_ns),
                // A forked process whose end is not recorded can live on after its last event, and shares pages until its
                // parent's recording has its end.
                true if member.has_ended || is_forked && !member.knows_end() => None,
                true => Some(member.end_ns()),
            };
            let Some(time_ns) = time_ns else { continue };
            if earliest.is_none_or(|(before_ns, _)| time_ns < before_ns) {
                earliest = Some((time_ns, index));
            }
        }
        Ok(earliest.map(|(_, index)| index))
    }

    fn fork(&mut self, parent: usize, child_pid: u32) {
        if let Some(&child) = self.children.get(&(parent, child_pid)) {
            self.members[child].translator = self.members[parent].translator.as_ref().map(Translator::forked);
        } else {
            self.children_missing += 1;
        }
    }
}

impl Member {
    fn new(reader: Reader) -> Self {
        let events = VecDeque::new();
        Self { reader, events, translator: None, is_at_end: false, time_last_ns: 0, has_ended: false }
    }

    /// Whether its recording has the time of its end.
    fn knows_end(&self) -> bool {
        self.reader.footer().is_some_and(|footer| footer.end_ns.is_some())
    }

    /// When its address space ended, or its recording did; the time of its last event if the file has no end.
    fn end_ns(&self) -> u64 {
        let end_ns = self.reader.footer().and_then(|footer| footer.end_ns);
        end_ns.unwrap_or_default().max(self.time_last_ns)
    }

    /// Reads all that the process had when the recording began.
    fn read_start(&mut self) -> Result<(), FamilyError> {
        while !self.is_at_end && self.events.back().is_none_or(|event| event.op.is_at_start()) {
            self.read_chunk()?;
        }
        Ok(())
    }

    fn read_chunk(&mut self) -> Result<(), FamilyError> {
        let mut events = Vec::new();
        self.is_at_end = !self.reader.next_chunk(&mut events)?;
        self.events.extend(events);
        Ok(())
    }

    /// Whether all events have been taken; reads the next chunk if necessary.
    fn is_finished(&mut self) -> Result<bool, FamilyError> {
        if self.events.is_empty() && !self.is_at_end {
            self.read_chunk()?;
        }
        Ok(self.events.is_empty() && self.is_at_end)
    }
}

/// Whether `child` was forked by `parent`.
fn is_child(child: &Header, parent: &Header) -> bool {
    child.beginning == Beginning::Fork { parent_pid: parent.pid, parent_image: parent.image }
}

/// Whether one forked the other, or both were there when the recording of a running program began.
fn are_related(one: &Header, other: &Header) -> bool {
    let were_there = one.beginning.is_attached() && other.beginning.is_attached();
    were_there || is_child(one, other) || is_child(other, one)
}

/// Recordings that may belong to the same run.
pub(crate) fn candidates(path: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    // The parent of a bare file name is empty.
    let parent_of = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let directory = parent_of(path);
    folders.extend(hksim_recording_files::folders(path));
    if hksim_recording_files::is_folder(&directory) {
        folders.push(parent_of(&directory));
        folders.push(directory);
    }
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.is_file() && file.extension() == path.extension());
    files.sort();
    files
}
