// A checkpoint as a model's training resumes from it: values of parameters and optimizer states by
// the model's own parameters, at any shape. Where it stands: checkpoint reader -> saved state ->
// model, ZeRO state. Threads: one at a time.
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
    // STATES: names of the optimizer states that the run keeps; a checkpoint with none starts them
    // anew. READER and MODEL must outlive this. Throws Error{kCheckpoint} naming what does not fit:
    // tensors that only one of the two has, other shapes, another optimizer.
    SavedState(const storage::CheckpointReader& reader, const graph::Model& model,
               const std::vector<std::string>& states);

    // From here on elements of parameters that PLAN splits are those of rank PART.index's shares;
    // MODEL is whole and its split parameters are row-major. PLAN must outlive this.
    void read_shares(const plan::TensorPlan& plan, PartOf part) {
        tensor_plan_ = &plan;
        part_ = part;
    }

    [[nodiscard]] const storage::TrainingState& training() const { return checkpoint_.training; }
    [[nodiscard]] const storage::Checkpoint& checkpoint() const { return checkpoint_; }

    // Whether the checkpoint has optimizer states of a parameter of the model.
    [[nodiscard]] bool has_states(int parameter) const;
    // Optimizer updates that it has had.
    [[nodiscard]] int64_t updates(int parameter) const;

    // ELEMENTS of a parameter, in the order of its memory in the model, as DTYPE: its weights.
    void read_weights(int parameter, const Range& elements, std::byte* into, DType dtype);
    // The same of its state K, fp32. REQUIRES: has_states(parameter).
    void read_state(int parameter, int k, const Range& elements, float* into);

    // Lets parameters that are not trained, by index, and all buffers of the model hold what the
    // checkpoint has; those that do already stay as they are, in the archive's mapping. Buffers of
    // the data-parallel rank REPLICA where the checkpoint has them of REPLICAS, else the first's.
    void restore_untrained(const std::vector<int>& parameters, int replica, int replicas);

  private:
    struct Home {
        int tensor = -1;             // index into the checkpoint's
        bool other_strides = false;  // the checkpoint has its elements in another order
    };
    void read(int parameter, int state, const Range& elements, std::byte* into, DType dtype);
    void read_whole(int parameter, int state, const Range& elements, std::byte* into, DType dtype);
    [[nodiscard]] at::Tensor whole(int tensor, int state) const;
    void restore(at::Tensor tensor, int from);

    const storage::CheckpointReader& reader_;
    const storage::Checkpoint& checkpoint_;
    const graph::Model& model_;
    std::vector<Home> homes_;                        // by parameter
    const plan::TensorPlan* tensor_plan_ = nullptr;  // null: all are whole
    PartOf part_;
    // The tensor read last of those whose elements come in another order, as the model has it.
    int reordered_tensor_ = -1;
    int reordered_state_ = storage::kWeights;
    at::Tensor reordered_;
};

}  // namespace dslaunch::runtime
