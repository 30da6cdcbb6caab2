//! Who may be connected: so many at a time, and when all places are taken, whoever has done nothing for longest goes.
//!
//! Clients that never read, never write or drip hold their places as long as they like otherwise, and waiting for one
//! of them to leave is what they want.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::api::neighbourhood;

/// How long a connection without a request keeps its place in a crowd: the first comes with the connection.
const WAITING: Duration = Duration::from_millis(50);

/// How long one may stand still in a crowd while a request comes in or an answer goes out.
const STALLED: Duration = Duration::from_millis(250);

/// What must go in either direction to count as moving, in bytes: who drips stands still.
const STEP: u64 = 1 << 10;

/// How often a place is looked for when all are taken by those who move.
const TICK: Duration = Duration::from_millis(5);

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of everybody.
    pub all: usize,
    /// Of one address; this machine's own, or that of a proxy, may have all.
    pub each: usize,
}

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Places {
    limits: Limits,
    /// Whether addresses say who somebody is: behind a proxy all come from its own.
    tells_apart: bool,
    open: Mutex<Open>,
    start: Instant,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    places: HashMap<u64, Arc<State>>,
}

/// What one connection is doing.
#[derive(Debug)]
pub(crate) struct State {
    /// `None` where addresses do not matter.
    address: Option<IpAddr>,
    start: Instant,
    /// When [`STEP`] bytes last went in either direction, in milliseconds since the start.
    moved: AtomicU64,
    /// Bytes that went since.
    went: AtomicU64,
    /// Requests that are worked on now, which is no standing still.
    worked_on: AtomicU64,
    /// Requests so far.
    requests: AtomicU64,
    leave: Notify,
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    state: Arc<State>,
}

/// A request of a connection is worked on as long as this lives.
#[derive(Clone, Debug)]
pub(crate) struct Working(Arc<State>);

impl Places {
    pub(crate) fn new(limits: Limits, tells_apart: bool) -> Arc<Self> {
        Arc::new(Self { limits, tells_apart, open: Mutex::default(), start: Instant::now() })
    }

    /// A place for somebody at `address`; waits while all are taken by those who move. `None` when that address alone
    /// has as many as it may, and all of them move.
    pub(crate) async fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = (self.tells_apart && !address.to_canonical().is_loopback()).then(|| neighbourhood(address));
        loop {
            {
                let mut open = self.open();
                let theirs = |state: &State| address.is_some() && state.address == address;
                let mut room = open.places.len() < self.limits.all;
                if open.places.values().filter(|state| theirs(state)).count() >= self.limits.each {
                    if !open.dismiss(theirs) {
                        return None;
                    }
                    room = true;
                }
                if room || open.dismiss(|_| true) {
                    return Some(self.seat(&mut open, address));
                }
            }
            sleep(TICK).await;
        }
    }

    /// Has whoever stood still for longest leave, to make room for what is not a connection: files are counted too.
    pub(crate) fn dismiss(&self) -> bool {
        self.open().dismiss(|_| true)
    }

    fn seat(self: &Arc<Self>, open: &mut Open, address: Option<IpAddr>) -> Place {
        let state = Arc::new(State {
            address,
            start: self.start,
            moved: AtomicU64::new(0),
            went: AtomicU64::new(0),
            worked_on: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            leave: Notify::new(),
        });
        state.touch();
        let number = open.next;
        open.next += 1;
        open.places.insert(number, Arc::clone(&state));
        Place { places: Arc::clone(self), number, state }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Tells one of those to leave that stand still, the longest first, and frees the place at once.
    fn dismiss(&mut self, whom: impl Fn(&State) -> bool) -> bool {
        let still = self.places.iter().filter(|(_, state)| whom(state) && state.stands_still());
        let Some(number) = still.min_by_key(|(_, state)| state.moved.load(Ordering::Relaxed)).map(|(n, _)| *n) else {
            return false;
        };
        if let Some(state) = self.places.remove(&number) {
            state.leave.notify_one();
        }
        true
    }
}

