#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

bool has_states(const CheckpointTensor& tensor) {
    return tensor.kind == TensorKind::kTrained;
}

DType dtype_of(const CheckpointTensor& tensor, int state) {
    return state == kWeights ? tensor.dtype : DType::kF32;
}

}  // namespace dslaunch::storage
