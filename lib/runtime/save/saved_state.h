// A checkpoint from which a model's training resumes: values of parameters and optimizer states,
// addressed by the model's parameters, for any number and arrangement of ranks. Data path:
// checkpoint reader -> saved state -> model, ZeRO state. Threads: one at a time.
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

// A checkpoint in terms of a model; see the top of this file.
class SavedState {
  public:
    // STATES are the names of the optimizer states that the run keeps. READER and MODEL must
    // outlive this object. Throws Error{kCheckpoint}, naming the mismatch: tensors that only the
    // checkpoint or only the model has, different shapes, names of the same memory with different
    // values, another optimizer. The following is allowed:
    // - With LEAVES_OUT_FROZEN, parameters that are not trained may be missing; they keep the
    //   model's values.
    // - If the checkpoint has no optimizer states, they start over. Further states
    //   (storage::is_further_state) are optional.
    // - Buffers that are not part of the state_dict may be missing. They are read from the
    //   checkpoint only if its run changed them. If the archive does not say which buffers these
    //   are, any buffer may be missing.
    // - A name of tied memory may be a separate tensor with equal values, as in a state_dict.
    SavedState(const storage::CheckpointReader& reader, const graph::Model& model,
               const std::vector<std::string>& states, bool leaves_out_frozen = false);

    // Makes the functions below read shares of the parameters that PLAN splits: their element
    // ranges count in the share of rank PART.index, not in the whole parameter. REQUIRES: the
    // constructor's model has whole tensors, and split parameters are row-major. PLAN must outlive
    // this object.
    void read_shares(const plan::TensorPlan& plan, PartOf part) {
        tensor_plan_ = &plan;
        part_ = part;
    }

    // The training that the checkpoint continues, and its description.
    [[nodiscard]] const storage::TrainingState& training() const { return checkpoint_.training; }
    [[nodiscard]] const storage::Checkpoint& checkpoint() const { return checkpoint_; }
    // Returns the names of buffers that the checkpoint does not contain. They keep the values of
    // the model's archive. Empty if the archive says which buffers are part of the state_dict.
    [[nodiscard]] const std::vector<std::string>& buffers_of_archive() const {
        return buffers_of_archive_;
    }

    // Returns true if the checkpoint has optimizer states of a parameter of the model.
    [[nodiscard]] bool has_states(int parameter) const;
    // Returns the number of optimizer updates that the parameter has had.
    [[nodiscard]] int64_t updates(int parameter) const;

    // Reads ELEMENTS of a parameter's weights, converted to DTYPE. ELEMENTS count in the memory
    // order that the parameter has in the model.
    void read_weights(int parameter, const Range& elements, std::byte* into, DType dtype);
    // Reads ELEMENTS of state number K of a parameter, in fp32. REQUIRES: has_states(parameter).
    void read_state(int parameter, int k, const Range& elements, float* into);

    // Sets the untrained parameters with the indices PARAMETERS, and all buffers of the model, to
    // the checkpoint's values. Does not write to a tensor that already has these values, so it
    // stays in the archive's mapping. The checkpoint may contain buffers for each of REPLICAS
    // data-parallel ranks. If it does, takes the buffers of rank REPLICA. If not, takes the buffers
    // of the first rank.
    void restore_untrained(const std::vector<int>& parameters, int replica, int replicas);

  private:
    struct Home {
        int tensor = -1;             // index into the checkpoint's tensors
        bool other_strides = false;  // true if the checkpoint has another memory order
        // Null if the checkpoint's tensor is the whole parameter or buffer. Otherwise, the tensor
        // is a view of it: all elements of a parameter in another shape, or some elements of a
        // buffer.
        const graph::ModelView* view = nullptr;
    };
    // The data that the constructor has collected so far.
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
    // The last tensor whose memory order differs between checkpoint and model. It is kept in the
    // model's order for further reads.
    int reordered_tensor_ = -1;
    int reordered_state_ = storage::kWeights;
    at::Tensor reordered_;
};

}  // namespace dslaunch::runtime
