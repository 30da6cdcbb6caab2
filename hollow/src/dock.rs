//! The dock: for an installed PyTorch, a folder with a library for every one of NVIDIA's that it asks for, and the
//! environment in which Python finds them instead of any other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_ground::{Error, Result};

use crate::card::{Card, Rules, Setup, VARIABLE};
use crate::imports::{Functions, Imports, exports, looked_up};
use crate::stub::Stub;

/// The stand-in's file name, as cargo builds it.
pub const LIBRARY: &str = "libplimsoll_hollow.so";

/// Libraries that PyTorch opens by name while it runs: the driver's and NVML's.
const OPENED: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
/// The driver's as a linker looks for it: Triton 3.3 links its launchers with `-lcuda`.
const LINKED: &str = "libcuda.so";
/// PyTorch's library that looks functions of the driver and of NVML up by name (c10/cuda/driver_api.h).
const LOOKS_UP: &str = "libc10_cuda.so";
/// Where functions go that are asked for without saying of which library.
const ANYWHERE: &str = "libplimsoll_anywhere.so";
/// The folder in which the processes tell one another what they hold of the cards.
const BOOK: &str = "held";
/// cuDNN's version where the installation does not say: the last of each generation that PyTorch was built for.
const CUDNN: [(&str, usize); 2] = [("libcudnn.so.8", 8902), ("libcudnn.so.9", 91_900)];

/// A folder that is ready.
#[derive(Debug)]
pub struct Dock {
    folder: PathBuf,
    libraries: Vec<String>,
    cuda: i32,
    cudnn: usize,
    torch: String,
}

impl Dock {
    /// Fills `folder` for the PyTorch in `torch` (the folder of its package) with `stand_in` as what answers.
    ///
    /// # Errors
    /// If that is no PyTorch for CUDA, if a file cannot be read or written, or if a path holds a character by which the
    /// loader separates libraries.
    pub fn build(folder: &Path, torch: &Path, stand_in: &Path) -> Result<Self> {
        let place = folder.to_str().filter(|p| !p.contains([':', ' '])).ok_or_else(|| {
            let problem = format!("the folder {} has a space or a colon in its name", folder.display());
            Error::new(
                "hollow card",
                problem,
                "set TMPDIR to a folder without either: the loader separates names by them",
            )
        })?;
        let (version, cuda) = built_for(torch)?;
        let mut imports = Imports::default();
        for file in libraries(torch, cuda)? {
            imports.add(&file).map_err(|e| trouble("read", &file, &e))?;
        }
        let answered = exports(stand_in).map_err(|e| trouble("read", stand_in, &e))?;
        let link = folder.join(LIBRARY);
        fs::copy(stand_in, &link).map_err(|e| trouble("write", &link, &e))?;

        let book = folder.join(BOOK);
        fs::create_dir_all(&book).map_err(|e| trouble("write", &book, &e))?;

        let cudnn = cudnn_wanted(torch, &imports);
        let looks_up = torch.join("lib").join(LOOKS_UP);
        let texts = fs::read(&looks_up).map_err(|e| trouble("read", &looks_up, &e))?;
        let mut wanted = imports.libraries;
        for name in looked_up(&texts) {
            let library = OPENED[usize::from(name.starts_with("nvml"))];
            wanted.entry(library.to_owned()).or_default().insert(name, None);
        }
        let anywhere: Functions = imports.anywhere.into_iter().map(|name| (name, None)).collect();
        wanted.insert(ANYWHERE.to_owned(), anywhere);

        let needs = format!("{place}/{LIBRARY}");
        for (name, functions) in &mut wanted {
            // What the stand-in answers must not be found here first by those who look it up in this very library. A version
            // that only such functions are asked for in must still be there.
            let (ours, mut kept): (Functions, Functions) =
                std::mem::take(functions).into_iter().partition(|(function, _)| answered.contains(function));
            let versions: BTreeSet<String> = ours.into_values().flatten().collect();
            kept.extend(
                versions.into_iter().enumerate().map(|(n, version)| (format!("plimsoll_version_{n}"), Some(version))),
            );
            let stub = Stub { name, needs: &needs, functions: &kept };
            let path = folder.join(name);
            let bytes = stub.to_elf().map_err(|e| trouble("lay out", &path, &e))?;
            fs::write(&path, &bytes).map_err(|e| trouble("write", &path, &e))?;
            if name == OPENED[0] {
                let path = folder.join(LINKED);
                fs::write(&path, bytes).map_err(|e| trouble("write", &path, &e))?;
            }
        }
        Ok(Self { folder: folder.to_owned(), libraries: wanted.into_keys().collect(), cuda, cudnn, torch: version })
    }

