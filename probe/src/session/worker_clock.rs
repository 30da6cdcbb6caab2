//! Two clocks: the worker's, which starts when its interpreter is up, and ours.

use std::time::Instant;

/// Turns our moments into the worker's.
#[derive(Debug)]
pub struct WorkerClock {
    /// When the worker was started.
    spawned: Instant,
    /// The least delay between the worker's time of an event and ours of hearing it, in microseconds: how much later its
    /// clock started than it was spawned.
    delay: Option<u64>,
}

impl WorkerClock {
    pub fn new() -> Self {
        Self { spawned: Instant::now(), delay: None }
    }

    /// When the worker was started, by our clock.
    pub const fn spawned(&self) -> Instant {
        self.spawned
    }

    /// An event of the worker's time `at` was heard now.
    pub fn heard(&mut self, at: u64) {
        let delay = self.ours().saturating_sub(at);
        self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
    }

    /// Now, in the worker's time.
    pub fn now(&self) -> u64 {
        self.to_worker(self.ours())
    }

    /// Microseconds since the worker was started, as the worker counts them.
    pub fn to_worker(&self, ours: u64) -> u64 {
        ours.saturating_sub(self.delay.unwrap_or_default())
    }

    /// A time of the worker as microseconds since it was started.
    pub fn to_ours(&self, at: u64) -> u64 {
        at.saturating_add(self.delay.unwrap_or_default())
    }

    fn ours(&self) -> u64 {
        u64::try_from(self.spawned.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
