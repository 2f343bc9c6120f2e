//! The software card in a real kernel.

mod containers;
mod kernel;
