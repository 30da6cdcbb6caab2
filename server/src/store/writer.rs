//! The one writer: records that wait together are written together, and share one wait for the disk.

use tokio::sync::{mpsc, oneshot};

use super::StoreError;
use super::entry::Entry;
use super::pools::Pools;
use super::tx::Kept;

/// Most records of one transaction: what a disk writes in some milliseconds.
const TOGETHER: usize = 64;

/// Records that may wait; who comes then, waits before the door.
const QUEUE: usize = 256;

/// A record to be kept.
struct Job {
    entry: Box<Entry>,
    /// The token it came with, to note the day.
    token: Option<String>,
    answer: oneshot::Sender<Result<Kept, StoreError>>,
}

/// Hands records to the writer.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    /// Starts the writer. It ends when the last handle is dropped. `wrote` is called after each transaction that
    /// became true and before any of its records is acknowledged.
    pub(super) fn start(pools: Pools, wrote: impl Fn() + Send + 'static) -> Self {
        let (jobs, mut waiting) = mpsc::channel::<Job>(QUEUE);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(TOGETHER);
            while waiting.recv_many(&mut batch, TOGETHER).await > 0 {
                // Whoever gave up waiting is not written for: he will come again.
                batch.retain(|job| !job.answer.is_closed());
                let outcome = write(&pools, &batch).await;
                if outcome.is_ok() {
                    wrote();
                }
                match outcome {
                    Ok(kept) => {
                        for (job, kept) in batch.drain(..).zip(kept) {
                            let _ = job.answer.send(Ok(kept));
                        }
                    }
                    Err(error) => {
                        for job in batch.drain(..) {
                            let _ = job.answer.send(Err(error.clone()));
                        }
                    }
                }
            }
        });
        Self { jobs }
    }

    /// Keeps a record. Once this returns, it is on the disk.
    pub(super) async fn put(&self, entry: Entry, token: Option<String>) -> Result<Kept, StoreError> {
        let gone = || StoreError::Failed("the writer has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job { entry: Box::new(entry), token, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// All of them or none.
async fn write(pools: &Pools, batch: &[Job]) -> Result<Vec<Kept>, StoreError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = pools.write().await?;
    let mut kept = Vec::with_capacity(batch.len());
    for job in batch {
        kept.push(tx.put(&job.entry).await?);
        if let Some(token) = &job.token {
            tx.used(token, &job.entry.received).await?;
        }
    }
    tx.commit().await?;
    Ok(kept)
}
