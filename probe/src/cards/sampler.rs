//! A thread that watches one worker while it trains.
//!
//! It reads memory every 10 ms or so and looks at utilisation, power and temperature every 100 ms, which are slower to read
//! and change slowly. What it costs is measured in the tests: under 1 % of a core.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_core::Bytes;
use plimsoll_core::measurement::{ProcessSource, Range, Sample};

use super::resident::{PACE, Resident};
use super::series::{Point, Series, thinned};
use super::{CardHandle, Load, Reader, Roots};

/// How often utilisation, power and temperature are read: drivers average the first over 1/6 s to 1 s.
const LOAD_EVERY: Duration = Duration::from_millis(100);

/// While the card's use does not change, its list of processes is read this often.
const STILL: Duration = Duration::from_millis(100);

/// Samples in a record.
const SAMPLES: usize = 2000;

/// Changes of memory kept until the end: 40 MB, an hour of changes at every reading.
const CHANGES: usize = 500_000;

/// Samples a worker until it is stopped or dropped.
pub struct Sampler {
    shared: Arc<Mutex<Shared>>,
    thread: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

/// The last reading, and the highest so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latest {
    /// Memory of the process.
    pub process: Option<Bytes>,
    /// Memory in use on the whole card.
    pub device: Option<Bytes>,
    /// Highest `process` so far.
    pub peak_process: Option<Bytes>,
    /// Highest `device` so far.
    pub peak_device: Option<Bytes>,
    /// Utilisation, power and temperature.
    pub load: Load,
}

/// Everything that was sampled.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Thinned to 2000 at most; peaks are kept.
    pub samples: Vec<Sample>,
    /// The most the process held.
    pub peak_process: Option<Bytes>,
    /// Where the figures of the process come from; absent when there are none.
    pub process_source: Option<ProcessSource>,
    points: Vec<Point>,
    loads: Vec<(u64, Load)>,
}

impl Sampler {
    /// Samples `pid` and its descendants: on `card`, or their resident memory when there is none.
    ///
    /// Times count from `since`, the worker's start. `every` is the pace, 10 ms in the probe.
    pub fn start(card: Option<CardHandle>, pid: u32, since: Instant, every: Duration) -> Self {
        let every = if card.is_some() { every } else { every.max(PACE) };
        let shared = Arc::new(Mutex::new(Shared::new(card.as_ref())));
        let stopped = Arc::new(AtomicBool::new(false));
        let (theirs, stop) = (Arc::clone(&shared), Arc::clone(&stopped));
        let mut reader = Readings { card, resident: Resident::new(Roots::from_env(), pid), last: None };
        let thread = thread::Builder::new().name(thread_name(pid)).spawn(move || {
            let mut load_at: Option<Instant> = None;
            let mut next = Instant::now();
            while !stop.load(Ordering::Acquire) {
                let point = reader.memory(since);
                let load = load_at.is_none_or(|at| at.elapsed() >= LOAD_EVERY).then(|| {
                    load_at = Some(Instant::now());
                    reader.load()
                });
                lock(&theirs).add(point, load.flatten());
                let now = Instant::now();
                // After a pause of the machine: from now on, not a burst to catch up.
                next = (next + every).max(now);
                // The cheapest way to wait and be woken: half of what a channel takes, which is most of the whole.
                thread::park_timeout(next - now);
            }
        });
        // Without the thread there are no samples, which is what the record then says.
        Self { shared, thread: thread.ok().map(|thread| (stopped, thread)) }
    }

    /// The last reading.
    pub fn latest(&self) -> Latest {
        lock(&self.shared).latest()
    }

    /// Ends the sampling.
    pub fn stop(mut self) -> Sampled {
        self.end();
        lock(&self.shared).sampled()
    }