    /// PyTorch's version: `2.11.0+cu130`.
    #[must_use]
    pub fn torch(&self) -> &str {
        &self.torch
    }

    /// The variables that make Python run on `cards`; each is to replace what was set, but for `LD_PRELOAD` and
    /// `LD_LIBRARY_PATH`, which go before it. `planner` is the socket behind which cuDNN is asked, if it is.
    ///
    /// # Errors
    /// If the cards cannot be written down, which none that exist causes.
    pub fn environment(
        &self,
        cards: Vec<Card>,
        rules: Rules,
        planner: Option<PathBuf>,
    ) -> Result<BTreeMap<&'static str, String>> {
        let book = Some(self.folder.join(BOOK));
        let setup = Setup { cards, rules, cuda: self.cuda, cudnn: self.cudnn, book, planner };
        let setup =
            setup.to_json().map_err(|e| Error::new("hollow card", e.to_string(), "check the card's figures"))?;
        let folder = self.folder.display().to_string();
        // PyTorch's own search path comes before LD_LIBRARY_PATH; what is loaded already under a name comes before both.
        let names = std::iter::once(LIBRARY).chain(self.libraries.iter().map(String::as_str));
        let preload: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
        Ok([
            (VARIABLE, setup),
            ("LD_PRELOAD", preload.join(":")),
            ("TRITON_LIBCUDA_PATH", folder.clone()),
            ("LD_LIBRARY_PATH", folder),
        ]
        .into())
    }
}

fn trouble(verb: &str, path: &Path, error: &impl std::fmt::Display) -> Error {
    let problem = format!("cannot {verb} {}: {error}", path.display());
    Error::new("hollow card", problem, "check that the file is whole and the disk has room")
}

/// PyTorch's version and the CUDA version that it was built for, 13000 for 13.0: both stand in its `version.py`.
fn built_for(torch: &Path) -> Result<(String, i32)> {
    let path = torch.join("version.py");
    let text = fs::read_to_string(&path).map_err(|e| trouble("read", &path, &e))?;
    let version = said(&text, "__version__").unwrap_or_default();
    let number = said(&text, "cuda").and_then(|cuda| {
        let (major, minor) = cuda.split_once('.')?;
        Some(major.parse::<i32>().ok()? * 1000 + minor.parse::<i32>().ok()? * 10)
    });
    let cuda = number.ok_or_else(|| {
        let problem = format!("PyTorch {version} in {} is not built for CUDA", torch.display());
        let hint = "install the CUDA build (pip install torch on Linux; no driver and no card are needed), or name \
            another Python with --python PATH";
        Error::new("python", problem, hint)
    })?;
    Ok((version, cuda))
}

/// The text that a line of a Python file gives a name, with or without a type.
fn said(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start();
        let (kind, value) = rest.split_once('=')?;
        let kind = kind.trim();
        let quoted = value.trim().strip_prefix(['\'', '"'])?;
        (kind.is_empty() || kind.starts_with(':')).then(|| quoted.trim_end_matches(['\'', '"']).to_owned())
    })
}

