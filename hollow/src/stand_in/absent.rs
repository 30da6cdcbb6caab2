//! What the dock's empty libraries call: functions that PyTorch imports and that are not simulated.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex};

use super::call::{lock, status};

/// Said once each.
static SAID: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

/// Libraries whose functions compute or record: without an answer to give, they are over when they are called.
const COMPUTING: [&str; 4] = ["cublas", "cudnn", "cudaGraph", "cupti"];
/// Words in the names of functions that have an answer to give.
const ASKING: [&str; 6] = ["Get", "Create", "Size", "Find", "Query", "Open"];

/// NCCL between the cards of one process, which `torch.nn.DataParallel` moves its copies and sums its gradients with: nothing moves.
/// What makes communicators of several processes is not among them.
const WITHIN_A_PROCESS: [&str; 7] = [
    "ncclCommInitAll",
    "ncclCommDestroy",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclBcast",
    "ncclBroadcast",
    "ncclReduce",
];

/// What a call of a function that is not simulated comes to.
enum Outcome {
    /// Nothing to compute: done.
    Done,
    /// A sentence is asked for.
    Sentence,
    /// It would have to answer: an error, in words once.
    Refused,
}

fn outcome(name: &str) -> Outcome {
    let computes = COMPUTING.iter().any(|c| name.starts_with(c)) && !ASKING.iter().any(|a| name.contains(a));
    if name.ends_with("String") || name.ends_with("ErrorName") {
        Outcome::Sentence
    } else if computes || WITHIN_A_PROCESS.contains(&name) {
        Outcome::Done
    } else {
        Outcome::Refused
    }
}

/// Called with the name of the function that was called.
///
/// # Safety
/// `name` is a text that C could read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_hollow_absent(name: *const c_char) -> usize {
    // SAFETY: the dock's libraries call it with a name of theirs.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    match outcome(&name) {
        Outcome::Done => status::SUCCESS as usize,
        Outcome::Sentence => c"not simulated on a hollow card".as_ptr() as usize,
        Outcome::Refused => {
            if lock(&SAID).insert(name.clone().into_owned()) {
                eprintln!("plimsoll: {name} is not simulated on a hollow card; it was refused");
            }
            status::NOT_SUPPORTED as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_answer_is_refused_and_what_only_computes_is_done() {
        assert!(matches!(outcome("cublasSgemm_v2"), Outcome::Done));
        assert!(matches!(outcome("cudnnConvolutionForward"), Outcome::Done));
        assert!(matches!(outcome("cudnnGetRNNWeightSpaceSize"), Outcome::Refused));
        assert!(matches!(outcome("ncclAllReduce"), Outcome::Refused));
        assert!(matches!(outcome("ncclReduceScatter"), Outcome::Refused));
        assert!(matches!(outcome("ncclReduce"), Outcome::Done));
        assert!(matches!(outcome("ncclGetErrorString"), Outcome::Sentence));
    }
}
