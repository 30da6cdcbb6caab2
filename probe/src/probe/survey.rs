//! What the user's Python and its device are, before anything is measured: it decides what is worth starting.

use std::io::Write as _;
use std::time::Duration;

use plimsoll_core::Bytes;
use plimsoll_core::measurement::{DeviceKind, MeasuredDevice};
use serde::Deserialize;

use super::Where;
use crate::cards;
use crate::exit::Failure;
use crate::worker;

/// Importing PyTorch takes seconds, from a cold network disk a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// Asks PyTorch itself: whether there is a card says nothing about whether PyTorch can use it.
const SCRIPT: &str = r#"
import ctypes, importlib.util, json, sys
import torch
has = [name for name in ("transformers", "peft", "torchvision", "bitsandbytes") if importlib.util.find_spec(name)]
answer = {"torch": str(torch.__version__), "has": has, "kind": "cpu"}
try:
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        major, minor = torch.cuda.get_device_capability(0)
        answer["hollow"] = hasattr(ctypes.CDLL(None), "plimsoll_hollow_absent") if sys.platform == "linux" else False
        answer.update(kind="cuda", name=card.name, total=card.total_memory, capability="%d.%d" % (major, minor),
                      multiprocessors=card.multi_processor_count, rocm=bool(torch.version.hip),
                      uuid=str(getattr(card, "uuid", "")))
    elif getattr(torch.backends, "mps", None) and torch.backends.mps.is_available():
        answer.update(kind="mps", name="Apple GPU")
except Exception as error:
    print(error, file=sys.stderr)
sys.stdout.write("\n" + json.dumps(answer) + "\n")
"#;

/// What there is.
#[derive(Clone, Debug)]
pub struct Survey {
    /// `torch.__version__`.
    pub torch: String,
    /// Which of transformers, peft, torchvision, bitsandbytes can be imported.
    pub has: Vec<String>,
    /// Where a measurement will run.
    pub device: MeasuredDevice,
    /// The card as PyTorch sees it, of NVIDIA's.
    pub card: Option<Seen>,
}

/// What decides what PyTorch does on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `torch.cuda.get_device_properties(0).name`.
    pub name: String,
    /// `total_memory`.
    pub memory: Bytes,
    /// `multi_processor_count`.
    pub multiprocessors: u32,
    /// `torch.cuda.get_device_capability(0)`: `8.9`.
    pub capability: String,
}

/// What the script answers.
#[derive(Debug, Deserialize)]
struct Answer {
    torch: String,
    has: Vec<String>,
    kind: DeviceKind,
    name: Option<String>,
    total: Option<Bytes>,
    capability: Option<String>,
    uuid: Option<String>,
    multiprocessors: Option<u32>,
    #[serde(default)]
    rocm: bool,
    #[serde(default)]
    hollow: bool,
}

impl Answer {
    fn seen(&self) -> Option<Seen> {
        Some(Seen {
            name: self.name.clone()?,
            memory: self.total?,
            multiprocessors: self.multiprocessors.filter(|_| !self.rocm)?,
            capability: self.capability.clone()?,
        })
    }
}

/// Asks the Python that would measure. `None` when it does not answer: a measurement will say why.
///
/// # Errors
/// When there is no Python to ask.
pub fn survey(place: &Where) -> Result<Option<Survey>, Failure> {
    if let Some(failure) = place.index.and_then(|index| cards::open().lacks(index)) {
        return Err(failure);
    }
    let python = worker::find(place.python.as_deref())?;
    let quarters = worker::Quarters::new()?;
    let mut command = quarters.inline(&python, SCRIPT);
    if let Some(index) = place.index {
        command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", index.to_string());
    }
    let answer = worker::ask(command, PATIENCE);
    Ok(answer.and_then(|text| read(&text)).map(|answer| of(answer, place)))
}

/// Whatever else is printed comes before the answer.
fn read(text: &str) -> Option<Answer> {
    serde_json::from_str(text.lines().last()?).ok()
}

fn of(answer: Answer, place: &Where) -> Survey {
    // A user who asks for the processor gets it; one who asks for what is not there is told by the worker.
    let kind = place.device.map_or(answer.kind, super::Kind::kind);
    let seen = answer.seen().filter(|_| kind == DeviceKind::Cuda);
    let cards = cards::open();
    let card = match kind {
        DeviceKind::Cuda => cards.find(answer.uuid.as_deref(), None).or_else(|| match cards.list() {
            [only] => Some(only),
            _ => None,
        }),
        _ => None,
    };
    let device = match card {
        Some(card) => MeasuredDevice {
            kind,
            name: card.name.clone(),
            gpu: card.gpu.map(str::to_owned),
            total: card.total,
            reserved: card.reserved,
            used_before: cards.read(card.index).and_then(|reading| reading.used),
            capability: card.capability.clone().or(answer.capability),
            driver: card.driver.clone(),
            hollow: answer.hollow,
        },
        None => MeasuredDevice {
            kind,
            name: answer.name.unwrap_or_else(|| "this machine".to_owned()),
            gpu: None,
            total: answer.total.unwrap_or_default(),
            reserved: None,
            used_before: None,
            capability: answer.capability,
            driver: None,
            hollow: answer.hollow,
        },
    };
    Survey { torch: answer.torch, has: answer.has, device, card: seen }
}

/// Shows that something is going on.
pub fn announce() {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "Looking at Python, PyTorch and the device ...");
}
