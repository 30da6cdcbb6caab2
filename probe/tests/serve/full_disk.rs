//! A disk that is full: refused with 507, nothing that was acknowledged lost, and on it goes once there is room.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_testkit::http::Client;
use plimsoll_testkit::server::Server;
use plimsoll_testkit::storm::lost;
use plimsoll_testkit::synthetic::Template;

use crate::{is_sound, plimsoll, sqlite};

/// More uploads than fit any of the disks here.
const UPLOADS: u64 = 2000;

/// Uploads until one is refused; what was acknowledged, and the refusal.
fn fill(client: &mut Client, first: u64) -> (Vec<String>, String) {
    let template = Template::new();
    let mut acknowledged = Vec::new();
    for number in first..first + UPLOADS {
        let reply = client.upload(&template.write(number)).unwrap();
        match reply.status {
            201 => acknowledged.push(reply.id().unwrap().to_owned()),
            507 => return (acknowledged, reply.body),
            other => panic!("{other} {}", reply.body),
        }
    }
    panic!("{UPLOADS} uploads fit");
}

/// A file that may not grow: no file system needed, and so on every system.
#[test]
fn a_file_that_may_not_grow_is_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let database = sqlite(folder.path());
    let arguments = ["--database", &database, "--uploads-per-minute", "0"];
    let mut limited = Command::new("sh");
    // In blocks of 512 or 1024 bytes, by the shell; a write beyond it fails instead of ending the process.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2000; exec \"$0\" \"$@\""]).arg(plimsoll());
    let server = Server::start_by(limited, &arguments).unwrap();
    let mut client = server.client().unwrap();
    let (acknowledged, refusal) = fill(&mut client, 0);
    assert!(acknowledged.len() > 10 && refusal.contains("disk is full"), "{} {refusal}", acknowledged.len());
    assert_eq!(lost(&server.address, &acknowledged).unwrap(), [""; 0], "while it is full");
    server.kill().unwrap();

    let server = Server::start(plimsoll(), &arguments).unwrap();
    assert_eq!(lost(&server.address, &acknowledged).unwrap(), [""; 0]);
    assert_eq!(server.client().unwrap().upload(&Template::new().write(9999)).unwrap().status, 201);
    server.end().unwrap();
    assert!(is_sound(&folder.path().join("measurements.db")));
}

/// A file system of some megabytes that only this test's processes see; it goes with the process that holds it.
struct Disk {
    holder: Child,
    _folder: tempfile::TempDir,
    place: PathBuf,
}

impl Disk {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let mount = "mount -t tmpfs -o size=\"$1\" tmpfs \"$0\" && echo mounted && exec sleep 600";
        let mut hold = Command::new("unshare");
        hold.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount]).arg(&place).arg(size);
        let mut holder = hold.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take()?).read_line(&mut line).ok()?;
        let disk = Self { holder, _folder: folder, place };
        (line.trim() == "mounted").then_some(disk)
    }

    /// A command that runs where the disk is.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--mount", "--preserve-credentials", "--target", &self.holder.id().to_string()]);
        command.arg(program);
        command
    }

    /// The disk, from outside.
    fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.place.strip_prefix("/").unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_really_full() {
    let Some(disk) = Disk::new("6m") else {
        // Containers and some systems let nobody have a disk of his own; the other test, which needs none, stands for
        // this one there.
        eprintln!("skipped: this system lets the test have no file system of its own");
        return;
    };
    let ballast = disk.outside().join("ballast");
    fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let database = sqlite(&disk.place);
    let arguments = ["--database", &database, "--uploads-per-minute", "0"];
    let server = Server::start_by(disk.command(plimsoll()), &arguments).unwrap();
    let mut client = server.client().unwrap();
    let (mut acknowledged, refusal) = fill(&mut client, 0);
    assert!(acknowledged.len() > 10 && refusal.contains("disk is full"), "{} {refusal}", acknowledged.len());
    // Full, it still answers what is asked, and refuses in the same way.
    for number in 5000..5010 {
        let reply = client.upload(&Template::new().write(number)).unwrap();
        assert!([201, 507].contains(&reply.status), "{} {}", reply.status, reply.body);
        acknowledged.extend(reply.id().map(str::to_owned));
    }
    assert_eq!(client.get("/api/v1/compare?by=gpu").unwrap().status, 200);
    assert_eq!(client.get("/readyz").unwrap().status, 200);
    assert_eq!(lost(&server.address, &acknowledged).unwrap(), [""; 0], "while it is full");

    // With room again it takes uploads again, without being started anew.
    fs::remove_file(&ballast).unwrap();
    let reply = client.upload(&Template::new().write(6000)).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.body);
    acknowledged.push(reply.id().unwrap().to_owned());

    // Full once more, and killed.
    let (more, _) = fill(&mut client, 10_000);
    acknowledged.extend(more);
    server.kill().unwrap();
    let server = Server::start_by(disk.command(plimsoll()), &arguments).unwrap();
    assert_eq!(lost(&server.address, &acknowledged).unwrap(), [""; 0], "after a kill on a full disk");
    server.end().unwrap();
    // SQLite does not open a path through another's root: a copy is looked at.
    let copies = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(disk.outside()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copies.path().join(entry.file_name())).unwrap();
    }
    assert!(is_sound(&copies.path().join("measurements.db")));
}
