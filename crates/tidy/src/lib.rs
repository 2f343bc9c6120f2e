//! Checks that hold the repository to its own rules.
