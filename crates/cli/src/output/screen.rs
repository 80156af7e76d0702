//! How much is printed, and how wide: the flags that every command has.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::detail;

/// The width of help screens, tables and prose, unless the terminal is narrower (help and prose) or `--wide` is given (tables).
pub const COLUMNS: usize = 100;

/// The minimum width of prose: narrower text is hard to read.
const COLUMNS_MIN: usize = 60;

/// The heading of output flags in help screens.
pub const HEADING: &str = "Output";

/// Flags of every command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ScreenArgs {
    /// Hide progress and notes; print the result, warnings and errors
    #[arg(short, long, global = true, help_heading = HEADING, conflicts_with = "verbose")]
    quiet: bool,
    /// Also print what is read, and how long it takes
    #[arg(short, long, global = true, help_heading = HEADING)]
    verbose: bool,
    /// Print tables in full, wider than 100 columns if need be
    #[arg(long, global = true, help_heading = HEADING, hide_short_help = true)]
    wide: bool,
}

/// Set once by `main`. The output of a process has one form, and passing it to every table would hide what a table is.
static SCREEN: OnceLock<ScreenArgs> = OnceLock::new();

impl ScreenArgs {
    /// Applies the flags to all later output of this process.
    pub fn apply(self) {
        // A second call has no effect.
        let _ = SCREEN.set(self);
    }
}

fn screen() -> ScreenArgs {
    SCREEN.get().copied().unwrap_or_default()
}

/// Whether notes and progress are hidden.
pub fn is_quiet() -> bool {
    screen().quiet
}

/// Whether details are printed.
pub fn is_verbose() -> bool {
    screen().verbose
}

/// The width of tables; `None`: as wide as they are.
pub fn columns() -> Option<usize> {
    (!screen().wide).then_some(COLUMNS)
}

/// The width of prose on a terminal; `None` if standard output is none: programs search whole lines.
pub fn terminal_columns() -> Option<usize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: TIOCGWINSZ writes one `winsize`, to the pointer given.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, size.as_mut_ptr()) };
    // SAFETY: the memory is zeroed, and zeros are a valid `winsize`.
    let columns = usize::from(unsafe { size.assume_init() }.ws_col);
    (status == 0 && columns > 0).then(|| columns.clamp(COLUMNS_MIN, COLUMNS))
}

/// Prints the time and memory that this process took, with `--verbose`.
pub fn report_cost() {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `getrusage` writes one `rusage`, to the pointer given.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: the memory is zeroed, and zeros are a valid `rusage`.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let peak = super::units::bytes(usage.ru_maxrss.cast_unsigned() * 1024);
    detail(&format!("{:.2} s user, {:.2} s system, {peak} peak RSS", seconds(usage.ru_utime), seconds(usage.ru_stime)));
}
