//! Hostile inputs by number, each watched: that none panics, hangs, or takes more memory than it may.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use crate::Target;
use crate::chance::Chance;
use crate::change::Corpus;
use crate::watch::{self, Memory};

/// The most one input may work.
pub const TIME: Duration = Duration::from_secs(2);

/// The most memory the process may have while it reads one input, in bytes: what the program itself takes is part of it.
pub const MEMORY: u64 = 512 << 20;

/// From here on an input is given up, and the process with it: it would not come to an end.
const HOPELESS: (Duration, u64) = (Duration::from_secs(60), 2 << 30);

/// An input that works less than this is not asked for its memory: filling [`MEMORY`] alone takes longer.
const WORTH: Duration = Duration::from_millis(10);

/// Files that are kept of what breaks in one way.
const KEPT: u32 = 3;

/// How a process ends that gives up: `EX_SOFTWARE`.
const GIVEN_UP: i32 = 70;

/// What came of the inputs of a target.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub inputs: u64,
    /// How many panicked.
    pub panics: u64,
    /// How many worked longer than [`TIME`].
    pub slow: u64,
    /// How many took more than [`MEMORY`].
    pub large: u64,
    /// What all of them worked.
    pub worked: Duration,
    /// The longest that one worked, and its number.
    pub slowest: (Duration, u64),
    /// The most memory the process had, in bytes, and the number of the input that ran.
    pub most: (u64, u64),
}

impl Tally {
    /// Whether nothing broke.
    pub const fn is_clean(&self) -> bool {
        self.panics == 0 && self.slow == 0 && self.large == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, panics, slow, large, worked, slowest: (slowest, which), most: (most, by) } = self;
        write!(
            f,
            "{inputs} inputs, {panics} panicked, {slow} took over {} s, {large} over {} MiB; {:.0} s in all, the slowest \
             {:.3} s (number {which}), most memory {} MiB (number {by})",
            TIME.as_secs(),
            MEMORY >> 20,
            worked.as_secs_f64(),
            slowest.as_secs_f64(),
            most >> 20,
        )
    }
}

/// Counts the inputs of one target.
#[derive(Debug)]
pub struct Counter {
    target: &'static Target,
    corpus: Arc<Corpus>,
    seed: u64,
    keep: PathBuf,
    next: u64,
    tally: Tally,
    seen: Vec<(String, u32)>,
}

impl Counter {
    /// Of the inputs that `seed` makes, from the number `first` on; what breaks is written to the folder `keep`.
    ///
    /// # Errors
    /// The corpus cannot be read.
    pub fn new(target: &'static Target, seed: u64, first: u64, keep: &Path) -> io::Result<Self> {
        let corpus = Arc::new(Corpus::read(target.name, target.grammar)?);
        Ok(Self { target, corpus, seed, keep: keep.to_owned(), next: first, tally: Tally::default(), seen: Vec::new() })
    }

    /// What came of it so far.
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The number of the next input.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Runs so many inputs more. It takes a lock that all counters share: memory is the process's.
    pub fn run(&mut self, inputs: u64) {
        let guard = Guard::get();
        let mut watched = guard.watch(self.target, &self.corpus, self.seed, &self.keep);
        for number in self.next..self.next.saturating_add(inputs) {
            let input = self.corpus.hostile(&mut Chance::of(self.seed, number));
            watched.begin(number);
            let before = watch::worked();
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.target.run)(&input)));
            let worked = watch::worked().saturating_sub(before);
            watched.end();
            self.tally.inputs += 1;
            self.tally.worked += worked;
            if worked > self.tally.slowest.0 {
                self.tally.slowest = (worked, number);
            }
            if outcome.is_err() {
                self.tally.panics += 1;
                self.broken(&format!("panic at {}", guard.place()), number, &input);
            }
            if worked > TIME {
                self.tally.slow += 1;
                self.broken("slow", number, &input);
            }
            if worked > WORTH
                && let Some(peak) = Memory::Peak.read()
            {
                if peak > self.tally.most.0 {
                    self.tally.most = (peak, number);
                }
                if peak > MEMORY {
                    self.tally.large += 1;
                    self.broken("large", number, &input);
                }
                watch::forget_peak();
            }
        }
        self.next = self.next.saturating_add(inputs);
    }

    /// Keeps the first few inputs that break in one way.
    fn broken(&mut self, how: &str, number: u64, input: &[u8]) {
        let at = self.seen.iter().position(|(known, _)| known == how).unwrap_or_else(|| {
            self.seen.push((how.to_owned(), 0));
            self.seen.len() - 1
        });
        if let Some((_, times)) = self.seen.get_mut(at) {
            *times += 1;
            if *times <= KEPT {
                keep(&self.keep, self.target.name, self.seed, number, how, input);
            }
        }
    }
}

