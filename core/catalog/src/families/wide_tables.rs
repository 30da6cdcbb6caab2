//! In which dtype layers are given their positions.

/// When a family's layers are given tables of positions in float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WideTables {
    /// Where they compute in it.
    Never,
    /// Always: the tables are made in it (OLMo).
    Always,
    /// Under autocast: the tables are of what the embeddings' norm puts out (ModernBERT).
    UnderAutocast,
}

impl WideTables {
    /// Whether they are, under autocast or without.
    pub const fn given(self, autocast: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::UnderAutocast => autocast,
        }
    }
}
