//! How often somebody may upload: each token by itself, and who has none by his address.
//!
//! Held in memory only, and only as long as it matters: nothing of who asked is stored or logged.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most callers that are remembered at a time.
const CALLERS: usize = 10_000;

/// How many uploads may come at once, in minutes' worth of them.
const BURST: u32 = 1;

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// A token, by its id.
    Token(String),
    /// An address; of IPv6 the first half, which is what one customer has.
    Peer(IpAddr),
}

impl Caller {
    pub(super) fn peer(ip: IpAddr) -> Self {
        Self::Peer(neighbourhood(ip))
    }
}

/// What one customer has: an address, of IPv6 the first half of it.
pub(crate) fn neighbourhood(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        ip => ip,
    }
}

/// A bucket for each caller that fills at a steady pace (the generic cell rate algorithm).
#[derive(Debug)]
pub(super) struct Rate<K = Caller> {
    /// Time that one call is worth; `None` when there is no limit.
    each: Option<Duration>,
    burst: Duration,
    /// When each caller's bucket is full again.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Hash + Eq> Rate<K> {
    /// So many calls a minute; 0 is no limit.
    pub(super) fn per_minute(calls: u32) -> Self {
        let minute = Duration::from_secs(60);
        Self { each: minute.checked_div(calls), burst: minute * BURST, full_at: Mutex::default() }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// It is too soon; how long to wait.
    pub(super) fn count(&self, caller: K, now: Instant) -> Result<(), Duration> {
        let Some(each) = self.each else { return Ok(()) };
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= CALLERS && !full_at.contains_key(&caller) {
            // Whose bucket is full is as one who never came.
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= CALLERS {
                return Err(each.max(Duration::from_secs(1)));
            }
        }
        let at = full_at.get(&caller).copied().unwrap_or(now).max(now);
        let next = at + each;
        let ahead = next.duration_since(now);
        if ahead > self.burst {
            return Err(ahead - self.burst);
        }
        full_at.insert(caller, next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_at_once_then_a_steady_pace() {
        let rate = Rate::per_minute(60);
        let start = Instant::now();
        for _ in 0..60 {
            rate.count("a", start).unwrap();
        }
        assert_eq!(rate.count("a", start), Err(Duration::from_secs(1)));
        rate.count("b", start).unwrap();
        rate.count("a", start + Duration::from_secs(1)).unwrap();
        assert_eq!(rate.count("a", start + Duration::from_millis(1500)), Err(Duration::from_millis(500)));
    }

    #[test]
    fn no_limit_is_none() {
        let rate = Rate::per_minute(0);
        let now = Instant::now();
        assert!((0..100_000).all(|_| rate.count("a", now).is_ok()));
    }

    #[test]
    fn callers_are_forgotten_and_never_too_many() {
        let rate = Rate::per_minute(60);
        let start = Instant::now();
        for caller in 0..CALLERS {
            rate.count(caller, start).unwrap();
        }
        assert!(rate.count(CALLERS, start).is_err(), "all are remembered still");
        rate.count(0, start).unwrap();
        rate.count(CALLERS, start + Duration::from_secs(3)).unwrap();
        assert!(rate.full_at.lock().unwrap().len() < 10);
    }

    #[test]
    fn one_customer_is_one_caller() {
        let peer = |text: &str| Caller::peer(text.parse().unwrap());
        assert_eq!(peer("2001:db8:1:2:3::4"), peer("2001:db8:1:2:ffff::"));
        assert_ne!(peer("2001:db8:1:2::"), peer("2001:db8:1:3::"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }
}
