//! Two looks at a process, and looks by the id of a thread.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use hksim_inspect::{InspectError, Thread, TwoLooks, inspect, inspect_twice};

/// Lets a program that was started get through its exec and its loader, which a look takes for the end of the program.
fn settle() {
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn the_first_look_is_kept_if_the_process_ends() {
    let mut child = Command::new("sleep").arg("1").spawn().expect("it starts");
    settle();
    // Nothing waits for it meanwhile, so that it stays as a zombie.
    let TwoLooks { first, second } = inspect_twice(child.id(), Duration::from_millis(1500)).expect("a first look");
    assert_eq!((first.pid, first.program.as_str()), (child.id(), "sleep"));
    assert!(first.rss_bytes > 0);
    assert!(matches!(second, Err(InspectError::NoMemory { .. })), "{second:?}");
    child.wait().expect("its status");
}

#[test]
fn another_program_of_the_same_process_is_not_compared() {
    let mut child = Command::new("sh").args(["-c", "sleep 1; exec sleep 60"]).spawn().expect("it starts");
    settle();
    let looks = inspect_twice(child.id(), Duration::from_millis(1500)).expect("a first look");
    child.kill().and_then(|()| child.wait()).expect("its status");
    assert!(matches!(looks.second, Err(InspectError::Vanished { .. })), "{:?}", looks.second);
}

#[test]
fn the_id_of_a_thread_is_one_of_its_process() {
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let sleeper = std::thread::Builder::new().name("sleeper".to_string()).spawn(move || {
        // SAFETY: has no precondition.
        tell.send(unsafe { libc::gettid() } as u32).expect("a listener");
        let _ = ended.recv();
    });
    let id = told.recv().expect("an id");
    let (by_thread, by_process) = (inspect(id).expect("a look"), inspect(std::process::id()).expect("a look"));
    drop(end);
    sleeper.expect("a thread").join().expect("its end");
    assert_eq!(by_thread.pid, std::process::id());
    assert_eq!(by_thread.program, by_process.program);
    assert_eq!(by_thread.thread, Some(Thread { id, name: "sleeper".to_string() }));
    assert_eq!(by_process.thread, None);
}
