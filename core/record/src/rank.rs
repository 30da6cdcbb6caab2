//! What each of several processes took that train together.

use plimsoll_ground::Bytes;
use serde::{Deserialize, Serialize};

use super::{MeasuredPeak, MeasuredPhase, Outcome};

/// One of several processes that train together, each on a card of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredRank {
    /// Its number, from 0.
    pub rank: u32,
    /// Its device, as the driver names it, where that is not the record's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How the attempt the record is about ended on it; absent where it was ended because another rank could not go on.
    pub outcome: Option<Outcome>,
    /// Its highest points.
    pub peak: MeasuredPeak,
    /// Its phases, as [`super::Measurement::phases`] has them of all ranks together.
    pub phases: Vec<MeasuredPhase>,
    /// What it sent through in the last step, by size.
    pub buffers: Vec<MeasuredBuffer>,
}

/// Buffers of one size that a rank exchanged with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredBuffer {
    /// What for.
    pub kind: BufferKind,
    /// The size of each.
    pub bytes: Bytes,
    /// How many in the last step.
    pub count: u64,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BufferKind {
    /// A bucket of DistributedDataParallel's reducer, which stays from step to step.
    Bucket,
    /// Parameters of all ranks, gathered: what `all_gather_into_tensor` writes.
    Gathered,
    /// Gradients of all ranks, to be reduced: what `reduce_scatter_tensor` reads.
    Reduced,
}

impl BufferKind {
    /// In the order of a record.
    pub const ALL: [Self; 3] = [Self::Bucket, Self::Gathered, Self::Reduced];

    /// `bucket`, `gathered`, `reduced`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Gathered => "gathered",
            Self::Reduced => "reduced",
        }
    }
}
