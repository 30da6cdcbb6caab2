//! `cudaDeviceProp` as the CUDA Runtime API lists its members, in order; which there are depends on the version.

use super::attributes::attribute;
use super::cards::Device;
use crate::identity::uuid;

/// From this version of the runtime on, eight members are gone.
const WITHOUT_CLOCKS: i32 = 13000;

struct Layout {
    bytes: Vec<u8>,
    cuda: i32,
}

impl Layout {
    fn ints(&mut self, device: &Device, numbers: &[i32]) {
        for &number in numbers {
            self.bytes.extend(attribute(device, number).to_ne_bytes());
        }
    }

    fn old(&mut self, device: &Device, number: i32) {
        if self.cuda < WITHOUT_CLOCKS {
            self.ints(device, &[number]);
        }
    }

    fn sizes(&mut self, values: &[u64]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        for value in values {
            self.bytes.extend(value.to_ne_bytes());
        }
    }
}

/// The structure's first bytes, up to the last member that every runtime of this version has.
pub(super) fn properties(device: &Device, cuda: i32) -> Vec<u8> {
    let size = |number: i32| attribute(device, number) as u64;
    let mut p = Layout { bytes: vec![0; 256], cuda };
    let name = device.card.name.as_bytes();
    let len = name.len().min(255);
    p.bytes[..len].copy_from_slice(&name[..len]);
    p.bytes.extend(uuid(device.physical));
    p.bytes.extend([0; 12]); // luid, luidDeviceNodeMask: Windows only
    p.sizes(&[device.card.memory, size(8)]);
    p.ints(device, &[12, 10]); // regsPerBlock, warpSize
    p.sizes(&[size(11)]);
    p.ints(device, &[1, 2, 3, 4, 5, 6, 7]); // maxThreadsPerBlock .. maxGridSize
    p.old(device, 13); // clockRate
    p.sizes(&[size(9)]);
    p.ints(device, &[75, 76]); // major, minor
    p.sizes(&[size(14), size(51)]); // textureAlignment, texturePitchAlignment
    p.old(device, 15); // deviceOverlap
    p.ints(device, &[16]); // multiProcessorCount
    p.old(device, 17); // kernelExecTimeoutEnabled
    p.ints(device, &[18, 19]); // integrated, canMapHostMemory
    p.old(device, 20); // computeMode
    p.ints(device, &[21, 77]); // maxTexture1D, maxTexture1DMipmap
    p.old(device, 69); // maxTexture1DLinear
    p.ints(device, &[22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43]); // .. maxTexture1DLayered
    p.ints(device, &[27, 28, 29, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68]); // .. surfaces
    p.sizes(&[size(30)]);
    p.ints(device, &[31, 32, 33, 34, 50, 35, 40, 41]); // concurrentKernels .. unifiedAddressing
    p.old(device, 36); // memoryClockRate
    p.ints(device, &[37, 38, 108, 39, 78, 79, 80]); // memoryBusWidth .. localL1CacheSupported
    p.sizes(&[size(81)]);
    p.ints(device, &[82, 83, 84, 85, 86]); // regsPerMultiprocessor .. hostNativeAtomicSupported
    p.old(device, 87); // singleToDoublePrecisionPerfRatio
    p.ints(device, &[88, 89, 90, 91, 95]); // pageableMemoryAccess .. cooperativeLaunch
    p.old(device, 96); // cooperativeMultiDeviceLaunch
    p.sizes(&[size(97)]);
    p.ints(device, &[100, 101, 106, 109]); // .. accessPolicyMaxWindowSize
    p.sizes(&[size(111)]);
    p.bytes
}
