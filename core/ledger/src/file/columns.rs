//! The columns of a file.

use serde::{Deserialize, Serialize};

use crate::{Parameters, PhaseName, Rule};

/// A whole file.
#[derive(Debug, Serialize, Deserialize)]
pub struct File {
    pub format: String,
    pub version: u32,
    pub parameters: Parameters,
    /// Names that the other columns give by number.
    pub ops: Vec<String>,
    pub grad_fns: Vec<String>,
    pub kinds: Vec<String>,
    pub dtypes: Vec<String>,
    pub modules: ModuleColumns,
    pub shapes: Vec<Vec<u64>>,
    pub storages: StorageColumns,
    pub events: EventColumns,
    pub phases: PhaseColumns,
    pub works: WorkColumns,
    pub launches: LaunchColumns,
    #[serde(default)]
    pub laws: LawColumns,
    /// The storages of the parameters that are trained.
    #[serde(default)]
    pub trained: Vec<u32>,
    /// After how many events what was cached went back to the card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emptied: Vec<u32>,
}

/// The tree of modules; the first is the root, its own parent.
#[derive(Debug, Serialize, Deserialize)]
pub struct ModuleColumns {
    pub parent: Vec<u32>,
    pub name: Vec<String>,
    pub item: Vec<Option<u32>>,
}

/// Storages by id.
#[derive(Debug, Serialize, Deserialize)]
pub struct StorageColumns {
    pub bytes: Vec<u64>,
    pub kind: Vec<u8>,
    pub dtype: Vec<u8>,
    pub op: Vec<u16>,
    pub grad_fn: Vec<u16>,
    pub module: Vec<u32>,
    pub shape: Vec<u32>,
    pub owner: Vec<Option<u32>>,
}

/// Births and deaths in order.
#[derive(Debug, Serialize, Deserialize)]
pub struct EventColumns {
    /// A storage's id where it comes, -1 less its id where it goes.
    pub storage: Vec<i64>,
    /// One a stream; empty where all are on the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stream: Vec<u8>,
}

/// Where each phase begins.
#[derive(Debug, Serialize, Deserialize)]
pub struct PhaseColumns {
    pub name: Vec<PhaseName>,
    pub step: Vec<Option<u32>>,
    pub micro_batch: Vec<Option<u64>>,
    pub event: Vec<u64>,
    pub launch: Vec<u64>,
}

/// What kernels do.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkColumns {
    pub op: Vec<u16>,
    pub dtype: Vec<u8>,
    pub flops: Vec<u64>,
    pub read: Vec<u64>,
    pub written: Vec<u64>,
}

/// The kernels that ran.
#[derive(Debug, Serialize, Deserialize)]
pub struct LaunchColumns {
    /// Events since the launch before.
    pub events: Vec<u32>,
    pub work: Vec<u32>,
}

/// Storages whose size is no line over the micro-batch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LawColumns {
    pub storage: Vec<u32>,
    pub count: Vec<u64>,
    pub rule: Vec<Rule>,
}
