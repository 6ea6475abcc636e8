// Turns a model into the model of one rank of a tensor group. Its parameters are shares, and
// training must know which gradients are summands. Data path: tensor_rewrite.h -> narrow_to_shares
// -> measure.h, flat layout, lib/zero. No shared state.
#pragma once

#include "graph/archive/model.h"
#include "graph/sharing/tensor_group.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::graph {

// The parts of a group that training needs. They must outlive the code that receives this object.
struct TensorRank {
    TensorGroup* group = nullptr;
    const plan::TensorPlan* plan = nullptr;
    const Model* whole = nullptr;  // the model before narrow_to_shares, for parameters that are not
                                   // trained

    // Returns true if ranks have different shares of PARAMETER.
    [[nodiscard]] bool is_split(int parameter) const {
        return plan->parameters[parameter].rule != plan::TensorRule::kReplicated;
    }
    // Returns this rank's part of the group.
    [[nodiscard]] PartOf part() const { return {group->rank(), group->size()}; }
};

// Replaces MODEL's split parameters by the shares of rank PART.index. A share that consists of
// contiguous rows becomes a view of the archive; other shares become copies. Releases the pages of
// the archive that this call has read. MODEL then works only with a graph that was rewritten by
// PLAN. Cut the graph before this call, because all ranks need equal cuts and their shares may
// differ in size. REQUIRES: PLAN was made for MODEL, which is whole.
void narrow_to_shares(Model& model, const plan::TensorPlan& plan, PartOf part);

// A tensor group with which one rank measures its graph before the ranks connect. Results have the
// shapes of a real run, but not its values: a sum or maximum is this rank's own value, and a gather
// returns this rank's value once for every rank.
class LoneTensorGroup final : public TensorGroup {
  public:
    explicit LoneTensorGroup(PartOf part) : part_(part) {}

    [[nodiscard]] int rank() const override { return part_.index; }
    [[nodiscard]] int size() const override { return part_.parts; }
    [[nodiscard]] at::Tensor sum(const at::Tensor& mine, int64_t /*site*/) override {
        return mine.clone(at::MemoryFormat::Contiguous);
    }
    [[nodiscard]] at::Tensor max(const at::Tensor& mine, int64_t /*site*/) override {
        return mine.clone();
    }
    [[nodiscard]] Tensors gather(const at::Tensor& mine, int64_t /*site*/) override {
        return Tensors(static_cast<size_t>(part_.parts), mine);
    }
    [[nodiscard]] Tensors exchange(const Tensors& parts, int64_t /*site*/) override {
        return parts;
    }
    [[nodiscard]] at::Tensor shift(const at::Tensor& mine, int64_t /*site*/) override {
        return mine.clone();
    }

  private:
    PartOf part_;
};

}  // namespace dslaunch::graph
