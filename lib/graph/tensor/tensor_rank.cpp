#include "graph/tensor/tensor_rank.h"

#include <ATen/core/grad_mode.h>

#include "base/check.h"
#include "graph/sharing/share_of.h"

namespace dslaunch::graph {

namespace {

// Returns the rows as a view if they are contiguous, so that they stay in the mapped archive;
// otherwise as a copy.
at::Tensor rows_or_copy(const at::Tensor& whole, const plan::TensorShard& shard, PartOf part) {
    if (shard.dim != 0 || shard.blocks.size() != 1 || !whole.is_contiguous())
        return share_of(whole, shard, part);
    const Range rows = plan::shard_ranges({0, {whole.size(0)}}, part).front();
    return whole.narrow(0, rows.begin, rows.numel);
}

}  // namespace

void narrow_to_shares(Model& model, const plan::TensorPlan& plan, PartOf part) {
    const at::NoGradGuard no_grad;
    DSL_CHECK(plan.parameters.size() == model.parameters().size() && part.parts == plan.size,
              "the tensor plan of {} parameters for {} ranks belongs to another model",
              plan.parameters.size(), plan.size);
    for (size_t p = 0; p < plan.parameters.size(); ++p) {
        const plan::TensorParameter& parameter = plan.parameters[p];
        if (parameter.rule == plan::TensorRule::kReplicated) continue;
        at::Tensor tensor = model.parameters()[p].tensor;
        DSL_CHECK(tensor.sizes() == at::IntArrayRef(parameter.sizes),
                  "parameter {} does not have its full size", parameter.name);
        const at::Tensor share = rows_or_copy(tensor.detach(), parameter.shard, part);
        model.release_pages(static_cast<int>(p));
        tensor.set_data(share);
    }
}

}  // namespace dslaunch::graph
