//! What is read beside the worker: the card it runs on, or its memory as the system counts it.

use std::time::Instant;

use plimsoll_core::Bytes;
use plimsoll_core::measurement::{ProcessSource, Range, Sample};

use crate::worker::Hello;

/// A card as it was before the worker started.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// To name it in [`Gauge::sample`].
    pub index: u32,
    /// Its id in the catalog.
    pub gpu: Option<String>,
    /// As the driver names it.
    pub name: String,
    /// Memory as the driver reports it.
    pub total: Bytes,
    /// What the driver keeps for itself.
    pub reserved: Option<Bytes>,
    /// What was in use, by anyone.
    pub used_before: Option<Bytes>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// CUDA compute capability.
    pub capability: Option<String>,
}

/// Where readings come from. Made before the worker starts, so that it knows what was in use before.
pub trait Gauge {
    /// Whether there is any card.
    fn has_card(&self) -> bool;
    /// The card the worker took.
    fn card(&self, hello: &Hello, asked: Option<u32>) -> Option<Card>;
    /// Samples the card, or where there is none the process, from now on. Times count from `since`.
    fn sample(&self, card: Option<u32>, pid: u32, since: Instant) -> Box<dyn Sampling>;
}

/// Samples that are being taken.
pub trait Sampling {
    /// The latest one.
    fn latest(&self) -> Option<Sample>;
    /// Ends it.
    fn stop(self: Box<Self>) -> Box<dyn Sampled>;
}

/// Samples that were taken. Times are microseconds since what the sampler was told.
pub trait Sampled {
    /// Thinned.
    fn samples(&self) -> Vec<Sample>;
    /// The highest memory of the process within a time, of all samples.
    fn peak_process(&self, from: u64, to: u64) -> Option<Bytes>;
    /// Where the memory of the process comes from.
    fn process_source(&self) -> Option<ProcessSource>;
    /// Utilisation within a time, in percent.
    fn utilization(&self, from: u64, to: u64) -> Option<Range>;
    /// Power within a time, in milliwatts.
    fn power(&self, from: u64, to: u64) -> Option<Range>;
}

/// What this machine has.
pub fn open() -> Box<dyn Gauge> {
    Box::new(resident::Resident)
}

mod resident {
    //! Resident memory of the worker, on Linux.

    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Bytes, Card, Gauge, Hello, ProcessSource, Range, Sample, Sampled, Sampling};

    #[derive(Debug)]
    pub struct Resident;

    #[derive(Debug)]
    struct Running {
        stop: Arc<AtomicBool>,
        samples: Arc<Mutex<Vec<Sample>>>,
    }

    #[derive(Debug)]
    struct Done(Vec<Sample>);

    impl Gauge for Resident {
        fn has_card(&self) -> bool {
            false
        }

        fn card(&self, _: &Hello, _: Option<u32>) -> Option<Card> {
            None
        }

        fn sample(&self, _: Option<u32>, pid: u32, since: Instant) -> Box<dyn Sampling> {
            let running = Running { stop: Arc::default(), samples: Arc::default() };
            let (stop, samples) = (Arc::clone(&running.stop), Arc::clone(&running.samples));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
                    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
                    let at = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                    if let (Some(pages), Ok(mut samples)) = (pages, samples.lock()) {
                        samples.push(Sample { at, process: Some(Bytes::from_kib(4 * pages)), ..Sample::default() });
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            });
            Box::new(running)
        }
    }

    impl Sampling for Running {
        fn latest(&self) -> Option<Sample> {
            self.samples.lock().ok()?.last().copied()
        }

        fn stop(self: Box<Self>) -> Box<dyn Sampled> {
            self.stop.store(true, Ordering::Relaxed);
            Box::new(Done(self.samples.lock().map(|samples| samples.clone()).unwrap_or_default()))
        }
    }

    impl Sampled for Done {
        fn samples(&self) -> Vec<Sample> {
            self.0.iter().step_by(self.0.len() / 1000 + 1).copied().collect()
        }

        fn peak_process(&self, from: u64, to: u64) -> Option<Bytes> {
            self.0.iter().filter(|s| (from..=to).contains(&s.at)).filter_map(|s| s.process).max()
        }

        fn process_source(&self) -> Option<ProcessSource> {
            (!self.0.is_empty()).then_some(ProcessSource::Resident)
        }

        fn utilization(&self, _: u64, _: u64) -> Option<Range> {
            None
        }

        fn power(&self, _: u64, _: u64) -> Option<Range> {
            None
        }
    }
}
