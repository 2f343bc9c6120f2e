//! A thread for questions that the event loop must not wait for.
//!
//! Method: the loop sends a question, the thread answers it and rings an event counter, which the loop waits for beside
//! its sockets. The thread ends with its [`Worker`].

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The event loop's side.
#[derive(Debug)]
pub(crate) struct Worker<Question, Answer> {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    bell: OwnedFd,
}

impl<Question: Send + 'static, Answer: Send + 'static> Worker<Question, Answer> {
    /// Starts a thread with this name that answers each question by `answer`. Fails if no thread or event counter can
    /// be made.
    pub(crate) fn start(
        name: &str,
        mut answer: impl FnMut(Question) -> Answer + Send + 'static,
    ) -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ring = bell.try_clone()?;
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            for question in asked.iter() {
                if sender.send(answer(question)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&ring, &1u64.to_ne_bytes());
            }
        })?;
        Ok(Self {
            questions,
            answers,
            bell,
        })
    }

    /// Sends a question. A thread that has ended answers nothing.
    pub(crate) fn ask(&self, question: Question) {
        let _ = self.questions.send(question);
    }

    /// The next answer that has arrived; call it until it returns `None`.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        self.answers.try_recv().ok()
    }

    /// Readable when an answer has arrived.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
