//! Many clients at a time: what they upload, read, and are answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::http::{Client, Reply};
use crate::synthetic::Template;

/// How it storms.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// Clients at a time.
    pub clients: usize,
    /// For how long.
    pub time: Duration,
    /// Reads of each client after each of its uploads.
    pub reads: usize,
    /// The number of the first record; each upload takes the next.
    pub first: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Log {
    /// Ids of the records that were acknowledged.
    pub acknowledged: Vec<String>,
    /// Times of the uploads that were acknowledged.
    pub uploads: Vec<Duration>,
    /// Times of the reads.
    pub reads: Vec<Duration>,
    /// Answers that it was too much, each with the time to wait.
    pub too_many: usize,
    /// Everything else that was answered, or that broke off.
    pub errors: Vec<String>,
    /// How long it stormed.
    pub time: Duration,
}

/// What is read, in turn; `{id}` is the record uploaded last.
const READS: [&str; 4] = [
    "/api/v1/measurements?family=gpt2&limit=20",
    "/api/v1/measurements/{id}",
    "/api/v1/compare?by=gpu",
    "/api/v1/measurements?torch=2.11&precision=fp16-amp&status=all",
];

impl Storm {
    /// Lets it storm at a server. A client that is told that it was too much waits as long as it is told.
    ///
    /// # Errors
    /// No client could connect.
    pub fn at(self, address: &str) -> Result<Log> {
        self.counted(address, &AtomicU64::new(0))
    }

    /// The same; `acknowledged` counts up as uploads are.
    ///
    /// # Errors
    /// No client could connect.
    pub fn counted(self, address: &str, acknowledged: &AtomicU64) -> Result<Log> {
        let template = Template::new();
        let next = AtomicU64::new(self.first);
        let clients: Vec<Client> = (0..self.clients).map(|_| Client::connect(address)).collect::<Result<_>>()?;
        let start = Instant::now();
        let mut log = Log::default();
        scope(|threads| {
            let handles: Vec<_> = clients
                .into_iter()
                .map(|mut client| {
                    let (template, next) = (&template, &next);
                    threads.spawn(move || {
                        let mut log = Log::default();
                        // Each has at least one turn, however slow the machine is.
                        loop {
                            let record = template.write(next.fetch_add(1, Ordering::Relaxed));
                            if let Err(error) = self.turn(&mut client, &record, &mut log, acknowledged) {
                                log.errors.push(format!("{error:#}"));
                                break;
                            }
                            if start.elapsed() >= self.time {
                                break;
                            }
                        }
                        log
                    })
                })
                .collect();
            for handle in handles {
                match handle.join() {
                    Ok(one) => log.add(one),
                    Err(_) => log.errors.push("a client panicked".to_owned()),
                }
            }
        });
        log.time = start.elapsed();
        Ok(log)
    }

    /// One upload and what is read after it.
    fn turn(&self, client: &mut Client, record: &str, log: &mut Log, acknowledged: &AtomicU64) -> Result<()> {
        let start = Instant::now();
        let reply = client.upload(record)?;
        match reply.status {
            200 | 201 => {
                log.uploads.push(start.elapsed());
                acknowledged.fetch_add(1, Ordering::Relaxed);
                log.acknowledged.push(reply.id().context("an answer without an id")?.to_owned());
            }
            429 => {
                log.too_many += 1;
                let wait = reply.retry_after.context("a 429 without Retry-After")?;
                ensure!(reply.body.contains("\"title\""), "a 429 without a problem: {}", reply.body);
                sleep(Duration::from_secs(wait).min(self.time / 4));
            }
            _ => log.errors.push(told(&reply)),
        }
        for turn in 0..self.reads {
            let at = (log.reads.len() + turn) % READS.len();
            let path = READS.get(at).copied().unwrap_or_default();
            let id = log.acknowledged.last().map_or("", String::as_str);
            if id.is_empty() && path.contains("{id}") {
                continue;
            }
            let start = Instant::now();
            let reply = client.get(&path.replace("{id}", id))?;
            if reply.status == 200 {
                log.reads.push(start.elapsed());
            } else {
                log.errors.push(told(&reply));
            }
        }
        Ok(())
    }
}

fn told(reply: &Reply) -> String {
    format!("{} {}", reply.status, reply.body.chars().take(200).collect::<String>())
}

impl Log {
    fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.uploads.extend(other.uploads);
        self.reads.extend(other.reads);
        self.too_many += other.too_many;
        self.errors.extend(other.errors);
    }
}

/// The acknowledged records that a server does not have, asked for one by one.
///
/// # Errors
/// It does not answer.
pub fn lost(address: &str, acknowledged: &[String]) -> Result<Vec<String>> {
    let mut client = Client::connect(address)?;
    let mut lost = Vec::new();
    for id in acknowledged {
        let reply = client.get(&format!("/api/v1/measurements/{id}"))?;
        if reply.status != 200 || !reply.body.contains("Synthetic card") {
            lost.push(format!("{id}: {}", told(&reply)));
        }
    }
    Ok(lost)
}

/// The time that `percent` of them took at most; zero of none.
pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut times, 50).as_millis(), 101);
        assert_eq!(percentile(&mut times, 99).as_millis(), 199);
        assert_eq!(percentile(&mut times, 100).as_millis(), 200);
        assert_eq!(percentile(&mut [], 50), Duration::ZERO);
    }
}
