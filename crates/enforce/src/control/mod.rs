//! The rate of control verbs: [`pace`] says when a call may go on, [`waiting`] keeps those that may not yet,
//! [`supervisor`] is the thread that receives and resumes them.

pub mod pace;
mod supervise;
pub mod supervisor;
pub mod waiting;

#[cfg(test)]
mod tests;
