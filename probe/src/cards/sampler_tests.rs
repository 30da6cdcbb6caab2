//! What is sampled, from which source, and what it costs.

use std::process::{Command, Stdio};

use super::super::scripted::{Script, Scripted, cards};
use super::super::{Card, ProcessUse};
use super::*;

const EVERY: Duration = Duration::from_millis(2);
const PID: u32 = 4_000_001;

fn gib(n: u64) -> Bytes {
    Bytes::from_gib(n)
}

fn on_card(pid: u32, memory: Option<Bytes>) -> ProcessUse {
    ProcessUse { pid, name: None, memory }
}

fn handle(card: &Scripted) -> CardHandle {
    cards(vec![(Card::default(), card.clone())], Roots::from_env()).handle(0).unwrap()
}

fn until(sampler: &Sampler, what: impl Fn(&Latest) -> bool) {
    let start = Instant::now();
    while !what(&sampler.latest()) {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", sampler.latest());
        thread::sleep(Duration::from_millis(1));
    }
}

/// A process that does nothing and has a child that does nothing, ended when dropped.
#[cfg(unix)]
struct Idle(std::process::Child);

#[cfg(unix)]
impl Idle {
    fn start() -> Self {
        // Reads until its input closes, which is when this goes away; so does `cat`, its child.
        let mut command = Command::new("sh");
        command.args(["-c", "cat >/dev/null; true"]).stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }
}

#[cfg(unix)]
impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn the_process_on_the_card_where_the_driver_names_it() {
    let me = std::process::id();
    let before = vec![on_card(PID, Some(gib(1)))];
    let script = Script { used: Some(gib(1)), processes: before.clone(), ..Script::default() };
    let card = Scripted::new(Reader::Nvml, script);
    let sampler = Sampler::start(Some(handle(&card)), me, Instant::now(), EVERY);
    until(&sampler, |latest| latest.process == Some(Bytes::ZERO));
    card.set(|script| {
        script.used = Some(gib(6));
        script.processes.push(on_card(me, Some(gib(4))));
        script.load = Load { utilization: Some(80), power: Some(90_000), power_limit: None, temperature: Some(61) };
    });
    until(&sampler, |latest| latest.process == Some(gib(4)) && latest.load.utilization == Some(80));
    card.set(|script| script.used = Some(gib(2)));
    card.set(|script| script.processes = before);
    until(&sampler, |latest| latest.device == Some(gib(2)));
    let sampled = sampler.stop();
    assert_eq!(sampled.process_source, Some(ProcessSource::NvmlProcess));
    assert_eq!(sampled.peak_process, Some(gib(4)));
    assert!(sampled.samples.iter().any(|s| s.device == Some(gib(6)) && s.process == Some(gib(4))));
    assert!(sampled.samples.is_sorted_by_key(|s| s.at));
    assert_eq!(sampled.utilization(0, u64::MAX).unwrap().most, 80);
    assert_eq!(sampled.power(0, u64::MAX).unwrap().most, 90_000);
}

#[test]
fn the_difference_where_the_driver_hides_it() {
    for (reader, source) in
        [(Reader::Nvml, ProcessSource::NvmlDifference), (Reader::Amdgpu, ProcessSource::AmdgpuDifference)]
    {
        // Somebody else is there, and its memory is not told either.
        let script = Script { used: Some(gib(1)), processes: vec![on_card(PID, None)], ..Script::default() };
        let card = Scripted::new(reader, script);
        let handle = handle(&card);
        assert_eq!(handle.used_before(), Some(gib(1)));
        let sampler = Sampler::start(Some(handle), std::process::id(), Instant::now(), EVERY);
        card.set(|script| script.used = Some(gib(7)));
        until(&sampler, |latest| latest.process == Some(gib(6)));
        let sampled = sampler.stop();
        assert_eq!((sampled.process_source, sampled.peak_process), (Some(source), Some(gib(6))));
        assert!(sampled.samples.iter().any(|s| s.process == Some(gib(6)) && s.device == Some(gib(7))));
    }
}

#[test]
fn who_was_there_before_is_not_the_worker() {
    // In a container the driver may name the host's processes, and one of them may have the worker's number.
    let me = std::process::id();
    let script = Script { used: Some(gib(3)), processes: vec![on_card(me, Some(gib(3)))], ..Script::default() };
    let card = Scripted::new(Reader::Nvml, script);
    let sampler = Sampler::start(Some(handle(&card)), me, Instant::now(), EVERY);
    card.set(|script| script.used = Some(gib(5)));
    until(&sampler, |latest| latest.device == Some(gib(5)));
    let sampled = sampler.stop();
    assert_eq!((sampled.process_source, sampled.peak_process), (Some(ProcessSource::NvmlDifference), Some(gib(2))));
}

#[test]
fn a_card_that_cannot_be_read_gives_no_figures() {
    let card = Scripted::new(Reader::Nvml, Script::default());
    let sampler = Sampler::start(Some(handle(&card)), std::process::id(), Instant::now(), EVERY);
    thread::sleep(Duration::from_millis(20));
    let sampled = sampler.stop();
    assert_eq!((sampled.process_source, sampled.peak_process), (None, None));
    assert_eq!(sampled.utilization(0, u64::MAX), None);
}

