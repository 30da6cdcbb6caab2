//! What an installed PyTorch asks of NVIDIA's libraries: read from its own ELF files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use object::elf;
use object::read::elf::{FileHeader as _, Sym as _};
use object::{Endianness, ReadCache, ReadRef};

/// What NVIDIA's libraries are called.
const FAMILIES: [&str; 17] = [
    "libcuda.",
    "libcudart",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcupti",
    "libcufile",
    "libnccl",
    "libnvrtc",
    "libnvJitLink",
    "libnvshmem",
    "libnvToolsExt",
    "libnvtx",
    "libnvidia-ml",
];

/// What their functions are called, where an import does not say which library it is of.
const NAMES: [&str; 8] = ["cu", "__cu", "nccl", "nvshmem", "nvrtc", "nvml", "nvtx", "nvJit"];

/// Whether a library is one of NVIDIA's, by its name.
fn of_nvidia(library: &str) -> bool {
    FAMILIES.iter().any(|family| library.starts_with(family))
}

/// Functions of one library: each by name, with the version it is asked for in, if any.
pub(crate) type Functions = BTreeMap<String, Option<String>>;

/// What is asked of NVIDIA's libraries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// The libraries that are asked for by name, and the functions each has to have.
    pub libraries: BTreeMap<String, Functions>,
    /// Functions that may be in any of them.
    pub anywhere: BTreeSet<String>,
}

impl Imports {
    /// Adds what one file asks for. A file that is no ELF library of 64 bits asks for nothing.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn add(&mut self, path: &Path) -> std::io::Result<()> {
        let file = ReadCache::new(File::open(path)?);
        self.add_elf(&file).map_err(|error| std::io::Error::other(format!("{}: {error}", path.display())))
    }

    fn add_elf<'data, R: ReadRef<'data>>(&mut self, data: R) -> object::read::Result<()> {
        let Ok(header) = elf::FileHeader64::<Endianness>::parse(data) else { return Ok(()) };
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let dynamic = sections.dynamic_table(endian, data)?;
        for entry in &dynamic {
            if entry.tag == elf::DT_NEEDED {
                let name = text(dynamic.string(entry)?);
                if of_nvidia(&name) {
                    self.libraries.entry(name).or_default();
                }
            }
        }
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?;
        for (index, symbol) in symbols.enumerate() {
            if !symbol.is_undefined(endian) || symbol.st_bind() == elf::STB_WEAK {
                continue;
            }
            let name = text(symbols.symbol_name(endian, symbol)?);
            let version = match &versions {
                Some(versions) => versions.version(versions.version_index(endian, index).index())?,
                None => None,
            };
            match version.and_then(|v| Some((text(v.file()?), text(v.name())))) {
                Some((library, version)) if of_nvidia(&library) => {
                    self.libraries.entry(library).or_default().insert(name, Some(version));
                }
                None if NAMES.iter().any(|family| name.starts_with(family)) => {
                    self.anywhere.insert(name);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Names of driver and NVML functions that stand as texts in a file: those are looked up while it runs.
pub(crate) fn looked_up(bytes: &[u8]) -> BTreeSet<String> {
    let named = |text: &&[u8]| {
        let rest = text.strip_prefix(b"cu").or_else(|| text.strip_prefix(b"nvml"));
        rest.is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_uppercase))
            && text.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    bytes.split(|&byte| byte == 0).filter(named).map(text).collect()
}

/// The functions that a library exports.
///
/// # Errors
/// If the file cannot be read as an ELF library of 64 bits.
pub(crate) fn exports(path: &Path) -> std::io::Result<BTreeSet<String>> {
    let file = ReadCache::new(File::open(path)?);
    exported(&file).map_err(|error| std::io::Error::other(format!("{}: {error}", path.display())))
}

fn exported<'data, R: ReadRef<'data>>(data: R) -> object::read::Result<BTreeSet<String>> {
    let header = elf::FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let symbols = header.sections(endian, data)?.symbols(endian, data, elf::SHT_DYNSYM)?;
    let mut names = BTreeSet::new();
    for symbol in symbols.iter().filter(|symbol| !symbol.is_undefined(endian)) {
        names.insert(text(symbols.symbol_name(endian, symbol)?));
    }
    Ok(names)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_looked_up_stand_between_zeros() {
        let found = looked_up(b"\0cuMemCreate\0cudaMalloc\0nvmlInit_v2\0cuda\0not cuMemMap\0custom\0cu\0");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["cuMemCreate", "nvmlInit_v2"]);
    }

    #[test]
    fn nvidias_libraries_are_known_by_name() {
        assert!(of_nvidia("libcudart.so.13") && of_nvidia("libcuda.so.1") && of_nvidia("libcudart-d0da41ae.so.11.0"));
        assert!(!of_nvidia("libtorch_cuda.so") && !of_nvidia("libc10_cuda.so") && !of_nvidia("libc.so.6"));
    }
}
