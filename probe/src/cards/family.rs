//! A process, its descendants, and what they are called.

#[cfg(target_os = "linux")]
use std::collections::BTreeMap;
use std::fs;

use super::Roots;
#[cfg(target_os = "linux")]
use super::roots::{entries, text};

/// Program and script of a process: `python3 train.py`, without directories and arguments. `None` when it may not be seen.
pub fn name(roots: &Roots, pid: u32) -> Option<String> {
    let line = fs::read(roots.process(pid).join("cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0').filter(|word| !word.is_empty());
    let base = |word: &str| word.rsplit(['/', '\\']).next().unwrap_or(word).to_owned();
    let program = base(words.next()?);
    let script = program.starts_with("python").then(|| script(words)).flatten();
    Some(match script {
        Some(script) => printable(&format!("{program} {}", base(&script))),
        None => printable(&program),
    })
}

/// What Python runs: the module after `-m`, else the first word that is no option.
fn script<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<String> {
    loop {
        match words.next()? {
            "-m" => return words.next().map(str::to_owned),
            "-c" => return None,
            "-W" | "-X" => drop(words.next()),
            word if word.starts_with('-') => {}
            word => return Some(word.to_owned()),
        }
    }
}

/// A process may call itself anything: nothing of it may reach the terminal as a command.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The process and all its descendants, itself first.
#[cfg(target_os = "linux")]
pub fn family(roots: &Roots, pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    let mut parents = None;
    while let Some(&parent) = family.get(at) {
        let children = children(roots, parent).unwrap_or_else(|| {
            parents.get_or_insert_with(|| by_parent(roots)).get(&parent).cloned().unwrap_or_default()
        });
        for child in children {
            if !family.contains(&child) {
                family.push(child);
            }
        }
        at += 1;
    }
    family
}

/// From the lists each thread has of what it started; `None` for a process that has ended or a kernel without these lists.
#[cfg(target_os = "linux")]
fn children(roots: &Roots, pid: u32) -> Option<Vec<u32>> {
    let lists = entries(&roots.process(pid).join("task")).into_iter().filter_map(|task| text(&task.join("children")));
    let lists: Vec<String> = lists.collect();
    if lists.is_empty() {
        return if roots.process(pid).exists() { None } else { Some(Vec::new()) };
    }
    Some(lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect())
}

/// Every process by its parent, from `stat`: `PID (NAME) STATE PARENT ...`, where the name may hold anything.
#[cfg(target_os = "linux")]
fn by_parent(roots: &Roots) -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for directory in entries(&roots.proc("")) {
        let pid = directory.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let stat = pid.and_then(|_: u32| text(&directory.join("stat")));
        let parent = stat.as_deref().and_then(|stat| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok());
        if let (Some(pid), Some(parent)) = (pid, parent) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}
