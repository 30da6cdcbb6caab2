//! The worker: the user's own Python, running [`scripts::WORKER`](crate::scripts::WORKER) in a process of its own.

mod ask;
mod discover;
mod process;
mod protocol;
mod quarters;
mod reader;

pub use ask::ask;
pub use discover::{Python, find};
pub use process::{End, Launch, Next, Worker, kill};
pub use protocol::{AttemptOutcome, Command, ErrorKind, Event, GuardKind, Hello, Job, PROTOCOL, Parsed, Phase, Step};
pub use quarters::Quarters;
pub use reader::Line;
