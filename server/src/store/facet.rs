//! What measurements are filtered and grouped by, and the figures they are compared in.

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
    /// As in a scenario.
    Optimizer,
    /// As in a scenario.
    Checkpointing,
    /// As in a scenario.
    Attention,
    /// Whether adapters are trained.
    Lora,
    /// Version of PyTorch.
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
        Self::Lora,
        Self::Torch,
    ];

    /// Its name in queries, answers and the database.
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
            Self::Lora => "lora",
            Self::Torch => "torch",
        }
    }

    /// The facet of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|facet| facet.name() == name)
    }
}

/// A figure that is measured and estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// `torch.cuda.max_memory_allocated`.
    Allocated,
    /// `torch.cuda.max_memory_reserved`.
    Reserved,
    /// What the driver counts for the process.
    Process,
}

impl Metric {
    /// All, in the order of their columns.
    pub const ALL: [Self; 3] = [Self::Allocated, Self::Reserved, Self::Process];

    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Process => "process",
        }
    }
}
