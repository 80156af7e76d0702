//! Translations that a design's calls invalidate one by one, against the kernel's own trace of a replay.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{Bench, has_single_pages, number};

/// A trace of the kernel with a buffer of its own: the invalidations by this thread and by the processes that it starts.
struct Trace {
    folder: PathBuf,
}

impl Trace {
    /// `None`, with the reason, if this user or kernel cannot trace.
    fn begin() -> Option<Trace> {
        let folder = PathBuf::from(format!("/sys/kernel/tracing/instances/hksim-test-{}", std::process::id()));
        let begun = fs::create_dir(&folder).and_then(|()| {
            let trace = Trace { folder: folder.clone() };
            // SAFETY: asks for the id of this thread and touches no memory.
            let thread = unsafe { libc::gettid() };
            for (file, text) in [
                ("buffer_size_kb", "8192".to_string()),
                ("options/event-fork", "1".to_string()),
                ("set_event_pid", thread.to_string()),
                ("events/tlb/tlb_flush/enable", "1".to_string()),
            ] {
                fs::write(folder.join(file), text)?;
            }
            Ok(trace)
        });
        begun.map_err(|why| println!("skipped: invalidated translations cannot be traced: {why}")).ok()
    }

    /// Pages that each process invalidated one by one since the last call.
    fn pages(&self) -> BTreeMap<u32, u64> {
        let path = self.folder.join("trace");
        let text = fs::read_to_string(&path).expect("the trace");
        fs::write(&path, "").expect("an empty trace");
        // `# entries-in-buffer/entries-written: N/N   #P:2`
        let (_, entries) = text.split_once("entries-written: ").expect("the numbers of entries");
        let (kept, written) = entries.split_once(' ').and_then(|(both, _)| both.split_once('/')).expect("two numbers");
        assert_eq!(kept, written, "events were lost");
        let mut pages = BTreeMap::new();
        for line in text.lines().filter(|line| line.contains("local MM shootdown")) {
            // `NAME-PID [CPU] FLAGS TIME: tlb_flush: pages:N reason:...`; all translations are -1 pages.
            let (before, after) = line.split_once(" tlb_flush: pages:").expect("an event");
            let (task, _) = before.split_once('[').expect("a processor");
            let (_, pid) = task.trim_end().rsplit_once('-').expect("a process");
            let (count, _) = after.split_once(' ').expect("a reason");
            *pages.entry(pid.parse().expect("a number")).or_default() += count.parse().unwrap_or(0);
        }
        pages
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A replay's process starts, and ends, with some 150 pages of its own.
#[test]
fn pages_are_invalidated_one_by_one_as_often_as_predicted() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 30k --ws 400 --min 100 --max 30k -o rm.hkt");
    let Some(trace) = Trace::begin() else { return };
    for design in [
        "--purge free --purge-delay 0",
        "--purge free --slab 16K --purge-delay 100us",
        "--purge dontneed --purge-delay 0",
    ] {
        let design = format!("rm.hkt --huge never --touch all {design}");
        let predicted = bench.json(&format!("sim {design} --kernel host"));
        if predicted["kernel"]["thp"]["global"] == "always" {
            return eprintln!("skipped: transparent huge pages are not in mode madvise");
        }
        if !has_single_pages(&predicted) {
            return;
        }
        let predicted = number(&predicted, "page_operations.flushed_pages");
        assert!(predicted > 2000, "{design}: {predicted}");
        trace.pages();
        bench.ok(&format!("replay {design}"));
        let traced = trace.pages().into_values().max().expect("processes");
        assert!((predicted..predicted + 300).contains(&traced), "{design}: {predicted} predicted, {traced} traced");
    }
}
