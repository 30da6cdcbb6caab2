//! Who holds how much of a card, from what the kernel tells of each open DRM file.
//!
//! `Documentation/gpu/drm-usage-stats.rst` of the kernel describes the keys of `/proc/PID/fdinfo/FD`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_core::Bytes;

use super::matching::plain_pci;
use super::roots::entries;
use super::{ProcessUse, Roots};

/// How long a list of open DRM files is good: looking through all files of a process takes a hundred times longer than
/// reading the ones that matter.
const REFRESH: Duration = Duration::from_secs(1);

/// The DRM clients on one card.
pub struct Clients {
    roots: Roots,
    /// The card's address; with none, every client counts.
    pci: Option<String>,
    /// Of every process that may be seen.
    all: Option<Known>,
    /// Of a worker's processes.
    some: Option<(Vec<u32>, Known)>,
}

/// The fdinfo files of some processes, one for each client.
struct Known {
    files: Vec<(u32, PathBuf)>,
    at: Instant,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < REFRESH
    }

    /// What each process holds now, those that hold nothing too; who has ended since is left out.
    fn read(&self) -> BTreeMap<u32, Bytes> {
        let mut rows: BTreeMap<u32, Bytes> = BTreeMap::new();
        for (pid, file) in &self.files {
            if let Some(vram) = fs::read_to_string(file).ok().and_then(|text| client(&text).vram) {
                *rows.entry(*pid).or_default() += vram;
            }
        }
        rows
    }
}

/// What one fdinfo file says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Client {
    pci: Option<String>,
    id: Option<String>,
    vram: Option<Bytes>,
}

impl Clients {
    /// Clients of the card at this PCI address.
    pub fn new(roots: Roots, pci: Option<String>) -> Self {
        Self { roots, pci: pci.as_deref().and_then(plain_pci), all: None, some: None }
    }

    /// Every process of which the files may be read: one's own, or all for root.
    pub fn everyone(&mut self) -> Vec<ProcessUse> {
        let known = self.all.take().filter(Known::is_fresh).unwrap_or_else(|| {
            let processes = entries(&self.roots.proc(""));
            self.known(processes.into_iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok()))
        });
        let rows = self.all.insert(known).read().into_iter();
        rows.map(|(pid, memory)| ProcessUse { pid, name: None, memory: Some(memory) }).collect()
    }

    /// What these processes hold together; `None` when none of them has a client on the card.
    pub fn held_by(&mut self, pids: &[u32]) -> Option<Bytes> {
        let fresh = self.some.take().filter(|(of, known)| of == pids && known.is_fresh());
        let (_, known) = self.some.insert(fresh.unwrap_or_else(|| (pids.to_vec(), self.known(pids.iter().copied()))));
        known.read().into_values().reduce(|a, b| a + b)
    }

    /// The clients of these processes on this card. One that two processes share, by a forked or passed file, counts for
    /// the first.
    fn known(&self, pids: impl Iterator<Item = u32>) -> Known {
        let mut seen = BTreeSet::new();
        let mut files = Vec::new();
        for pid in pids {
            let directory = self.roots.process(pid);
            for file in entries(&directory.join("fdinfo")) {
                if is_drm(&directory.join("fd"), &file)
                    && let Ok(text) = fs::read_to_string(&file)
                    && let Client { pci, id: Some(id), vram: Some(_) } = client(&text)
                    && (self.pci.is_none() || pci.as_deref().and_then(plain_pci) == self.pci)
                    && seen.insert(id)
                {
                    files.push((pid, file));
                }
            }
        }
        Known { files, at: Instant::now() }
    }
}

/// Whether the file behind an fdinfo file may be a DRM device. Following a link is cheaper than having the kernel write
/// the text; a link that cannot be followed rules nothing out.
fn is_drm(links: &Path, fdinfo: &Path) -> bool {
    let Some(name) = fdinfo.file_name() else { return false };
    fs::read_link(links.join(name)).map_or(true, |target| target.starts_with("/dev/dri"))
}

/// Newer kernels write `drm-resident-vram`, older ones of amdgpu `drm-memory-vram` for the same.
fn client(text: &str) -> Client {
    let pairs: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim())).collect();
    let vram = ["drm-resident-vram", "drm-memory-vram", "drm-total-vram"];
    Client {
        pci: pairs.get("drm-pdev").map(|s| (*s).to_owned()),
        id: pairs.get("drm-client-id").map(|s| (*s).to_owned()),
        vram: vram.iter().find_map(|key| size(pairs.get(key)?)),
    }
}

/// `123`, `123 KiB`, `123 MiB`.
fn size(text: &str) -> Option<Bytes> {
    let mut words = text.split_whitespace();
    let n: u64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        Some(_) => return None,
    };
    n.checked_mul(unit).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t41\n\
                       drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t128 KiB\n";
    const NEW: &str = "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t42\ndrm-total-vram:\t9 MiB\n\
                       drm-resident-vram:\t8 MiB\ndrm-memory-vram:\t1 MiB\n";

    fn process(proc: &Path, pid: u32, files: &[(&str, &str, &str)]) {
        for (fd, target, fdinfo) in files {
            let directory = proc.join(pid.to_string());
            fs::create_dir_all(directory.join("fd")).unwrap();
            fs::create_dir_all(directory.join("fdinfo")).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink(target, directory.join("fd").join(fd)).unwrap();
            let _ = target;
            fs::write(directory.join("fdinfo").join(fd), fdinfo).unwrap();
        }
    }

    #[test]
    fn both_kinds_of_kernel() {
        let vram = |text: &str| client(text).vram;
        assert_eq!(vram(OLD), Some(Bytes::from_mib(2)));
        assert_eq!(vram(NEW), Some(Bytes::from_mib(8)));
        assert_eq!(vram("drm-memory-vram: 12 parsec"), None);
        assert_eq!(vram("drm-memory-vram: 18446744073709551615 KiB"), None);
        assert_eq!(client(""), Client::default());
    }

    #[test]
    fn each_client_counts_once_and_only_on_its_card() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = OLD.replace("0000:03", "0000:04").replace("41", "43");
        let render = "/dev/dri/renderD128";
        process(root.path(), 10, &[("3", render, OLD), ("4", render, OLD), ("5", render, &elsewhere)]);
        process(root.path(), 11, &[("3", render, NEW), ("9", render, OLD), ("1", "/dev/null", "pos:\t0\n")]);
        process(root.path(), 12, &[("0", "/dev/null", NEW)]);
        let mut clients = Clients::new(Roots::at(root.path(), root.path()), Some("0000:03:00.0".to_owned()));
        let rows: Vec<_> = clients.everyone().into_iter().map(|p| (p.pid, p.memory)).collect();
        assert_eq!(rows, [(10, Some(Bytes::from_mib(2))), (11, Some(Bytes::from_mib(8)))]);
        assert_eq!(clients.held_by(&[10]), Some(Bytes::from_mib(2)));
        assert_eq!(clients.held_by(&[10, 11]), Some(Bytes::from_mib(10)));
        assert_eq!(clients.held_by(&[12, 99]), None);
    }

    #[test]
    fn the_file_that_matters_is_read_each_time() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, &[("3", "/dev/dri/renderD128", OLD)]);
        let mut clients = Clients::new(Roots::at(root.path(), root.path()), None);
        assert_eq!(clients.held_by(&[10]), Some(Bytes::from_mib(2)));
        fs::write(root.path().join("10/fdinfo/3"), OLD.replace("2048", "4096")).unwrap();
        assert_eq!(clients.held_by(&[10]), Some(Bytes::from_mib(4)));
    }
}