impl State {
    /// So many bytes came. Those before the first request's head is whole are none: it comes with the connection.
    pub(crate) fn came(&self, bytes: usize) {
        if self.requests.load(Ordering::Relaxed) > 0 {
            self.went(bytes);
        }
    }

    /// So many bytes went in either direction.
    pub(crate) fn went(&self, bytes: usize) {
        if self.went.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64 >= STEP {
            self.went.store(0, Ordering::Relaxed);
            self.touch();
        }
    }

    /// It did something.
    fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
    }

    fn stands_still(&self) -> bool {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let still = Duration::from_millis(now.saturating_sub(self.moved.load(Ordering::Relaxed)));
        let allowed = if self.requests.load(Ordering::Relaxed) == 0 { WAITING } else { STALLED };
        self.worked_on.load(Ordering::Relaxed) == 0 && still > allowed
    }

    /// Counts a request, whose head has come.
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.touch();
    }

    /// Says that a request is worked on from now on.
    pub(crate) fn working(self: &Arc<Self>) -> Working {
        self.worked_on.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(self))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.touch();
        self.0.worked_on.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Place {
    /// What its connection is doing.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Until the place is needed for somebody else.
    pub(crate) async fn wanted(&self) {
        self.state.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn stood(place: &Place) {
        // As if it had not moved since the beginning.
        place.state.moved.store(0, Ordering::Relaxed);
    }

    fn places(all: usize, each: usize) -> Arc<Places> {
        let mut places = Places::new(Limits { all, each }, true);
        Arc::get_mut(&mut places).unwrap().start = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        places
    }

    #[tokio::test]
    async fn who_stood_still_for_longest_goes() {
        let places = places(2, 2);
        let (one, two) = (places.take(ip("192.0.2.1")).await.unwrap(), places.take(ip("192.0.2.2")).await.unwrap());
        stood(&two);
        let three = places.take(ip("192.0.2.3")).await.unwrap();
        two.wanted().await;
        assert_eq!(places.open().places.len(), 2);
        drop((one, two, three));
        assert_eq!(places.open().places.len(), 0);
    }

    #[tokio::test]
    async fn who_is_worked_for_stays() {
        let places = places(1, 1);
        let one = places.take(ip("192.0.2.1")).await.unwrap();
        let working = one.state().working();
        stood(&one);
        assert!(!places.dismiss());
        drop(working);
        stood(&one);
        assert!(places.dismiss());
    }

    #[tokio::test]
    async fn who_drips_stands_still() {
        let places = places(1, 1);
        let one = places.take(ip("192.0.2.1")).await.unwrap();
        stood(&one);
        // A head, however much of it.
        one.state().came(4096);
        assert!(one.state().stands_still());
        one.state().request();
        stood(&one);
        // A body, byte by byte, and then as lines carry it.
        (0..100).for_each(|_| one.state().came(1));
        assert!(one.state().stands_still());
        one.state().came(1400);
        assert!(!one.state().stands_still());
        stood(&one);
        one.state().went(100);
        assert!(one.state().stands_still());
        one.state().went(1000);
        assert!(!one.state().stands_still());
    }

    #[tokio::test]
    async fn one_address_never_has_all() {
        let places = places(10, 2);
        let here: Vec<Place> = vec![places.take(ip("::1")).await.unwrap(), places.take(ip("127.0.0.1")).await.unwrap()];
        let theirs = [places.take(ip("192.0.2.1")).await.unwrap(), places.take(ip("192.0.2.1")).await.unwrap()];
        assert!(places.take(ip("192.0.2.1")).await.is_none());
        let other = places.take(ip("192.0.2.9")).await.unwrap();
        stood(&theirs[0]);
        let again = places.take(ip("192.0.2.1")).await.unwrap();
        theirs[0].wanted().await;
        drop((here, theirs, other, again));
    }
}
