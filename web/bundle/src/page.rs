//! The page: `web/index.html` with what Trunk's marks in it stand for.
//!
//! The marks are Trunk's so that `trunk serve` works while one works on the planner; only those the page has are known
//! here. Nothing in the page that is written is inline: the server's policy allows files of its own and nothing else.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use plimsoll_web::served::{Served, escaped};

use crate::bindgen::Planner;
use crate::files::Files;
use crate::measurements::below;

/// What Trunk is to look at.
const MARK: &str = "data-trunk";

/// Starts the planner: Trunk writes a script of its own, inline, in its place.
const START: &str = "start.js";

/// Where the verdict goes that is served with the page, and what says before the first paint which link that answers.
const VERDICT: &str = "<!-- The bundler puts the engine's verdict on the opening scenario here. -->";
const BEFORE: &str = "<script src=\"before.js\">";

/// The page with the engine's verdict on the opening scenario in it: read while the planner is still being compiled.
///
/// # Errors
/// The page has not one place for it.
pub fn answer(page: &str, served: &Served) -> Result<String> {
    for place in [VERDICT, BEFORE] {
        ensure!(page.matches(place).count() == 1, "web/index.html has not one {place}");
    }
    let before = format!("<script src=\"before.js\" data-opening=\"{}\">", escaped(&served.link));
    Ok(page.replacen(VERDICT, &served.html, 1).replacen(BEFORE, &before, 1))
}

/// The page; what it names is added to the files.
///
/// # Errors
/// A mark that is not known, a file that is not there.
pub fn write(index: &str, web: &Path, planner: Planner, files: &mut Files) -> Result<String> {
    let mut planner = Some(planner);
    let mut styles = styles(index, web)?;
    let mut page = String::with_capacity(index.len());
    let mut rest = index;
    while let Some((before, link)) = next_link(rest) {
        page.push_str(before);
        rest = rest.get(before.len() + link.len()..).unwrap_or_default();
        let link = Link(link);
        let Some(kind) = link.attribute("rel").filter(|_| link.attribute(MARK).is_some()) else {
            page.push_str(link.0);
            continue;
        };
        let html = match kind {
            "css" => styles.take().map_or(Ok(None), |all| {
                let name = files.add_hashed("planner", "css", all.into_bytes())?;
                anyhow::Ok(Some(format!("<link rel=\"stylesheet\" href=\"{name}\">")))
            })?,
            "copy-file" => {
                let path = web.join(link.href()?);
                files.add(file_name(&path)?, read(&path)?)?;
                None
            }
            "copy-dir" => {
                let folder = web.join(link.href()?);
                for path in below(&folder)? {
                    let within = path.strip_prefix(&folder)?.to_str().context("a file's name is not UTF-8")?;
                    files.add(format!("{}/{}", file_name(&folder)?, within.replace('\\', "/")), read(&path)?)?;
                }
                None
            }
            "rust" => {
                let Planner { script, wasm } = planner.take().context("the page starts two programs")?;
                let script = files.add_hashed("planner", "js", script.into_bytes())?;
                let wasm = files.add_hashed("planner", "wasm", wasm)?;
                files.add(START, read(&web.join("assets").join(START))?)?;
                Some(format!(
                    "<link rel=\"modulepreload\" href=\"{script}\">\n    \
                     <link rel=\"preload\" href=\"{wasm}\" as=\"fetch\" type=\"application/wasm\" crossorigin>\n    \
                     <script type=\"module\" src=\"{START}\"></script>"
                ))
            }
            other => bail!("web/index.html: what Trunk does with rel=\"{other}\" is not done here"),
        };
        match html {
            Some(html) => page.push_str(&html),
            // Its line goes with it.
            None => page.truncate(page.trim_end().len()),
        }
    }
    page.push_str(rest);
    ensure!(planner.is_none(), "web/index.html starts no program: there is no link with {MARK} and rel=\"rust\"");
    Ok(page)
}

/// All style sheets in one: one request, and one text to compress.
fn styles(index: &str, web: &Path) -> Result<Option<String>> {
    let mut all = None;
    let mut rest = index;
    while let Some((before, link)) = next_link(rest) {
        rest = rest.get(before.len() + link.len()..).unwrap_or_default();
        let link = Link(link);
        if link.attribute(MARK).is_some() && link.attribute("rel") == Some("css") {
            let path = web.join(link.href()?);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            all.get_or_insert_with(String::new).push_str(&text);
        }
    }
    Ok(all)
}

/// What comes before the next `<link ...>`, and that.
fn next_link(text: &str) -> Option<(&str, &str)> {
    let start = text.find("<link")?;
    let length = text.get(start..)?.find('>')? + 1;
    Some((text.get(..start)?, text.get(start..start + length)?))
}

/// A `<link ...>` as this project writes them: values in double quotes, no `>` in any.
struct Link<'a>(&'a str);

