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
    // without states starts them over; further states (storage::is_further_state) may be there
    // or not. Buffers that a state_dict leaves out may be missing, and are taken from the
    // checkpoint only if its run moved them; so may all buffers of an archive that does not say
    // which these are. A name of tied memory may be a tensor of its own with equal values, as in a
    // state_dict. READER and MODEL must outlive this. Throws Error{kCheckpoint} naming the
    // mismatch: tensors that only one of the two has, other shapes, names of one memory with other
    // values, another optimizer.
    SavedState(const storage::CheckpointReader& reader, const graph::Model& model,
               const std::vector<std::string>& states, bool leaves_out_frozen = false);

    // Lets elements of parameters that PLAN splits mean rank PART.index's shares from here on.
    // MODEL is whole and its split parameters are row-major. PLAN must outlive this.
    void read_shares(const plan::TensorPlan& plan, PartOf part) {
        tensor_plan_ = &plan;
        part_ = part;
    }

    [[nodiscard]] const storage::TrainingState& training() const { return checkpoint_.training; }
    [[nodiscard]] const storage::Checkpoint& checkpoint() const { return checkpoint_; }
    // Returns the names of buffers that the checkpoint lacks, of an archive that does not say
    // whether a state_dict leaves them out. They stay as the archive has them.
    [[nodiscard]] const std::vector<std::string>& buffers_of_archive() const {
        return buffers_of_archive_;
    }

    // Returns true if the checkpoint has optimizer states of a parameter of the model.
    [[nodiscard]] bool has_states(int parameter) const;
    // Returns the optimizer updates that the parameter has had.
    [[nodiscard]] int64_t updates(int parameter) const;

    // Reads ELEMENTS of a parameter's weights, in the order of its memory in the model, as DTYPE.
    void read_weights(int parameter, const Range& elements, std::byte* into, DType dtype);
    // Reads ELEMENTS of a parameter's state K, fp32. REQUIRES: has_states(parameter).
    void read_state(int parameter, int k, const Range& elements, float* into);

    // Sets the parameters that are not trained, by index, and all buffers of the model to the
    // checkpoint's values. Tensors that already hold them stay in the archive's mapping. Buffers
    // come from the data-parallel rank REPLICA if the checkpoint has them of REPLICAS, else from
    // the first.
    void restore_untrained(const std::vector<int>& parameters, int replica, int replicas);

  private:
    struct Home {
        int tensor = -1;             // index into the checkpoint's tensors
        bool other_strides = false;  // true if the checkpoint has its elements in another order
        // The view of the parameter or buffer that the tensor is; null: the tensor is the whole. It
        // is all of a parameter, and may be a part of a buffer.
        const graph::ModelView* view = nullptr;
    };
    // The constructor's findings so far.
    struct Found {
        std::vector<char> used;  // one per tensor of the checkpoint
        std::vector<std::string> missing;
    };
    // A parameter or buffer of the model with all its names.
    struct Wanted {
        std::vector<std::string> names;
        std::vector<const graph::ModelView*> views;
        at::Tensor tensor;
    };
    [[nodiscard]] Wanted wanted(int parameter, int buffer) const;
    [[nodiscard]] Home find(const Wanted& wanted, Found& found, bool part_does = false) const;
    void find_buffer(int buffer, Found& found);
    void require_equal(const Wanted& wanted, const Home& home, int other,
                       const graph::ModelView* view) const;
    [[nodiscard]] at::Tensor laid_out(const Home& home, const at::Tensor& like, int state) const;
    void read(int parameter, int state, const Range& elements, std::byte* into, DType dtype);
    void read_whole(int parameter, int state, const Range& elements, std::byte* into, DType dtype);
    [[nodiscard]] at::Tensor whole(int tensor, int state) const;
    void restore(at::Tensor tensor, const Home& home);

    const storage::CheckpointReader& reader_;
    const storage::Checkpoint& checkpoint_;
    const graph::Model& model_;
    std::vector<Home> homes_;         // one per parameter
    std::vector<Home> buffer_homes_;  // one per buffer
    std::vector<std::string> buffers_of_archive_;
    const plan::TensorPlan* tensor_plan_ = nullptr;  // null: all parameters are whole
    PartOf part_;
    // The last tensor that was read and lies in another order, in the model's order.
    int reordered_tensor_ = -1;
    int reordered_state_ = storage::kWeights;
    at::Tensor reordered_;
};

}  // namespace dslaunch::runtime