#[test]
fn windows_of_time() {
    let mut shared = Shared::new(None);
    for (at, process, utilization) in [(0, 1, 10), (100, 5, 20), (200, 3, 61), (300, 3, 60), (400, 2, 0)] {
        let load = Load { utilization: Some(utilization), ..Load::default() };
        shared.add(Point { at, process: Some(Bytes::new(process)), device: None }, Some(load));
    }
    let sampled = shared.sampled();
    assert_eq!(sampled.utilization(100, 300), Some(Range { mean: 47, most: 61 }));
    assert_eq!(sampled.utilization(401, 900), None);
    assert_eq!(sampled.power(0, 400), None);
    for (from, to, peak) in [(0, 400, 5), (200, 400, 3), (250, 260, 3), (350, 400, 3), (401, 500, 2), (50, 90, 1)] {
        // The level in force at `from` counts: 250 lies within the 3 of 200 to 300.
        let expected = if from == 200 { 5 } else { peak };
        assert_eq!(sampled.peak_between(from, to), Some(Bytes::new(expected)), "{from} {to}");
    }
    assert_eq!(Shared::new(None).sampled().peak_between(0, 9), None);
}

#[test]
fn a_long_run_is_thinned_and_its_peak_stays() {
    let mut shared = Shared::new(None);
    for at in 0..100_000 {
        let process = if at == 54_321 { 1 << 40 } else { at % 1000 };
        shared.add(Point { at, process: Some(Bytes::new(process)), device: None }, None);
    }
    let sampled = shared.sampled();
    assert!(sampled.samples.len() <= SAMPLES && sampled.samples.len() > SAMPLES / 2, "{}", sampled.samples.len());
    assert_eq!(sampled.samples.iter().filter_map(|s| s.process).max(), Some(Bytes::new(1 << 40)));
    assert_eq!(sampled.peak_process, Some(Bytes::new(1 << 40)));
    assert_eq!(sampled.process_source, Some(ProcessSource::Resident));
}

#[cfg(unix)]
#[test]
fn resident_memory_of_a_real_process() {
    let size = 96 << 20;
    let sampler = Sampler::start(None, std::process::id(), Instant::now(), EVERY);
    until(&sampler, |latest| latest.process.is_some());
    let first = sampler.latest().process.unwrap();
    let filled = vec![1u8; size];
    let grown = first + Bytes::new(size as u64 / 2);
    until(&sampler, |latest| latest.process.is_some_and(|now| now >= grown));
    assert_eq!(filled.iter().filter(|&&byte| byte == 1).count(), size);
    drop(filled);
    let sampled = sampler.stop();
    assert_eq!(sampled.process_source, Some(ProcessSource::Resident));
    assert!(sampled.peak_process.unwrap() >= grown);
}

#[cfg(target_os = "linux")]
#[test]
fn children_count_too() {
    let idle = Idle::start();
    let mut resident = Resident::new(Roots::from_env(), idle.0.id());
    let start = Instant::now();
    while resident.pids().len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(10));
    }
    let both = resident.read().unwrap();
    let alone = Command::new("ps").args(["-o", "rss=", "-p", &idle.0.id().to_string()]).output().unwrap();
    let alone: u64 = String::from_utf8(alone.stdout).unwrap().trim().parse().unwrap();
    // `cat` has a stack and a heap of its own, though little.
    assert!(both > Bytes::from_kib(alone), "{both} {alone}");
}

#[cfg(unix)]
#[test]
fn a_worker_that_ends_leaves_its_samples() {
    let idle = Idle::start();
    let sampler = Sampler::start(None, idle.0.id(), Instant::now(), EVERY);
    until(&sampler, |latest| latest.process.is_some());
    drop(idle);
    until(&sampler, |latest| latest.process.is_none());
    let sampled = sampler.stop();
    assert!(sampled.peak_process.unwrap() > Bytes::ZERO);
}

/// The directory of the thread of this process with this name.
#[cfg(target_os = "linux")]
fn thread_named(name: &str) -> std::path::PathBuf {
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let named =
        |path: &std::path::PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    threads.find(named).unwrap()
}

/// Processor time of a thread, in nanoseconds.
#[cfg(target_os = "linux")]
fn busy(thread: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn it_takes_less_than_a_hundredth_of_a_core() {
    let idle = Idle::start();
    let sampler = Sampler::start(None, idle.0.id(), Instant::now(), Duration::from_millis(10));
    until(&sampler, |latest| latest.process.is_some());
    let thread = thread_named(&thread_name(idle.0.id()));
    // Whatever else the machine does only makes it dearer: the cheapest of a few windows is what it costs.
    let window = |_| {
        let (start, before) = (Instant::now(), busy(&thread));
        thread::sleep(Duration::from_millis(700));
        (busy(&thread) - before) as f64 / start.elapsed().as_nanos() as f64
    };
    let share = (0..4).map(window).fold(f64::INFINITY, f64::min);
    println!("{:.2} % of a core", share * 100.0);
    assert!(share < 0.01, "{:.2} % of a core", share * 100.0);
}
