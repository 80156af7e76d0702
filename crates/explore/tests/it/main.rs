//! Answers and rankings of random tables, against naive computations.

mod answer;
mod rank;
