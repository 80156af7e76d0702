//! Who is told what happens while programs run.

/// Is told what happens while programs run, which may take long.
pub trait Listener: Sync {
    /// What is done or waited for.
    fn note(&self, text: &str);
    /// What the user should know about the recording or the machine.
    fn warn(&self, text: &str);
}

/// Tells nobody.
impl Listener for () {
    fn note(&self, _: &str) {}
    fn warn(&self, _: &str) {}
}
