//! The planner's files, with everything a response needs worked out once.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _, fs, io, path::Path};

use axum::{body::Bytes, http::HeaderValue};
use sha2::{Digest, Sha256};

use crate::encoding::Encoding;

/// The page every route of the planner starts from.
const INDEX: &str = "index.html";

/// Names, contents and SHA-256 of the files that the build script made; none in a build without the planner.
const EMBEDDED: &[(&str, &[u8], [u8; 32])] = &include!(concat!(env!("OUT_DIR"), "/planner.rs"));

/// One file as the build left it.
#[derive(Clone, Debug)]
pub struct File {
    /// Path below the root, `/` between its parts.
    pub path: String,
    /// The content.
    pub content: Cow<'static, [u8]>,
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
}

impl File {
    /// A file with its hash computed here.
    pub fn new(path: impl Into<String>, content: impl Into<Cow<'static, [u8]>>) -> Self {
        let content = content.into();
        let sha256 = Sha256::digest(&content).into();
        Self { path: path.into(), content, sha256 }
    }
}

/// Everything of the planner that the server can send.
#[derive(Debug)]
pub struct Site {
    assets: BTreeMap<String, Asset>,
}

/// A file in all the forms it is stored in.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) content_type: HeaderValue,
    pub(crate) cache_control: HeaderValue,
    /// In the order of [`Encoding::ALL`]; the last is always there.
    stored: Vec<(Encoding, Stored)>,
}

/// One form of a file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) content: Bytes,
    pub(crate) etag: HeaderValue,
}

impl Asset {
    pub(crate) fn form(&self, encoding: Encoding) -> Option<&Stored> {
        self.stored.iter().find(|(e, _)| *e == encoding).map(|(_, stored)| stored)
    }

    /// Whether what is sent depends on `Accept-Encoding`.
    pub(crate) fn varies(&self) -> bool {
        self.stored.len() > 1
    }
}

impl Site {
    /// The planner inside this binary.
    pub fn embedded() -> Self {
        let files = EMBEDDED.iter();
        Self::new(files.map(|(path, content, sha256)| File {
            path: (*path).to_owned(),
            content: Cow::Borrowed(content),
            sha256: *sha256,
        }))
    }

    /// The planner in a folder, as it is now.
    ///
    /// # Errors
    /// Something in it cannot be read.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let (mut files, mut waiting) = (Vec::new(), vec![folder.to_path_buf()]);
        while let Some(place) = waiting.pop() {
            for entry in fs::read_dir(&place)? {
                let path = entry?.path();
                if path.is_dir() {
                    waiting.push(path);
                } else if let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) {
                    files.push(File::new(name.replace(std::path::MAIN_SEPARATOR, "/"), fs::read(&path)?));
                }
            }
        }
        Ok(Self::new(files))
    }

    /// A site of these files. `a.js.br` and `a.js.gz` beside `a.js` are its compressed forms and have no address of
    /// their own; names that begin with a dot are left out.
    pub fn new(files: impl IntoIterator<Item = File>) -> Self {
        let mut files: BTreeMap<String, File> = files
            .into_iter()
            .filter(|file| !file.path.split('/').any(|part| part.starts_with('.')))
            .map(|file| (file.path.clone(), file))
            .collect();
        let forms: Vec<String> = files
            .keys()
            .filter(|path| {
                [Encoding::Brotli, Encoding::Gzip]
                    .iter()
                    .any(|e| path.strip_suffix(e.suffix()).is_some_and(|plain| files.contains_key(plain)))
            })
            .cloned()
            .collect();
        let mut compressed: BTreeMap<String, File> =
            forms.into_iter().filter_map(|path| files.remove_entry(&path)).collect();

        let assets = files
            .into_iter()
            .map(|(path, file)| {
                let plain_size = file.content.len();
                let smaller = [Encoding::Brotli, Encoding::Gzip].into_iter().filter_map(|encoding| {
                    let form = compressed.remove(&format!("{path}{}", encoding.suffix()))?;
                    (form.content.len() < plain_size).then(|| (encoding, Stored::new(form)))
                });
                let mut stored: Vec<_> = smaller.collect();
                stored.push((Encoding::Identity, Stored::new(file)));
                let asset = Asset { content_type: content_type(&path), cache_control: cache_control(&path), stored };
                (path, asset)
            })
            .collect();
        Self { assets }
    }

    /// Whether there is no planner here.
    pub fn is_empty(&self) -> bool {
        !self.assets.contains_key(INDEX)
    }

    /// The file at a decoded path that begins with `/`.
    pub(crate) fn asset(&self, path: &str) -> Option<&Asset> {
        match path.strip_prefix('/')? {
            "" => self.index(),
            path => self.assets.get(path),
        }
    }

    /// The page every route starts from.
    pub(crate) fn index(&self) -> Option<&Asset> {
        self.assets.get(INDEX)
    }
}

