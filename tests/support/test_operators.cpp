// libdsl_test_operators.so: a library with an operator that LibTorch does not have, like
// torchvision's _C.so.
#include <ATen/TensorOperators.h>
#include <torch/library.h>

namespace {

at::Tensor halve(const at::Tensor& x) {
    return x / 2;
}

}  // namespace

TORCH_LIBRARY(dsl_test, library) {
    library.def("halve(Tensor x) -> Tensor", halve);
}
