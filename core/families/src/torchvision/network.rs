//! A network of torchvision: features, a mean over what they see, a classifier.

use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::nn::Scope;
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::layers::Sequence;
use crate::image_batch::ImageBatch;
use crate::{Model, Output, Plan};

/// What stands between features and classifier.
#[derive(Clone, Copy, Debug)]
pub enum Pool {
    /// `adaptive_avg_pool2d(x, 1)`, then `flatten`.
    Global(ModuleId),
    /// `x.mean([2, 3])`.
    Mean,
    /// `AdaptiveAvgPool2d((side, side))`, then `flatten`.
    To(u64, ModuleId),
}

/// The model.
#[derive(Debug)]
pub struct Network {
    features: Vec<Sequence>,
    pool: Pool,
    classifier: Sequence,
    batch: ImageBatch,
}

impl Network {
    /// Of parts that were built in the order of `__init__`.
    ///
    /// # Errors
    /// When the scenario has no side of an image.
    pub fn boxed(
        scope: &Scope,
        plan: &Plan,
        features: Vec<Sequence>,
        pool: Pool,
        classifier: Sequence,
    ) -> Result<Box<dyn Model>> {
        Ok(Box::new(Self { features, pool, classifier, batch: ImageBatch::new(scope, plan, 3)? }))
    }

    fn logits(&self, images: &Tensor) -> Tensor {
        let cx = images.cx();
        let mut x = images.clone();
        for part in &self.features {
            x = part.forward(&x);
        }
        x = match self.pool {
            Pool::Global(module) => cx.within(module, || ops::global_avg_pool2d(&x)),
            Pool::Mean => ops::mean_image(&x),
            Pool::To(side, module) => cx.within(module, || ops::adaptive_avg_pool2d(&x, side)),
        };
        if !matches!(self.pool, Pool::Mean) {
            x = ops::reshape(&x, &[x.size(0), x.size(1) * x.size(2) * x.size(3)]);
        }
        x = self.classifier.forward(&x);
        x
    }
}

impl Model for Network {
    fn batch(&self) -> Batch {
        self.batch.make()
    }

    fn forward(&self, batch: &Batch) -> Output {
        let logits = self.logits(batch.inputs());
        Output { loss: ops::cross_entropy(&logits, batch.labels()), held: vec![logits] }
    }
}
