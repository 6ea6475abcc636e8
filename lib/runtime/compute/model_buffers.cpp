#include "runtime/compute/model_buffers.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/text/message.h"

namespace dslaunch::runtime {

namespace {

// The buffers that a stage sends to other stages. Each buffer is a pair: its index in the model,
// and its bytes.
struct StageBuffers {
    static constexpr const char* kWhat = "buffers of a stage";
    std::vector<std::pair<size_t, std::string>> values;
};

}  // namespace

void ModelBuffers::broadcast() {
    if (collectives_.topology().world_size() == 1) return;
    const at::NoGradGuard no_grad;
    for (const graph::ModelBuffer& buffer : model_.buffers()) {
        at::Tensor values = buffer.tensor.cpu().contiguous();
        if (values.nbytes() == 0) continue;
        collectives_.broadcast({static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
        if (!values.is_same(buffer.tensor)) buffer.tensor.copy_(values);
    }
}

void ModelBuffers::average() {
    const int ranks = collectives_.topology().world_size();
    if (ranks == 1) return;
    const at::NoGradGuard no_grad;
    for (const graph::ModelBuffer& buffer : model_.buffers()) {
        if (!buffer.tensor.is_floating_point() || buffer.tensor.numel() == 0) continue;
        const at::Tensor sums = at::empty(buffer.tensor.sizes(), at::kDouble);
        sums.copy_(buffer.tensor);
        collectives_.sum_ordered(
            {sums.mutable_data_ptr<double>(), static_cast<size_t>(sums.numel())});
        buffer.tensor.copy_(sums.div_(ranks));
    }
}

void ModelBuffers::bring_from_stages(Collectives& job, int own_stage,
                                     std::span<const std::vector<int>> stages_of) {
    const at::NoGradGuard no_grad;
    const bool tells = collectives_.topology().rank() == 0;
    StageBuffers mine;
    for (size_t i = 0; tells && i < stages_of.size(); ++i) {
        if (stages_of[i].empty() || stages_of[i].front() != own_stage) continue;
        const at::Tensor values = model_.buffers()[i].tensor.cpu().contiguous();
        mine.values.emplace_back(
            i, std::string(static_cast<const char*>(values.const_data_ptr()), values.nbytes()));
    }
    for (const std::string& bytes : job.all_gather(encode(mine))) {
        for (const auto& [i, values] : decode<StageBuffers>(bytes).values) {
            // A stage that reads the buffer keeps its own values, since it has changed the buffer
            // in the same way.
            if (std::ranges::find(stages_of[i], own_stage) != stages_of[i].end()) continue;
            const at::Tensor& buffer = model_.buffers()[i].tensor;
            at::Tensor whole = at::empty(buffer.sizes(), buffer.options().device(at::kCPU));
            if (!values.empty()) std::memcpy(whole.data_ptr(), values.data(), values.size());
            buffer.copy_(whole);
        }
    }
}

bool ModelBuffers::drift() const {
    for (const graph::ModelBuffer& buffer : model_.buffers())
        if (buffer.tensor.is_floating_point()) return true;
    return false;
}

std::vector<at::Tensor> ModelBuffers::copy() const {
    std::vector<at::Tensor> copies;
    for (const graph::ModelBuffer& buffer : model_.buffers())
        copies.push_back(buffer.tensor.clone());
    return copies;
}

void ModelBuffers::restore(const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values.size(); ++i) model_.buffers()[i].tensor.copy_(values[i]);
}

}  // namespace dslaunch::runtime
