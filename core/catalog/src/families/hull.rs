//! A model that somebody recorded: what may be said of it beside its own axes.

use super::{
    Architecture, BatchNorms, Came, Checkpoints, Family, Inputs, OneToOne, Origin, Positions, Task, WideTables,
};

/// Anybody's own model, played from the recording of its training step. What would make another program of it (adapters,
/// quantized weights, another attention) is not this recording's to say.
pub const HULL: Family = Family {
    caches: false,
    loss_in_parts: false,
    loss_in_tiles: false,
    liger: None,
    wide_tables: WideTables::Never,
    tower: false,
    name: "hull",
    architecture: Some(Architecture::Hull),
    came: Came::LONG_AGO,
    origin: Origin::Own { about: "a model of your own, recorded with plimsoll trace", keys: &[] },
    // What is trained is the recording's own loss.
    tasks: &[Task::Classification],
    inputs: Inputs::Features,
    has_mask: false,
    positions: Positions::NONE,
    layers: &[],
    checkpointing: Checkpoints::Always,
    one_to_one: OneToOne::Always,
    eager: true,
    only_eager: false,
    sdpa: None,
    sdpa_until: None,
    adapters: true,
    unquantized: Some(&[]),
    batch_norms: BatchNorms::Never,
    wide_linears: false,
    scalar: None,
    experts: None,
    sizes: &[],
};
