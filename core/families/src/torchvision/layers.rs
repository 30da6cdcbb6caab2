//! What torchvision's networks of convolutions are sequences of: each network's own file says in which order and how wide.

use plimsoll_torch::nn::{BatchNorm2d, Conv2d, Linear, Scope};
use plimsoll_torch::ops::{self, Window};
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::stochastic_depth::StochasticDepth;

/// An activation, as the network makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `nn.ReLU(inplace=True)`.
    Relu,
    /// `nn.ReLU6(inplace=True)`.
    Relu6,
    /// `nn.Hardswish(inplace=True)`.
    Hardswish,
    /// `nn.SiLU(inplace=True)`.
    Silu,
    /// `nn.Hardsigmoid()`.
    Hardsigmoid,
    /// `nn.Sigmoid()`.
    Sigmoid,
    /// `nn.ReLU()`, as squeeze-and-excitation makes its own.
    ReluApart,
}

impl Act {
    fn forward(self, x: Tensor) -> Tensor {
        match self {
            Self::Relu => ops::relu_in_place(x),
            Self::Relu6 => ops::relu6_in_place(x),
            Self::Hardswish => ops::hardswish_in_place(x),
            Self::Silu => ops::silu_in_place(x),
            Self::Hardsigmoid => ops::hardsigmoid(&x),
            Self::Sigmoid => ops::sigmoid(&x),
            Self::ReluApart => ops::relu(&x),
        }
    }
}

/// How a residual branch and what it began with are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The branch alone: another width or stride.
    Not,
    /// `x + branch(x)`.
    Add,
    /// `result += x`.
    Into,
}

/// One member of a sequence.
#[derive(Debug)]
pub enum Layer {
    /// `nn.Conv2d`.
    Conv(Conv2d),
    /// `nn.BatchNorm2d`.
    Norm(BatchNorm2d),
    /// An activation.
    Act(Act, ModuleId),
    /// `nn.MaxPool2d`.
    MaxPool(Window, ModuleId),
    /// `nn.AvgPool2d`.
    AvgPool(Window, ModuleId),
    /// `nn.Linear`.
    Linear(Linear),
    /// `nn.Dropout(p)`.
    Dropout(f64, ModuleId),
    /// `nn.Dropout(p, inplace=True)`.
    DropoutInPlace(f64, ModuleId),
    /// A sequence within.
    Sequence(Sequence),
    /// A branch, joined to what it began with.
    Residual(Join, Sequence, ModuleId),
    /// `ResBottleneckBlock`: a projection or the input itself, plus the branch, activated.
    Projected {
        /// `proj`.
        proj: Option<Sequence>,
        /// `f`.
        branch: Sequence,
        /// `activation`.
        act: (Act, ModuleId),
        /// Where it stands.
        module: ModuleId,
    },
    /// `SqueezeExcitation`.
    Excite(Box<Excite>),
    /// `StochasticDepth(p, "row")`.
    Depth(StochasticDepth),
    /// `_DenseBlock`: each layer's first half (`bn_function`) is given what was given and what all before it made, side by side; all of it
    /// comes out.
    Dense(Vec<[Sequence; 2]>, ModuleId),
}

/// `SqueezeExcitation`: a factor for every channel, of the mean of all.
#[derive(Debug)]
pub struct Excite {
    fc1: Conv2d,
    fc2: Conv2d,
    act: (Act, ModuleId),
    scale: (Act, ModuleId),
    avgpool: ModuleId,
    module: ModuleId,
}

const POINT: Window = Window { kernel: 1, stride: 1, padding: 0 };

impl Excite {
    /// From `channels` to `squeezed` and back, scaled by `scale`.
    pub fn layer(scope: &Scope, channels: u64, squeezed: u64, scale: Act) -> Layer {
        Self::layer_with(scope, [channels, squeezed], [Act::ReluApart, scale])
    }

    /// [`Excite::layer`] with an activation between.
    pub fn layer_with(scope: &Scope, [channels, squeezed]: [u64; 2], [act, scale]: [Act; 2]) -> Layer {
        Layer::Excite(Box::new(Self {
            avgpool: scope.child("avgpool").module(),
            fc1: Conv2d::new(&scope.child("fc1"), channels, squeezed, 1, POINT, true),
            fc2: Conv2d::new(&scope.child("fc2"), squeezed, channels, 1, POINT, true),
            act: (act, scope.child("activation").module()),
            scale: (scale, scope.child("scale_activation").module()),
            module: scope.module(),
        }))
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let cx = x.cx();
        cx.within(self.module, || {
            let mut scale = cx.within(self.avgpool, || ops::global_avg_pool2d(x));
            scale = self.fc1.forward(&scale);
            scale = cx.within(self.act.1, || self.act.0.forward(scale));
            scale = self.fc2.forward(&scale);
            scale = cx.within(self.scale.1, || self.scale.0.forward(scale));
            ops::mul(&scale, x)
        })
    }
}

