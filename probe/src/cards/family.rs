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
    let mut words = line.split('\0').map(str::trim).filter(|word| !word.is_empty());
    let first = program(words.next()?);
    let script = first.starts_with("python").then(|| script(words)).flatten();
    Some(match script {
        Some(script) => format!("{first} {}", program(&script)),
        None => first,
    })
}

/// The last part of a path. A process may call itself anything: nothing of it may reach the terminal as a command.
pub fn program(path: &str) -> String {
    let base = path.trim().rsplit(['/', '\\']).next().unwrap_or_default();
    base.chars().map(|c| if plimsoll_core::is_hidden(c) { '?' } else { c }).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn named(line: &str) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("7");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("cmdline"), line).unwrap();
        name(&Roots::at(root.path(), root.path()), 7)
    }

    #[test]
    fn program_and_script_and_nothing_else() {
        for (line, expected) in [
            ("/usr/bin/python3\0-u\0/home/ada/train.py\0--token\0secret\0", "python3 train.py"),
            ("python3.12\0-m\0torch.distributed.run\0x.py\0", "python3.12 torch.distributed.run"),
            ("python\0-X\0dev\0-W\0error\0a.py\0", "python a.py"),
            ("python3\0-c\0import torch; secret()\0", "python3"),
            ("python3\0", "python3"),
            ("/usr/lib/xorg/Xorg\0:0\0", "Xorg"),
            ("C:\\Program Files\\Python\\python.exe\0train.py\0", "python.exe train.py"),
            ("\u{1b}[2Jevil\0", "?[2Jevil"),
        ] {
            assert_eq!(named(line).as_deref(), Some(expected), "{line:?}");
        }
        assert_eq!(named(""), None);
        assert_eq!(name(&Roots::from_env(), u32::MAX), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn descendants_with_and_without_the_kernels_lists() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let roots = Roots::at(root.path(), root.path());
        // Names may hold what separates the other columns.
        write("10/stat", "10 (python3) S 1 10 10");
        write("11/stat", "11 (a) S 99 (b) S 10 10 10");
        write("12/stat", "12 (c) S 11 10 10");
        write("13/stat", "13 (other) S 1 13 13");
        assert_eq!(family(&roots, 10), [10, 11, 12]);
        write("10/task/10/children", "13 ");
        write("10/task/14/children", "15 16\n");
        assert_eq!(family(&roots, 10), [10, 13, 15, 16]);
        assert_eq!(family(&roots, 99), [99]);
    }
}