impl<'a> Link<'a> {
    /// The value of an attribute; nothing in it when it stands alone.
    fn attribute(&self, name: &str) -> Option<&'a str> {
        let mut inside = self.0.trim_start_matches("<link").trim_end_matches('>').trim();
        while !inside.is_empty() {
            let end = inside.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(inside.len());
            let (this, after) = inside.split_at(end);
            let (value, after) = match after.strip_prefix("=\"") {
                Some(quoted) => quoted.split_once('"')?,
                None => ("", after),
            };
            if this == name {
                return Some(value);
            }
            inside = after.trim_start();
        }
        None
    }

    fn href(&self) -> Result<&'a str> {
        self.attribute("href").with_context(|| format!("web/index.html: {} has no href", self.0))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).with_context(|| format!("{} has no name", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planner() -> Planner {
        Planner { script: "script".to_owned(), wasm: b"wasm".to_vec() }
    }

    fn page(index: &str) -> Result<(String, Vec<String>)> {
        let web = tempfile::tempdir()?;
        fs::create_dir_all(web.path().join("assets/fonts/more"))?;
        for (name, content) in [
            ("one.css", "a{}\n"),
            ("two.css", "b{}\n"),
            ("assets/start.js", "start"),
            ("assets/fonts/more/a.woff2", "font"),
        ] {
            fs::write(web.path().join(name), content)?;
        }
        let mut files = Files::default();
        let page = write(index, web.path(), planner(), &mut files)?;
        Ok((page, files.iter().map(|(name, _)| name.to_owned()).collect()))
    }

    const RUST: &str = "<link\n  data-trunk\n  rel=\"rust\" data-bin=\"planner\"\n>";

    #[test]
    fn the_program_is_loaded_early_and_started_by_a_file() {
        let (page, files) = page(&format!("<head>{RUST}</head>")).unwrap();
        let [script, wasm, start] = files.as_slice() else { panic!("{files:?}") };
        assert!(script.starts_with("planner-") && script.ends_with(".js"));
        assert!(wasm.starts_with("planner-") && wasm.ends_with(".wasm") && start == START);
        assert!(page.contains(&format!("rel=\"modulepreload\" href=\"{script}\"")), "{page}");
        assert!(page.contains(&format!("rel=\"preload\" href=\"{wasm}\"")), "{page}");
        assert!(page.contains("<script type=\"module\" src=\"start.js\"></script></head>"), "{page}");
    }

    #[test]
    fn styles_become_one_and_copies_leave_no_line() {
        let index = format!(
            "<link rel=\"other\">\n<link data-trunk rel=\"css\" href=\"one.css\">\n<link data-trunk rel=\"css\" \
             href=\"two.css\">\n<link data-trunk rel=\"copy-dir\" href=\"assets/fonts\">\n\
             <link rel=\"icon\" href=\"mark.svg\">\n{RUST}"
        );
        let (page, files) = page(&index).unwrap();
        let lines: Vec<&str> = page.lines().map(|line| line.split('-').next().unwrap()).take(3).collect();
        let expected = [
            "<link rel=\"other\">",
            "<link rel=\"stylesheet\" href=\"planner",
            "<link rel=\"icon\" href=\"mark.svg\">",
        ];
        assert_eq!(lines, expected);
        assert!(files.contains(&"fonts/more/a.woff2".to_owned()), "{files:?}");
        assert_eq!(files.iter().filter(|name| name.ends_with(".css")).count(), 1);
    }

    #[test]
    fn the_verdict_stands_in_the_page_with_its_link() {
        let index = fs::read_to_string(crate::web().join("index.html")).unwrap();
        let served = Served { link: "?a=1&b=2".to_owned(), html: "<p>Fits</p>".to_owned() };
        let page = answer(&index, &served).unwrap();
        assert!(
            page.contains("data-opening=\"?a=1&amp;b=2\"></script>") && page.contains("      <p>Fits</p>\n"),
            "{page}"
        );
        assert!(answer(&page, &served).is_err(), "there is no second place");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (index, why) in [
            ("<p>no program</p>".to_owned(), "starts no program"),
            (format!("{RUST}{RUST}"), "two programs"),
            (format!("{RUST}<link data-trunk rel=\"sass\" href=\"a\">"), "sass"),
            (format!("{RUST}<link data-trunk rel=\"copy-file\" href=\"none.js\">"), "none.js"),
            (format!("{RUST}<link data-trunk rel=\"copy-file\">"), "no href"),
        ] {
            let error = page(&index).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_planners_own_page_has_nothing_inline() {
        let web = crate::web();
        let index = fs::read_to_string(web.join("index.html")).unwrap();
        let page = write(&index, web, planner(), &mut Files::default()).unwrap();
        let page = answer(&page, &plimsoll_web::served::opening().unwrap()).unwrap();
        assert!(!page.contains(MARK));
        for script in page.split("<script").skip(1) {
            let (tag, content) = script.split_once('>').unwrap();
            assert!(tag.contains(" src=\"") && content.starts_with("</script>"), "<script{script}");
        }
        for inline in ["<style", " style=", " onload=", " onclick=", "javascript:"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }
}