impl Layer {
    /// `input = module(input)`: the name holds what the module was given until it has returned.
    fn forward(&self, x: Tensor) -> Tensor {
        let cx = std::rc::Rc::clone(x.cx());
        match self {
            Self::Conv(conv) => conv.forward(&x),
            Self::Norm(norm) => norm.forward(&x),
            Self::Act(act, module) => cx.within(*module, || act.forward(x)),
            Self::MaxPool(window, module) => cx.within(*module, || ops::max_pool2d(&x, *window)),
            Self::AvgPool(window, module) => cx.within(*module, || ops::avg_pool2d(&x, *window)),
            Self::Linear(linear) => linear.forward(&x),
            Self::Dropout(p, module) => cx.within(*module, || ops::dropout(&x, *p)),
            Self::DropoutInPlace(p, module) => cx.within(*module, || ops::dropout_in_place(x, *p)),
            Self::Sequence(sequence) => sequence.forward(&x),
            Self::Residual(join, branch, module) => cx.within(*module, || {
                let out = branch.forward(&x);
                match join {
                    Join::Not => out,
                    Join::Add => ops::add(&x, &out),
                    Join::Into => ops::add_in_place(out, &x),
                }
            }),
            Self::Projected { proj, branch, act, module } => cx.within(*module, || {
                let sum = {
                    let kept = proj.as_ref().map_or_else(|| x.clone(), |proj| proj.forward(&x));
                    let out = branch.forward(&x);
                    ops::add(&kept, &out)
                };
                drop(x);
                cx.within(act.1, || act.0.forward(sum))
            }),
            Self::Excite(excite) => excite.forward(&x),
            Self::Depth(depth) => depth.forward(&x),
            Self::Dense(layers, module) => cx.within(*module, || {
                let mut features = vec![x];
                for [narrow, see] in layers {
                    let narrowed = narrow.forward(&beside(&features));
                    features.push(see.forward(&narrowed));
                }
                beside(&features)
            }),
        }
    }
}

/// `torch.cat(features, 1)`.
pub(super) fn beside(features: &[Tensor]) -> Tensor {
    ops::cat(&features.iter().collect::<Vec<_>>(), 1)
}

/// `nn.Sequential`.
#[derive(Debug)]
pub struct Sequence {
    layers: Vec<Layer>,
    module: ModuleId,
}

impl Sequence {
    /// These layers at this place.
    pub fn new(scope: &Scope, layers: Vec<Layer>) -> Self {
        Self { layers, module: scope.module() }
    }

    /// `forward`; what it was given its caller holds.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || self.layers.iter().fold(x.clone(), |x, layer| layer.forward(x)))
    }
}

/// `Conv2dNormActivation`: a convolution without bias that keeps the side at stride 1, its norm, and an activation.
#[derive(Clone, Copy, Debug)]
pub struct ConvNormAct {
    /// Channels in.
    pub inputs: u64,
    /// Channels out.
    pub outputs: u64,
    /// Side of the kernel.
    pub kernel: u64,
    /// Pixels from one place to the next.
    pub stride: u64,
    /// Groups.
    pub groups: u64,
    /// The activation, where there is one.
    pub act: Option<Act>,
}

impl ConvNormAct {
    /// A convolution of single pixels.
    pub const fn point(inputs: u64, outputs: u64, act: Option<Act>) -> Self {
        Self { inputs, outputs, kernel: 1, stride: 1, groups: 1, act }
    }

    /// A convolution of each channel by itself.
    pub const fn depthwise(channels: u64, kernel: u64, stride: u64, act: Option<Act>) -> Self {
        Self { inputs: channels, outputs: channels, kernel, stride, groups: channels, act }
    }

    /// A whole convolution of 3 x 3.
    pub const fn spatial(inputs: u64, outputs: u64, stride: u64, act: Option<Act>) -> Self {
        Self { inputs, outputs, kernel: 3, stride, groups: 1, act }
    }

    /// Its layers, the first of them number `first` of `scope`.
    pub fn layers(self, scope: &Scope, first: usize) -> Vec<Layer> {
        let window = Window { kernel: self.kernel, stride: self.stride, padding: (self.kernel - 1) / 2 };
        let place = |i: usize| scope.child((first + i).to_string());
        let mut layers = vec![
            Layer::Conv(Conv2d::new(&place(0), self.inputs, self.outputs, self.groups, window, false)),
            Layer::Norm(BatchNorm2d::new(&place(1), self.outputs)),
        ];
        layers.extend(self.act.map(|act| Layer::Act(act, place(2).module())));
        layers
    }

    /// As a sequence of its own.
    pub fn sequence(self, scope: &Scope) -> Sequence {
        Sequence::new(scope, self.layers(scope, 0))
    }
}
