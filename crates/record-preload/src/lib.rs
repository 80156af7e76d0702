//! The recorder that is preloaded into the recorded program.
