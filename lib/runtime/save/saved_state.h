// A checkpoint as a model's training resumes from it: values of parameters and optimizer states by
// the model's own parameters, at any shape of the job. Data path: checkpoint reader -> saved state
// -> model, ZeRO state. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "base/range.h"
#include "graph/archive/model.h"
#include "plan/tensor/tensor_plan.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::runtime {

class SavedState {
  public:
    // STATES are the names of the optimizer states that the run keeps. LEAVES_OUT_FROZEN:
    // parameters that do not train may be missing, and stay as the model has them. A checkpoint
    // without states starts them anew; further ones (storage::is_further_state) may come
    // behind the states, or not. READER and MODEL must outlive this. Throws
    // Error{kCheckpoint} naming the mismatch: tensors that only one of the two has, other shapes,
    // another optimizer.
    SavedState(const storage::CheckpointReader& reader, const graph::Model& model,
               const std::vector<std::string>& states, bool leaves_out_frozen = false);

    // Elements of parameters that PLAN splits are those of rank PART.index's shares from here on.
    // MODEL is whole and its split parameters are row-major. PLAN must outlive this.
    void read_shares(const plan::TensorPlan& plan, PartOf part) {
        tensor_plan_ = &plan;
        part_ = part;
    }

    [[nodiscard]] const storage::TrainingState& training() const { return checkpoint_.training; }
    [[nodiscard]] const storage::Checkpoint& checkpoint() const { return checkpoint_; }

    // True if the checkpoint has optimizer states of a parameter of the model.
    [[nodiscard]] bool has_states(int parameter) const;
    // Returns the optimizer updates that the parameter has had.
    [[nodiscard]] int64_t updates(int parameter) const;

    // Reads ELEMENTS of a parameter's weights, in the order of its memory in the model, as DTYPE.
    void read_weights(int parameter, const Range& elements, std::byte* into, DType dtype);
    // Reads ELEMENTS of a parameter's state K, fp32. REQUIRES: has_states(parameter).
    void read_state(int parameter, int k, const Range& elements, float* into);

    // Sets the parameters that are not trained, by index, and all buffers of the model to the
    // checkpoint's values. Those that already hold them stay in the archive's mapping. Buffers are
    // those of the data-parallel rank REPLICA if the checkpoint has them of REPLICAS, else the
    // first's.
    void restore_untrained(const std::vector<int>& parameters, int replica, int replicas);

  private:
    struct Home {
        int tensor = -1;             // index into the checkpoint's tensors
        bool other_strides = false;  // true if the checkpoint has its elements in another order
    };
    void read(int parameter, int state, const Range& elements, std::byte* into, DType dtype);
    void read_whole(int parameter, int state, const Range& elements, std::byte* into, DType dtype);
    [[nodiscard]] at::Tensor whole(int tensor, int state) const;
    void restore(at::Tensor tensor, int from);

    const storage::CheckpointReader& reader_;
    const storage::Checkpoint& checkpoint_;
    const graph::Model& model_;
    std::vector<Home> homes_;                        // one per parameter
    const plan::TensorPlan* tensor_plan_ = nullptr;  // null: all parameters are whole
    PartOf part_;
    // The last tensor read whose elements come in another order, in the model's order.
    int reordered_tensor_ = -1;
    int reordered_state_ = storage::kWeights;
    at::Tensor reordered_;
};

}  // namespace dslaunch::runtime
