// The GPU implementation of the operator that unpacks packed weights
// (graph/packed/packed_weight.h). It runs on the current stream, like LibTorch's operators. It is
// registered when the plugin is loaded.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "base/kinds/dtype.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/grid_packed.h"

namespace dslaunch::runtime {

namespace {

DType dtype_of(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
        case at::kFloat:
            return DType::kF32;
        case at::kBFloat16:
            return DType::kBF16;
        default:
            TORCH_CHECK(tensor.scalar_type() == at::kHalf, "a packed weight cannot be unpacked to ",
                        tensor.scalar_type());
            return DType::kF16;
    }
}

void unpack_on_gpu(const at::Tensor& packed, int64_t form, int64_t out, int64_t in,
                   const at::Tensor& dense) {
    const c10::cuda::CUDAGuard guard(packed.device());
    const kernels::MatrixShape shape =
        kernels::matrix_shape(static_cast<kernels::MatrixForm>(form), out, in);
    const kernels::GridPacked arguments = kernels::grid_packed(
        shape, packed.const_data_ptr(), dense.mutable_data_ptr(), dtype_of(dense));
    const int64_t panels = (out + kernels::kPanelOutputs - 1) / kernels::kPanelOutputs;
    TORCH_CHECK(static_cast<int64_t>(packed.nbytes()) == panels * arguments.panel_bytes &&
                    dense.numel() == out * in && dense.is_contiguous(),
                packed.nbytes(), " bytes are not the size of a packed weight of shape [", out, ", ",
                in, "]");
    C10_CUDA_CHECK(kernels::launch_unpack(
        arguments, c10::cuda::getCurrentCUDAStream(packed.device().index())));
}

}  // namespace

TORCH_LIBRARY_IMPL(dslaunch, CUDA, library) {
    library.impl("unpack", TORCH_FN(unpack_on_gpu));
}

}  // namespace dslaunch::runtime
