//! What measurements are filtered and grouped by.

use plimsoll_core::measurement::{By, DeviceKind, MeasurementPoint};

/// One thing to filter or group by: a column of the database and a key of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facet {
    /// The architecture, as `llama`.
    Family,
    /// The model, as `llama-3.2-1b`.
    Model,
    /// What it is trained for.
    Task,
    /// The card's id in the catalog, or its name.
    Gpu,
    /// `cuda`, `mps`, `cpu`.
    DeviceKind,
    /// As in a scenario.
    Precision,
    /// The optimizer and its implementation, as `adamw foreach`.
    Optimizer,
    /// As in a scenario.
    Checkpointing,
    /// As in a scenario.
    Attention,
    /// `full` or `lora`.
    Training,
    /// Version of PyTorch, `major.minor`.
    Torch,
}

/// How many there are.
pub const FACETS: usize = Facet::ALL.len();

impl Facet {
    /// All, in the order of their columns.
    pub const ALL: [Self; 11] = [
        Self::Family,
        Self::Model,
        Self::Task,
        Self::Gpu,
        Self::DeviceKind,
        Self::Precision,
        Self::Optimizer,
        Self::Checkpointing,
        Self::Attention,
        Self::Training,
        Self::Torch,
    ];

    /// Its name in queries and in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Family => "family",
            Self::Model => "model",
            Self::Task => "task",
            Self::Gpu => "gpu",
            Self::DeviceKind => "device_kind",
            Self::Precision => "precision",
            Self::Optimizer => "optimizer",
            Self::Checkpointing => "checkpointing",
            Self::Attention => "attention",
            Self::Training => "training",
            Self::Torch => "torch",
        }
    }

    /// The facet of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|facet| facet.name() == name)
    }

    /// The value a record has.
    pub fn of(self, point: &MeasurementPoint) -> String {
        match self {
            Self::Task => point.task.clone(),
            Self::DeviceKind => match point.device_kind {
                DeviceKind::Cuda => "cuda",
                DeviceKind::Mps => "mps",
                DeviceKind::Cpu => "cpu",
            }
            .to_owned(),
            Self::Family => point.key(By::Family),
            Self::Model => point.key(By::Model),
            Self::Gpu => point.key(By::Gpu),
            Self::Precision => point.key(By::Precision),
            Self::Optimizer => point.key(By::Optimizer),
            Self::Checkpointing => point.key(By::Checkpointing),
            Self::Attention => point.key(By::Attention),
            Self::Training => point.key(By::Training),
            Self::Torch => point.key(By::Torch),
        }
    }

    /// Whether a record with `value` is meant by `wanted`: an optimizer may be named without its implementation.
    pub(super) fn means(self, wanted: &str, value: &str) -> bool {
        wanted == value || (self == Self::Optimizer && value.split(' ').next() == Some(wanted))
    }
}

impl From<By> for Facet {
    fn from(by: By) -> Self {
        match by {
            By::Family => Self::Family,
            By::Model => Self::Model,
            By::Gpu => Self::Gpu,
            By::Precision => Self::Precision,
            By::Optimizer => Self::Optimizer,
            By::Checkpointing => Self::Checkpointing,
            By::Attention => Self::Attention,
            By::Training => Self::Training,
            By::Torch => Self::Torch,
        }
    }
}
