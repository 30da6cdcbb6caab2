//! Replacing a file in one move.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use tempfile::Builder;

/// How a file that is still being written is called; what ends in it is never taken for a record.
pub const UNFINISHED: &str = ".unfinished";

/// Puts `content` where `path` says. It is written beside it, forced to the disk and moved over it: a kill or a power cut
/// at any moment leaves the old file or the new one. What is no regular file (`/dev/stdout`) is written to directly.
///
/// # Errors
/// When it cannot be written; the old file is then as it was.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    // Through a symbolic link the file it names is replaced, not the link.
    let target = match fs::metadata(path) {
        Ok(found) if found.is_file() => fs::canonicalize(path)?,
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => return File::options().write(true).open(path)?.write_all(content),
        Err(_) => path.to_owned(),
    };
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = Builder::new();
    builder.prefix(".").suffix(UNFINISHED);
    #[cfg(unix)]
    {
        // As any new file: the user's umask decides, instead of a temporary file's 0600.
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| error.error)?;
    // The new name is on the disk only once the folder is; where folders cannot be opened, the system sees to it.
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_old_content_goes_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        replace(&path, b"old and longer").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            replace(&folder.path().join("no").join("a.json"), b"x").unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(replace(folder.path(), b"x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_a_device_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        replace(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    /// Where the process that is to be killed writes.
    const TARGET: &str = "PLIMSOLL_TEST_REPLACE";
    /// Long enough that writing it takes a while.
    const SIZE: usize = 1 << 20;

    /// The test starts itself as another process that writes without end, and kills it at ever other moments.
    #[test]
    fn a_kill_leaves_the_old_file_or_the_new_one() {
        if let Some(path) = std::env::var_os(TARGET) {
            for round in 0u8.. {
                replace(Path::new(&path), &vec![b'a' + round % 26; SIZE]).unwrap();
                if round == u8::MAX {
                    return;
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        let name = "records::atomic::tests::a_kill_leaves_the_old_file_or_the_new_one";
        let mut unfinished = 0;
        for round in 0..25u64 {
            let _ = fs::remove_file(&path);
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(TARGET, &path)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let start = Instant::now();
            while !path.exists() {
                assert!(start.elapsed() < Duration::from_secs(60), "nothing was written");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(round * 1371));
            child.kill().unwrap();
            child.wait().unwrap();
            let content = fs::read(&path).unwrap();
            assert_eq!(content.len(), SIZE, "half a file after round {round}");
            assert!(content.windows(2).all(|pair| pair[0] == pair[1]), "two contents mixed in round {round}");
            unfinished += fs::read_dir(folder.path()).unwrap().count() - 1;
        }
        // Otherwise every kill hit between two writes, and nothing was shown.
        assert!(unfinished > 0, "no kill met a write");
    }
}
