//! A Python that has imported PyTorch before it is started: see `python/ready.py`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The server and what is started in place of Python. It ends when its standard input is closed: with this process,
/// however that ends. Nobody waits for it then, so it tells itself what its processes worked.
static SERVER: OnceLock<(Child, PathBuf)> = OnceLock::new();

/// What of PyTorch's own a worker, a recorder or torchrun imports sooner or later, and the libraries that models are of.
const MODULES: [&str; 7] = [
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.run",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "peft",
    "torchvision",
];

/// What is to be started in place of `python`: it has imported PyTorch, and some of what models are made with, once for
/// all the tests of a program. For tests of what a worker computes and tells; those of how a process begins and ends,
/// of what is imported and what it holds take Python itself.
pub fn instead_of(python: &Path) -> &'static Path {
    let (_, program) = SERVER.get_or_init(|| start(python).unwrap_or_else(|error| panic!("{error}")));
    program
}

fn start(python: &Path) -> std::io::Result<(Child, PathBuf)> {
    let mut server = Command::new(python);
    server.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python/ready.py")).arg("serve").args(MODULES);
    server.env_remove("PYTHONPATH").env("PYTHONSAFEPATH", "1").env("OMP_NUM_THREADS", "1");
    // As a worker has them, which sets them before it imports anything.
    server.env("TRANSFORMERS_VERBOSITY", "error").env("HF_HUB_OFFLINE", "1").env("TOKENIZERS_PARALLELISM", "false");
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut program = String::new();
    if let Some(stdout) = server.stdout.take() {
        BufReader::new(stdout).read_line(&mut program)?;
    }
    Ok((server, program.trim_end().into()))
}
