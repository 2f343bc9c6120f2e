//! Where scenarios run: the [`Testbed`] trait.
#![forbid(unsafe_code)]
