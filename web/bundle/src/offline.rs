//! The script that keeps the planner's files in the browser: told which they are.

use anyhow::{Result, ensure};

use crate::files::{Files, hash};

/// Its name beside the page: below it lies all that it answers for.
pub const NAME: &str = "offline.js";

/// The lines it is told in, as they stand in `web/assets/offline.js`.
const VERSION: &str = "const VERSION = \"\";\n";
const FILES: &str = "const FILES = [];\n";

/// The script for these files: their names, and a version that changes with any of them.
///
/// # Errors
/// The script has not one place for each.
pub fn write(script: &str, files: &Files) -> Result<String> {
    for line in [VERSION, FILES] {
        ensure!(script.matches(line).count() == 1, "web/assets/{NAME} has not one line {line:?}");
    }
    let (mut names, mut all) = (Vec::new(), Vec::new());
    for (name, content) in files.iter().filter(|(name, _)| is_kept(name)) {
        // A page is asked for by the name of its folder.
        names.push(if name == "index.html" { "./" } else { name });
        all.extend_from_slice(name.as_bytes());
        all.extend_from_slice(hash(content).as_bytes());
    }
    let version = format!("const VERSION = \"{}\";\n", hash(&all));
    let names = format!("const FILES = {};\n", serde_json::to_string(&names)?);
    Ok(script.replacen(VERSION, &version, 1).replacen(FILES, &names, 1))
}

/// What other sites show of a link to the page; the page itself does not.
const PICTURE: &str = "social.png";

/// Measurements are kept as a list: all of them may be many. So may the catalog's hulls, of which somebody opens one or two.
fn is_kept(name: &str) -> bool {
    let many = ["measurements/", "hulls/"].iter().any(|folder| name.starts_with(folder));
    name != PICTURE && (!many || name == "measurements/index.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(content: &str) -> String {
        let mut files = Files::default();
        files.add("index.html", "page").unwrap();
        files.add("planner-0123456789abcdef.js", content).unwrap();
        files.add("measurements/index.json", "[]").unwrap();
        files.add("measurements/abc.json", "{}").unwrap();
        files.add("hulls/abc.hull", "plimsoll-hull 1").unwrap();
        files.add(PICTURE, "picture").unwrap();
        let template = std::fs::read_to_string(crate::web().join("assets").join(NAME)).unwrap();
        write(&template, &files).unwrap()
    }

    #[test]
    fn it_is_told_the_files_and_a_version_that_changes_with_them() {
        let one = script("1");
        let told = "const FILES = [\"./\",\"measurements/index.json\",\"planner-0123456789abcdef.js\"];\n";
        assert!(one.contains(told) && !one.contains(VERSION), "{one}");
        assert_eq!(one, script("1"));
        assert_ne!(one, script("2"));
        assert!(write("const FILES = [];\n", &Files::default()).is_err());
    }
}
