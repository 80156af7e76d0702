//! Dev-only: the independent naive model and helpers shared by tests