fn keep(folder: &Path, target: &str, seed: u64, number: u64, how: &str, input: &[u8]) {
    let path = folder.join(format!("{target}-{seed}-{number}"));
    match fs::create_dir_all(folder).and_then(|()| fs::write(&path, input)) {
        Ok(()) => eprintln!("{target} {number}: {how}: the input is in {}", path.display()),
        Err(error) => eprintln!("{target} {number}: {how}: the input cannot be kept: {error}"),
    }
}

/// Who looks whether an input comes to an end, and where panics happen.
struct Guard {
    place: Mutex<String>,
    running: Arc<Running>,
    one: Mutex<()>,
}

/// What makes the inputs that run, and where those are kept that break.
struct Job {
    target: &'static str,
    corpus: Arc<Corpus>,
    seed: u64,
    keep: PathBuf,
}

/// The input that runs, if one does.
#[derive(Default)]
struct Running {
    /// Its number and one, or 0.
    number: AtomicU64,
    job: Mutex<Option<Job>>,
}

impl Guard {
    fn get() -> &'static Self {
        static GUARD: OnceLock<Guard> = OnceLock::new();
        GUARD.get_or_init(|| {
            let running = Arc::new(Running::default());
            let seen = Arc::clone(&running);
            thread::spawn(move || seen.watch());
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let Some(guard) = GUARD.get().filter(|guard| guard.running.number.load(Ordering::Relaxed) > 0) else {
                    return before(info);
                };
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                let said = info.payload_as_str().unwrap_or_default().chars().take(200).collect::<String>();
                *locked(&guard.place) = format!("{place}: {said}");
            }));
            Self { place: Mutex::default(), running, one: Mutex::default() }
        })
    }

    /// Where the last panic was.
    fn place(&self) -> String {
        // What is said differs from input to input; the place does not.
        locked(&self.place).clone()
    }

    fn watch(&self, target: &'static Target, corpus: &Arc<Corpus>, seed: u64, keep: &Path) -> Watched<'_> {
        let lock = locked(&self.one);
        let job = Job { target: target.name, corpus: Arc::clone(corpus), seed, keep: keep.to_owned() };
        *locked(&self.running.job) = Some(job);
        watch::forget_peak();
        Watched { running: &self.running, _lock: lock }
    }
}

struct Watched<'a> {
    running: &'a Running,
    _lock: MutexGuard<'a, ()>,
}

impl Watched<'_> {
    fn begin(&mut self, number: u64) {
        self.running.number.store(number + 1, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.running.number.store(0, Ordering::Relaxed);
    }
}

impl Running {
    fn watch(&self) {
        let (mut current, mut since) = (0, Instant::now());
        loop {
            thread::sleep(Duration::from_millis(50));
            let number = self.number.load(Ordering::Relaxed);
            if number == 0 || number != current {
                (current, since) = (number, Instant::now());
                continue;
            }
            let memory = Memory::Now.read().unwrap_or(0);
            let how = match since.elapsed() {
                elapsed if elapsed > HOPELESS.0 => "hangs",
                _ if memory > HOPELESS.1 => "takes all memory",
                _ => continue,
            };
            if let Some(job) = &*locked(&self.job) {
                let input = job.corpus.hostile(&mut Chance::of(job.seed, number - 1));
                keep(&job.keep, job.target, job.seed, number - 1, how, &input);
            }
            std::process::exit(GIVEN_UP);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Grammar;

    static BAD: Target = Target { name: "ledger", grammar: Grammar::Json, share: 1, run: breaks };

    #[allow(clippy::panic, reason = "that is what is watched for")]
    fn breaks(input: &[u8]) {
        if input.len().is_multiple_of(2) {
            panic!("even");
        }
    }

    #[test]
    fn what_breaks_is_counted_and_the_first_of_it_kept() {
        let folder = std::env::temp_dir().join(format!("plimsoll-count-{}", std::process::id()));
        let mut counter = Counter::new(&BAD, 1, 0, &folder).unwrap();
        counter.run(40);
        let tally = counter.tally();
        assert!(tally.inputs == 40 && tally.panics > 5 && !tally.is_clean(), "{tally}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), KEPT as usize);
        fs::remove_dir_all(folder).unwrap();
    }
}
