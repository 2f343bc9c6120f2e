//! The rate of control verbs: [`pace`] says when a call may go on, [`waiting`] keeps those that may not yet,
//! [`supervisor`] is the thread that receives and resumes them, and `reader` names them without waiting for their callers.

pub mod pace;
mod reader;
mod supervise;
pub mod supervisor;
pub mod waiting;

#[cfg(test)]
mod tests;
