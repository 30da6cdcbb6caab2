//! `nn.Conv1d`, `nn.Conv2d` and `nn.BatchNorm2d`.

use super::scope::Scope;
use crate::ops::{self, Window};
use crate::tensor::{DType, ModuleId, Tensor};

/// `nn.Conv2d`.
#[derive(Debug)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    window: Window,
    module: ModuleId,
}

impl Conv2d {
    /// `weight`.
    pub const fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// From `inputs` to `outputs` channels in `groups` groups.
    pub fn new(scope: &Scope, inputs: u64, outputs: u64, groups: u64, window: Window, bias: bool) -> Self {
        let side = window.kernel;
        Self {
            weight: scope.parameter(&[outputs, inputs / groups, side, side]),
            bias: bias.then(|| scope.parameter(&[outputs])),
            window,
            module: scope.module(),
        }
    }

    /// `nn.Conv2d(inputs, outputs, (height, width), padding=(height // 2, width // 2), bias=False)` of odd sides: one place a
    /// pixel.
    pub fn oblong(scope: &Scope, inputs: u64, outputs: u64, [height, width]: [u64; 2]) -> Self {
        Self {
            weight: scope.parameter(&[outputs, inputs, height, width]),
            bias: None,
            // Where the kernel may stand is all that is asked of it.
            window: Window { kernel: 1, stride: 1, padding: 0 },
            module: scope.module(),
        }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || ops::conv2d(x, &self.weight, self.bias.as_ref(), self.window))
    }
}

/// `nn.Conv1d`, always with a bias.
#[derive(Debug)]
pub struct Conv1d {
    weight: Tensor,
    bias: Tensor,
    stride: u64,
    padding: u64,
    module: ModuleId,
}

impl Conv1d {
    /// `nn.Conv1d(inputs, outputs, kernel, stride, padding, groups=groups)`.
    pub fn new(
        scope: &Scope,
        [inputs, outputs]: [u64; 2],
        kernel: u64,
        stride: u64,
        padding: u64,
        groups: u64,
    ) -> Self {
        Self {
            weight: scope.parameter(&[outputs, inputs / groups, kernel]),
            bias: scope.parameter(&[outputs]),
            stride,
            padding,
            module: scope.module(),
        }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || ops::conv1d(x, &self.weight, Some(&self.bias), self.stride, self.padding))
    }
}

/// `nn.BatchNorm2d` in training.
#[derive(Debug)]
pub struct BatchNorm2d {
    weight: Tensor,
    bias: Tensor,
    /// `running_mean`, `running_var`, `num_batches_tracked`.
    statistics: [Tensor; 3],
    module: ModuleId,
}

impl BatchNorm2d {
    /// Over `channels`.
    pub fn new(scope: &Scope, channels: u64) -> Self {
        Self {
            weight: scope.parameter(&[channels]),
            bias: scope.parameter(&[channels]),
            statistics: [
                scope.buffer_of(&[channels], scope.dtype()),
                scope.buffer_of(&[channels], scope.dtype()),
                scope.buffer_of(&[], DType::Int64),
            ],
            module: scope.module(),
        }
    }

    /// `forward`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let [mean, variance, _] = &self.statistics;
        x.cx().within(self.module, || ops::batch_norm(x, &self.weight, &self.bias, [mean, variance]))
    }
}
