//! Where the graph of a wrapped module lies, and how far backward has come with it.

/// Where a module's graph begins and ends, by the numbers of its nodes, and whether its inputs take a gradient.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub begin: u32,
    pub end: u32,
    pub inputs_take_gradients: bool,
}

/// How far a group has come in this backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    #[default]
    Waiting,
    Begun,
    Done,
}
