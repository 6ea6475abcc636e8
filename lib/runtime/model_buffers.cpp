#include "runtime/model_buffers.h"

#include <ATen/ATen.h>

namespace dslaunch {

void ModelBuffers::broadcast() {
    if (collectives_.topology().world_size() == 1) return;
    const at::NoGradGuard no_grad;
    for (const ModelBuffer& buffer : model_.buffers()) {
        at::Tensor values = buffer.tensor.cpu().contiguous();
        if (values.nbytes() == 0) continue;
        collectives_.broadcast({static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
        if (!values.is_same(buffer.tensor)) buffer.tensor.copy_(values);
    }
}

bool ModelBuffers::drift() const {
    for (const ModelBuffer& buffer : model_.buffers())
        if (buffer.tensor.is_floating_point()) return true;
    return false;
}

std::vector<at::Tensor> ModelBuffers::copy() const {
    std::vector<at::Tensor> copies;
    for (const ModelBuffer& buffer : model_.buffers()) copies.push_back(buffer.tensor.clone());
    return copies;
}

void ModelBuffers::restore(const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values.size(); ++i) model_.buffers()[i].tensor.copy_(values[i]);
}

}  // namespace dslaunch