    fn end(&mut self) {
        if let Some((stopped, thread)) = self.thread.take() {
            stopped.store(true, Ordering::Release);
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

impl Sampled {
    /// Mean and highest utilisation in percent between two moments.
    pub fn utilization(&self, from: u64, to: u64) -> Option<Range> {
        self.range(from, to, |load| load.utilization.map(u64::from))
    }

    /// Mean and highest board power in milliwatts between two moments.
    pub fn power(&self, from: u64, to: u64) -> Option<Range> {
        self.range(from, to, |load| load.power)
    }

    /// The most the process held between two moments, both included.
    pub fn peak_between(&self, from: u64, to: u64) -> Option<Bytes> {
        // A level lasts until the next point: the one in force at `from` counts too.
        let before = self.points.iter().rev().find(|p| p.at < from).into_iter();
        let within = self.points.iter().filter(|p| (from..=to).contains(&p.at));
        before.chain(within).filter_map(|p| p.process).max()
    }

    fn range(&self, from: u64, to: u64, figure: impl Fn(&Load) -> Option<u64>) -> Option<Range> {
        let within = self.loads.iter().filter(|(at, _)| (from..=to).contains(at));
        let figures: Vec<u64> = within.filter_map(|(_, load)| figure(load)).collect();
        let count = u64::try_from(figures.len()).ok().filter(|n| *n > 0)?;
        Some(Range { mean: (figures.iter().sum::<u64>() + count / 2) / count, most: figures.iter().copied().max()? })
    }
}

/// At most the 15 characters that Linux shows.
fn thread_name(pid: u32) -> String {
    format!("sampler-{pid}").chars().take(15).collect()
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread reads.
struct Readings {
    card: Option<CardHandle>,
    resident: Resident,
    last: Option<(Instant, Point)>,
}

impl Readings {
    fn memory(&mut self, since: Instant) -> Point {
        let at = || u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let Some(card) = &self.card else {
            let process = self.resident.read();
            return Point { at: at(), process, device: None };
        };
        let device = card.source.memory().map(|m| m.used);
        // Nobody's share can have grown while the whole did not move.
        let still = self.last.filter(|(read, point)| point.device == device && read.elapsed() < STILL);
        let (read, process) = match still {
            Some((read, point)) => (read, point.process),
            None => {
                let mut pids = self.resident.pids();
                // Were the pids those of another namespace, one of them could be somebody else who was there before.
                pids.retain(|pid| !card.pids_before.contains(pid));
                (Instant::now(), card.source.held_by(&pids))
            }
        };
        let point = Point { at: at(), process, device };
        self.last = Some((read, point));
        point
    }

    fn load(&self) -> Option<Load> {
        self.card.as_ref().map(|card| card.source.load())
    }
}

/// What the thread has read so far.
struct Shared {
    reader: Option<Reader>,
    used_before: Option<Bytes>,
    series: Series,
    loads: Vec<(u64, Load)>,
    /// Whether the card ever told of the process itself.
    named: bool,
    latest: Latest,
}

impl Shared {
    fn new(card: Option<&CardHandle>) -> Self {
        Self {
            reader: card.map(|card| card.source.reader()),
            used_before: card.and_then(|card| card.used_before),
            series: Series::with_room_for(CHANGES),
            loads: Vec::new(),
            named: false,
            latest: Latest::default(),
        }
    }

    fn add(&mut self, point: Point, load: Option<Load>) {
        self.series.push(point);
        self.named |= point.process.is_some();
        let latest = &mut self.latest;
        latest.device = point.device;
        latest.peak_device = latest.peak_device.max(point.device);
        latest.process = point.process;
        latest.peak_process = latest.peak_process.max(point.process);
        if let Some(load) = load {
            latest.load = load;
            self.loads.push((point.at, load));
        }
    }

    /// What the card holds beyond what it held before: the process's, where the card does not tell of processes.
    fn difference(&self, device: Option<Bytes>) -> Option<Bytes> {
        self.reader?;
        Some(device?.saturating_sub(self.used_before?))
    }

    fn latest(&self) -> Latest {
        let mut latest = self.latest;
        if !self.named {
            latest.process = self.difference(latest.device);
            latest.peak_process = self.difference(latest.peak_device);
        }
        latest
    }

    fn sampled(&self) -> Sampled {
        let mut points = self.series.points().to_vec();
        if !self.named {
            for point in &mut points {
                point.process = self.difference(point.device);
            }
        }
        let peak_process = points.iter().filter_map(|p| p.process).max();
        let source = match (self.reader, self.named) {
            (None, _) => ProcessSource::Resident,
            (Some(Reader::Nvml), true) => ProcessSource::NvmlProcess,
            (Some(Reader::Nvml), false) => ProcessSource::NvmlDifference,
            (Some(Reader::Amdgpu), true) => ProcessSource::AmdgpuProcess,
            (Some(Reader::Amdgpu), false) => ProcessSource::AmdgpuDifference,
        };
        Sampled {
            samples: self.samples(&points),
            peak_process,
            process_source: peak_process.is_some().then_some(source),
            points,
            loads: self.loads.clone(),
        }
    }

    /// Each thinned point with the load in force then.
    fn samples(&self, points: &[Point]) -> Vec<Sample> {
        let with_load = |point: Point| {
            let until = self.loads.partition_point(|(at, _)| *at <= point.at);
            let load = until.checked_sub(1).and_then(|last| self.loads.get(last)).map(|(_, load)| *load);
            let load = load.unwrap_or_default();
            Sample {
                at: point.at,
                process: point.process,
                device: point.device,
                utilization: load.utilization,
                power: load.power,
                temperature: load.temperature,
            }
        };
        thinned(points, SAMPLES).into_iter().map(with_load).collect()
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