/// The files of PyTorch that ask for NVIDIA's libraries: its own, those of the packages that come with it, and of the libraries
/// that bitsandbytes has for every CUDA the one that it opens under this PyTorch (`cextension.py`).
fn libraries(torch: &Path, cuda: i32) -> Result<Vec<PathBuf>> {
    let lib = torch.join("lib");
    let mut found = Vec::new();
    let packages = torch.parent().map(|site| [site.join("torchvision"), site.join("torchaudio").join("lib")]);
    for folder in std::iter::once(lib.clone()).chain(packages.into_iter().flatten()) {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == lib => return Err(trouble("read", &lib, &error)),
            Err(_) => continue,
        };
        let files = entries.flatten().map(|entry| entry.path());
        found.extend(files.filter(|path| path.to_string_lossy().contains(".so")));
    }
    let quantizing = torch.parent().map(|site| site.join("bitsandbytes").join(quantizer(cuda)));
    found.extend(quantizing.filter(|path| path.is_file()));
    found.sort();
    Ok(found)
}

/// What bitsandbytes calls its library for a CUDA version, 13000 for 13.0.
fn quantizer(cuda: i32) -> String {
    format!("libbitsandbytes_cuda{}{}.so", cuda / 1000, cuda % 1000 / 10)
}

/// The cuDNN version that PyTorch was built for: its wheel asks for that very one.
fn cudnn_wanted(torch: &Path, imports: &Imports) -> usize {
    let told = torch.parent().and_then(|site| fs::read_dir(site).ok()).and_then(|entries| {
        entries.flatten().find_map(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let wheel = name.starts_with("torch-") && name.ends_with(".dist-info");
            wheel.then(|| fs::read_to_string(entry.path().join("METADATA")).ok()).flatten()
        })
    });
    let named = |family: &&(&str, usize)| imports.libraries.contains_key(family.0);
    let fallback = CUDNN.iter().find(named).map_or(CUDNN[1].1, |family| family.1);
    told.and_then(|text| text.lines().find_map(cudnn_required)).unwrap_or(fallback)
}

/// The version in a line like `Requires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"`, as cuDNN numbers it.
fn cudnn_required(line: &str) -> Option<usize> {
    let (_, version) = line.strip_prefix("Requires-Dist: nvidia-cudnn-cu")?.split_once("==")?;
    let mut parts = version.split(['.', ';', ' ']).map_while(|part| part.parse::<usize>().ok());
    let (major, minor, patch) = (parts.next()?, parts.next()?, parts.next()?);
    Some(major * if major >= 9 { 10_000 } else { 1000 } + minor * 100 + patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_says_what_it_was_built_for() {
        let text = "from typing import Optional\n__all__ = ['cuda']\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n";
        assert_eq!(said(text, "__version__").as_deref(), Some("2.11.0+cu130"));
        assert_eq!(said(text, "cuda").as_deref(), Some("13.0"));
        assert_eq!(said("cuda = None\n", "cuda"), None);
        assert_eq!(
            cudnn_required("Requires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == \"Linux\""),
            Some(91_900)
        );
        assert_eq!(cudnn_required("Requires-Dist: nvidia-cudnn-cu12 (==8.9.2.26) ; x"), Some(8902));
        assert_eq!(cudnn_required("Requires-Dist: numpy"), None);
    }

    #[test]
    fn a_torch_without_cuda_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let torch = folder.path().join("torch");
        fs::create_dir(&torch).unwrap();
        fs::write(torch.join("version.py"), "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n").unwrap();
        let error = Dock::build(folder.path(), &torch, Path::new("/none")).unwrap_err();
        assert!(error.problem.contains("2.11.0+cpu") && error.hint.contains("--python"), "{error}");
    }

    #[test]
    fn a_folder_that_the_loader_would_cut_is_refused() {
        let error = Dock::build(Path::new("/a b"), Path::new("/torch"), Path::new("/none")).unwrap_err();
        assert!(error.hint.contains("TMPDIR"));
    }
}
