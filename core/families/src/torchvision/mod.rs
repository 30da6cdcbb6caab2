//! torchvision's classifiers (version 0.26), the families `resnet`, `convnext` and `swin`.

pub mod convnext;
pub mod resnet;
mod shifted_window;
mod stochastic_depth;
pub mod swin;
