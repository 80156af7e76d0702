//! Threads on stacks that the replay allocates. The stacks are present from the start and stay when a thread exits, so
//! that they do not change the process's RSS. (The C library unmaps the stacks that it allocates itself.)

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};

use hksim_policy::PAGE_BYTES;

use hksim_linux_probe::resident::Resident;

/// Size of a thread's stack, including its guard page.
const STACK_BYTES: usize = 128 << 10;

/// The work of a thread.
pub(crate) trait Task: Sync {
    fn run(&self);
}

/// Running threads. Dropping this joins all of them.
pub(crate) struct Threads<'a, T: Task> {
    running: Vec<libc::pthread_t>,
    _stacks: Stacks,
    _tasks: PhantomData<&'a [T]>,
}

impl<'a, T: Task> Threads<'a, T> {
    /// Starts a thread for each task. On failure, the started threads cannot be joined, because tasks may wait for each
    /// other; the caller must end the process.
    pub(crate) fn start(tasks: &'a [T]) -> io::Result<Threads<'a, T>> {
        let stacks = ManuallyDrop::new(Stacks::new(tasks.len())?);
        let running = tasks.iter().enumerate().map(|(at, task)| spawn(task, stacks.stack(at)));
        let running = running.collect::<io::Result<Vec<_>>>()?;
        Ok(Threads { running, _stacks: ManuallyDrop::into_inner(stacks), _tasks: PhantomData })
    }
}

impl<T: Task> Drop for Threads<'_, T> {
    fn drop(&mut self) {
        for &thread in &self.running {
            // SAFETY: we created this thread, and it is joined only here.
            unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        }
    }
}

extern "C" fn enter<T: Task>(task: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` passed a task that lives until the thread is joined.
    unsafe { &*task.cast::<T>() }.run();
    std::ptr::null_mut()
}

/// Starts a thread on a stack. Task and stack must live until it is joined, which [`Threads`] ensures.
fn spawn<T: Task>(task: &T, stack: *mut c_void) -> io::Result<libc::pthread_t> {
    let checked = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    let argument = std::ptr::from_ref(task).cast_mut().cast();
    // SAFETY: the attributes are initialised first; stack and task outlive the thread; the handle is written on
    // success.
    unsafe {
        checked(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        checked(libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack, STACK_BYTES - PAGE_BYTES as usize))?;
        checked(libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), enter::<T>, argument))?;
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        Ok(thread.assume_init())
    }
}

/// The stacks of all threads, each above a guard page.
struct Stacks(Resident<u8>);

impl Stacks {
    fn new(count: usize) -> io::Result<Stacks> {
        let stacks = Stacks(Resident::zeroed(count * STACK_BYTES)?);
        for at in 0..count {
            let guard = stacks.0.as_ptr().wrapping_add(at * STACK_BYTES).cast_mut().cast();
            // SAFETY: the lowest page of a stack that is not yet in use.
            if unsafe { libc::mprotect(guard, PAGE_BYTES as usize, libc::PROT_NONE) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(stacks)
    }

    /// The lowest usable byte of a stack.
    fn stack(&self, at: usize) -> *mut c_void {
        self.0.as_ptr().wrapping_add(at * STACK_BYTES + PAGE_BYTES as usize).cast_mut().cast()
    }
}