impl Stored {
    fn new(file: File) -> Self {
        let content = match file.content {
            Cow::Borrowed(content) => Bytes::from_static(content),
            Cow::Owned(content) => Bytes::from(content),
        };
        let mut tag = String::with_capacity(66);
        tag.push('"');
        for byte in file.sha256 {
            // Writing to a String cannot fail.
            let _ = write!(tag, "{byte:02x}");
        }
        tag.push('"');
        // Hex digits in quotes: always a valid header value.
        let etag = HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\""));
        Self { content, etag }
    }
}

/// The media type by extension, text with its charset.
fn content_type(path: &str) -> HeaderValue {
    let mime = mime_guess::from_path(path).first_or_octet_stream();
    let text = mime.type_() == "text" || matches!(mime.subtype().as_str(), "json" | "javascript");
    let value = if text { format!("{mime}; charset=utf-8") } else { mime.to_string() };
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

/// A name that changes with the content may be kept for ever; everything else is asked for again, which costs a 304.
fn cache_control(path: &str) -> HeaderValue {
    HeaderValue::from_static(if is_hashed(path) { "public, max-age=31536000, immutable" } else { "no-cache" })
}

/// Whether the build put a hash of the content into the file's name, as `name-0123456789abcdef.css`: no word is that long
/// in hex.
fn is_hashed(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    stem.rsplit('-').next().is_some_and(|hash| hash.len() == 16 && hash.bytes().all(is_hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_content_hash() {
        for path in ["planner-21ff04b3bd8e7f04.js", "planner-21ff04b3bd8e7f04.wasm", "a/style-01ff04b3bd8e7f04.css"] {
            assert!(is_hashed(path), "{path}");
        }
        for path in ["index.html", "theme.js", "planner.wasm", "archivo-latin.woff2", "x-21ff04b3bd8e7f04/inline0.js"] {
            assert!(!is_hashed(path), "{path}");
        }
    }

    #[test]
    fn media_types() {
        for (path, expected) in [
            ("a_bg.wasm", "application/wasm"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.woff2", "font/woff2"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.webmanifest", "application/manifest+json"),
            ("a", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), expected);
        }
    }

    #[test]
    fn compressed_forms_have_no_address_and_must_be_smaller() {
        let site = Site::new([
            File::new("index.html", b"<p>0123456789</p>".as_slice()),
            File::new("index.html.br", b"short".as_slice()),
            File::new("index.html.gz", b"longer than what it was made from".as_slice()),
            File::new("data.gz", b"a file of its own".as_slice()),
            File::new(".stage/index.html", b"".as_slice()),
        ]);
        assert!(site.asset("/index.html.br").is_none() && site.asset("/.stage/index.html").is_none());
        assert!(site.asset("/data.gz").is_some());
        let index = site.asset("/").unwrap();
        assert!(index.form(Encoding::Brotli).is_some() && index.form(Encoding::Gzip).is_none());
    }
}
