//! One micro-batch, its tensors by what they are.

use smallvec::SmallVec;

use crate::tensor::Tensor;

/// What a tensor of a micro-batch is, beside the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// What is learned: the next tokens, classes, values. In inference a tensor without elements stands in their place.
    Labels,
    /// `attention_mask`.
    Mask,
    /// `pixel_values`, where the inputs are texts.
    Pixels,
    /// Which nodes of a graph are neighbours.
    Adjacency,
}

/// One micro-batch. Its tensors go in the order in which they were made; a copy has the same ones.
#[derive(Clone, Debug)]
pub struct Batch {
    inputs: Tensor,
    others: SmallVec<[(Field, Tensor); 2]>,
}

impl Batch {
    /// A batch of what the model reads first: `input_ids`, `pixel_values`, `input_features`, or plain numbers.
    pub fn of(inputs: Tensor) -> Self {
        Self { inputs, others: SmallVec::new() }
    }

    /// The same with another tensor, which was made after those that are there.
    #[must_use]
    pub fn with(mut self, field: Field, tensor: Tensor) -> Self {
        self.others.push((field, tensor));
        self
    }

    /// The same with other inputs.
    #[must_use]
    pub fn with_inputs(&self, inputs: Tensor) -> Self {
        Self { inputs, others: self.others.clone() }
    }

    /// What the model reads first.
    pub const fn inputs(&self) -> &Tensor {
        &self.inputs
    }

    /// Another tensor, where it has one.
    pub fn get(&self, field: Field) -> Option<&Tensor> {
        self.others.iter().find(|(known, _)| *known == field).map(|(_, tensor)| tensor)
    }

    /// A tensor that the model's own `batch` always makes; of a batch that was made without, the inputs.
    pub fn field(&self, field: Field) -> &Tensor {
        self.get(field).unwrap_or(&self.inputs)
    }

    /// The labels.
    pub fn labels(&self) -> &Tensor {
        self.field(Field::Labels)
    }

    /// The attention mask, where one is given.
    pub fn mask(&self) -> Option<&Tensor> {
        self.get(Field::Mask)
    }

    /// Inputs, mask and labels.
    pub fn parts(&self) -> (&Tensor, Option<&Tensor>, &Tensor) {
        (self.inputs(), self.mask(), self.labels())
    }
}
