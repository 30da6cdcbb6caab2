//! What one sample of a model's input is, and so which keys `[input]` takes.

use super::Task;

/// What one sample of a model's input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// `seq` tokens.
    Tokens,
    /// `seq` encoder tokens and `target_seq` decoder tokens, as many when that is not given.
    EncoderDecoder,
    /// A square image, `image` pixels a side.
    Image {
        /// The config's key that holds the side; empty for families of our own, whose models take any side.
        key: &'static str,
        /// The side when neither the scenario nor the config says: that of the config's class.
        side: u64,
        /// Whether an image of another side than the config's cannot run at all.
        fixed: bool,
    },
    /// A text of `seq` tokens, cut to the longest the model takes as its tokenizer does, and a square image.
    TextAndImage {
        /// The config's key that holds the image's side.
        key: &'static str,
        /// The side when neither the scenario nor the config says.
        side: u64,
    },
    /// Speech features, whose number the config alone says, and `seq` label tokens.
    Speech,
    /// A vector of numbers, whose length the model says.
    Features,
    /// One graph of `seq` nodes: `batch` says nothing and is 1.
    Graph {
        /// Nodes when the scenario does not say.
        nodes: u64,
    },
}

impl Inputs {
    /// torchvision's classifiers: any side, 224 in their published training.
    pub const TORCHVISION: Self = Self::Image { key: "", side: 224, fixed: false };

    /// What a model takes that nothing is known of but its task.
    pub const fn of(task: Task) -> Self {
        match task {
            Task::Seq2SeqLm => Self::EncoderDecoder,
            Task::ImageClassification => Self::Image { key: "image_size", side: 224, fixed: false },
            Task::Contrastive => Self::TextAndImage { key: "vision_config.image_size", side: 224 },
            Task::SpeechSeq2Seq => Self::Speech,
            _ => Self::Tokens,
        }
    }

    /// Whether `input.seq` says something.
    pub const fn has_sequence(self) -> bool {
        !matches!(self, Self::Image { .. } | Self::Features)
    }

    /// Whether `input.target_seq` says something.
    pub const fn has_target(self) -> bool {
        matches!(self, Self::EncoderDecoder)
    }

    /// Where the config holds the side of an image, and the side when it does not; `None` where there is no image.
    pub const fn image(self) -> Option<(&'static str, u64)> {
        match self {
            Self::Image { key, side, .. } | Self::TextAndImage { key, side } => Some((key, side)),
            _ => None,
        }
    }

    /// In words, behind "takes".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::EncoderDecoder => "encoder and decoder tokens",
            Self::Image { .. } => "images",
            Self::TextAndImage { .. } => "pairs of text and image",
            Self::Speech => "speech features and label tokens",
            Self::Features => "feature vectors",
            Self::Graph { .. } => "a graph",
        }
    }
}
