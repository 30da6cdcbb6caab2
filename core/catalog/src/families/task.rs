//! What is trained on a model.

plimsoll_ground::vocabulary!(
    /// What is trained on the model: which head and which loss.
    Task {
        /// Next-token prediction.
        CausalLm = "causal-lm",
        /// BERT-style masked tokens.
        MaskedLm = "masked-lm",
        /// One label per sequence.
        SequenceClassification = "sequence-classification",
        /// Encoder-decoder generation.
        Seq2SeqLm = "seq2seq-lm",
        /// One label per image.
        ImageClassification = "image-classification",
        /// CLIP-style pairs.
        Contrastive = "contrastive",
        /// Whisper-style transcription.
        SpeechSeq2Seq = "speech-seq2seq",
        /// Values of the next time steps.
        Forecasting = "forecasting",
        /// One label per node of a graph.
        NodeClassification = "node-classification",
        /// One label per feature vector.
        Classification = "classification",
    }
);

impl Task {
    /// Whether its loss has labels that can be smoothed. An encoder-decoder's has not: the Trainer needs decoder inputs in
    /// the data then, which is not modelled.
    pub const fn smooths_labels(self) -> bool {
        !matches!(self, Self::Forecasting | Self::Contrastive | Self::Seq2SeqLm | Self::SpeechSeq2Seq)
    }
}
