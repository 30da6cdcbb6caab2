//! What a record keeps of the worker's words.
//!
//! Messages of exceptions hold whatever somebody put into them: paths, names, addresses. Nothing takes all of that out
//! again, so a record is told the other way round: it keeps the words that the worker itself and PyTorch's messages about
//! memory are made of, and numbers. The terminal still shows everything.

use std::collections::HashSet;
use std::env;
use std::sync::OnceLock;

use plimsoll_core::measurement::Known;

use crate::scripts::WORKER;

/// What takes the place of the other words.
const LEFT_OUT: &str = "[left out]";

/// Longest number that is kept, in digits: bytes of any card have fewer, numbers of boards more.
const DIGITS: usize = 12;

/// PyTorch's words about memory (c10/cuda/CUDACachingAllocator.cpp, c10/core/impl/alloc_cpu.cpp), Python's own exceptions,
/// and what we say ourselves about a worker.
const WORDS: &str = "CUDA HIP MPS out of memory Tried to allocate GPU has a total capacity which is free Process process \
    including non PyTorch this in use Of the allocated by and reserved but unallocated If large try setting \
    PYTORCH CUDA ALLOC CONF expandable segments True avoid fragmentation See documentation for Memory Management https \
    pytorch org docs stable notes html environment variables DefaultCPUAllocator not enough you tried bytes backend \
    MiB GiB KiB TiB private pools other allocations max allowed Use \
    ArithmeticError AssertionError AttributeError BufferError EOFError FileNotFoundError FloatingPointError ImportError \
    IndexError KeyError KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotImplementedError OSError \
    OutOfMemoryError OverflowError PermissionError RecursionError ReferenceError RuntimeError StopIteration SyntaxError \
    SystemError TimeoutError TypeError UnicodeError ValueError ZeroDivisionError \
    it JSON line of over no time what the protocol something wrote";

fn vocabulary() -> &'static HashSet<String> {
    static WORDS_OF_ALL: OnceLock<HashSet<String>> = OnceLock::new();
    WORDS_OF_ALL.get_or_init(|| {
        let words = WORKER.split(|c: char| !c.is_ascii_alphabetic()).chain(WORDS.split_whitespace());
        words.map(str::to_ascii_lowercase).collect()
    })
}

/// A message of the worker as a record keeps it.
pub fn told(message: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for word in message.split_whitespace() {
        if is_known(word) {
            out.push(word);
        } else if out.last() != Some(&LEFT_OUT) {
            out.push(LEFT_OUT);
        }
    }
    out.join(" ")
}

/// Whether a word is made of known ones and numbers, and is no path and no address.
fn is_known(word: &str) -> bool {
    if word.contains(['/', '\\', '@']) && !word.trim_start_matches('(').starts_with("https://pytorch.org/") {
        return false;
    }
    let parts = word.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    word.is_ascii() && parts.clone().filter(|part| is_number(part)).map(str::len).sum::<usize>() <= DIGITS && {
        let mut parts = parts;
        parts.all(|part| is_number(part) || vocabulary().contains(&part.to_ascii_lowercase()))
    }
}

fn is_number(part: &str) -> bool {
    part.bytes().all(|b| b.is_ascii_digit())
}

/// The names of whoever measures and of the machine, as the system tells them.
pub fn names() -> Known {
    let variables = ["USER", "LOGNAME", "USERNAME", "HOSTNAME", "COMPUTERNAME"];
    let mut names: Vec<String> = variables.iter().filter_map(|name| env::var(name).ok()).collect();
    for home in ["HOME", "USERPROFILE"] {
        let last = env::var_os(home).map(std::path::PathBuf::from);
        names.extend(last.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())));
    }
    #[cfg(unix)]
    names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    Known::new(names.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_says_of_memory_is_kept() {
        for text in [
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.60 GiB of which 1.20 GiB is \
             free. See documentation for Memory Management \
             (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
            "transformers is not installed",
        ] {
            assert_eq!(told(text), text);
        }
    }

    #[test]
    fn nothing_of_a_person_or_machine_is() {
        for text in [
            "/opt/Zaphod Beeblebrox/torch/lib.py",
            "C:\\Users\\Zaphod Beeblebrox\\torch\\x.py",
            "c:/users/zaphod beeblebrox/x.py",
            "\\\\heartofgold42\\zaphod beeblebrox",
            "zaphod@localhost",
            "zaphod(at)example.org",
            "HEARTOFGOLD42",
            "./rel/secretproject/x.py",
            "fe80::1 ABC123456789 1320521046789",
            "z\u{430}phod \u{202e}dohpaz",
        ] {
            let kept = told(&format!("RuntimeError: {text} out of memory")).to_lowercase();
            for secret in [
                "zaphod",
                "beeblebrox",
                "heartofgold",
                "secretproject",
                "example",
                "fe80",
                "12345",
                "13205",
                "\u{202e}",
            ] {
                assert!(!kept.contains(secret), "{text}: {kept}");
            }
            assert!(kept.starts_with("runtimeerror:") && kept.ends_with("out of memory"), "{kept}");
        }
    }
}
