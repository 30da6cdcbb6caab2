//! What measurements are filtered and grouped by.

use super::{DeviceKind, MeasurementPoint, point::minor};

plimsoll_ground::vocabulary!(
    /// One thing to filter or group by, as it is called in queries and in the server's database.
    Facet {
        /// Architecture, as `llama`.
        Family = "family" as "Family",
        /// Catalog id or architecture, as `llama-3.2-1b`.
        Model = "model" as "Model",
        /// What it is trained for.
        Task = "task" as "Task",
        /// The card's id in the catalog, or its name.
        Gpu = "gpu" as "Card",
        /// `cuda`, `mps`, `cpu`.
        DeviceKind = "device_kind" as "Kind of device",
        /// As in a scenario.
        Precision = "precision" as "Precision",
        /// The optimizer and its implementation, as `adamw foreach`.
        Optimizer = "optimizer" as "Optimizer",
        /// As in a scenario.
        Checkpointing = "checkpointing" as "Checkpointing",
        /// As in a scenario.
        Attention = "attention" as "Attention",
        /// Full training, LoRA, or inference.
        Training = "training" as "Training",
        /// PyTorch, `major.minor`.
        Torch = "torch" as "PyTorch",
    }
);

impl Facet {
    /// Those that comparisons are grouped by, in the order they are offered.
    pub const GROUPS: [Self; 9] = [
        Self::Family,
        Self::Model,
        Self::Gpu,
        Self::Precision,
        Self::Optimizer,
        Self::Checkpointing,
        Self::Attention,
        Self::Training,
        Self::Torch,
    ];

    /// The one that comparisons may be grouped by and that is spelled `text`.
    pub fn group(text: &str) -> Option<Self> {
        Self::GROUPS.into_iter().find(|facet| facet.as_str() == text)
    }

    /// What a record has; `none` where there is nothing of the kind.
    pub fn of(self, point: &MeasurementPoint) -> String {
        match self {
            Self::Family => point.family.clone(),
            Self::Model => point.model.clone(),
            Self::Task => point.task.clone(),
            Self::Gpu => point.gpu.clone().unwrap_or_else(|| point.device.clone()),
            Self::DeviceKind => match point.device_kind {
                DeviceKind::Cuda => "cuda",
                DeviceKind::Mps => "mps",
                DeviceKind::Cpu => "cpu",
            }
            .to_owned(),
            Self::Precision => point.precision.clone(),
            Self::Optimizer | Self::Checkpointing if point.infers() => "none".to_owned(),
            Self::Optimizer => format!("{} {}", point.optimizer, point.optimizer_impl),
            Self::Checkpointing => point.checkpointing.clone(),
            Self::Attention => point.attention.clone(),
            Self::Training if point.infers() => point.mode.clone(),
            Self::Training => point.lora.map_or("full", |_| "lora").to_owned(),
            Self::Torch => minor(&point.torch),
        }
    }

    /// Whether a record with `value` is meant by `wanted`: an optimizer may be named without its implementation.
    pub fn means(self, wanted: &str, value: &str) -> bool {
        wanted == value || (self == Self::Optimizer && value.split(' ').next() == Some(wanted))
    }
}
