// A computation of a job's step on one rank alone: the whole graph in one piece, on every micro
// batch of every rank in turn, without plan, buckets, shards or groups. Used by job_verifier.h. The
// step is also computed in fp64, to see how much of a difference rounding explains. Thread: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/segment/segmented_model.h"
#include "job/setup/job_setup.h"
#include "job/verify/scratch_memory.h"
#include "runtime/data/batch_loader.h"

namespace dslaunch::job {

// Two sums of the same terms in different orders have different rounding errors. Their difference
// may be up to kOrders times the error of one of them.
inline constexpr double kOrders = 8;

// Returns the allowed multiple of the largest rounding error in a tensor of NUMEL elements:
// kOrders, or more if the tensor has only a few elements. If a tensor has few elements, all of its
// errors may be nearly 0 by chance. The ratio of two normally distributed errors is above 6000 with
// a probability of 10^-4. With the same probability, the ratio of one error to the largest of N
// errors is above the N-th root of 6000.
inline double orders_of(int64_t numel) {
    constexpr double kOfOne = 6000;
    return std::max(kOrders,
                    std::pow(kOfOne, 1.0 / static_cast<double>(std::max<int64_t>(1, numel))));
}

// Returns TENSOR without its gradient. A floating-point tensor is converted to fp64.
inline at::Tensor to_double(const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.detach().to(at::kDouble) : tensor.detach();
}

// Returns the largest magnitude; 0 if the tensor has no elements.
inline double largest(const at::Tensor& tensor) {
    return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

// Returns MODEL's parameters, and then its buffers.
[[nodiscard]] std::vector<at::Tensor> tensors_of(const graph::Model& model);
// Converts the floating-point tensors in TENSORS to DTYPE. Tensors that share memory still share it
// afterwards.
void convert(std::vector<at::Tensor> tensors, at::ScalarType dtype);

// Loads a model as PyTorch does. The reference must not depend on model.h's handling of tied
// tensors or on its reader of records. So every tensor is loaded separately, and tensors share
// memory as in the archive. TorchScript archives are loaded with torch::jit::load. The weights of
// an exported program are read a second time, with LibTorch's archive reader; weights share a
// storage if the program's tables name the same record for them. A Hugging Face folder is read as
// for the job. LAYERS and the errors are as for Model::load(). REQUIRES: Model::load() has read and
// checked PATH.
[[nodiscard]] graph::Model load_as_torch(const std::string& path,
                                         const std::vector<int64_t>& layers);

// The results of a step on one rank alone, with the largest differences that rounding explains.
struct ReferenceStep {
    double loss = 0;  // mean over all micro batches
    double loss_bound = 0;
    // For each model parameter: the gradient of the scaled loss, averaged over the ranks. [numel]
    // fp32 in the order of the parameter's memory; undefined if the parameter has no gradient.
    std::vector<at::Tensor> gradients;
    std::vector<double> bounds;  // by model parameter; absolute errors
    double norm = 0;             // global L2 norm of the gradients of the loss itself
    // After step 1: a text about the difference between the graph and the model's own forward.
    // Empty if they agree, or if the forward was not run.
    std::string graph_fault;
};

// A second copy of the job's model, with its own data. The caller writes the parameters of each
// update into it before the next step.
class WholeReference {
  public:
    // Loads the model at PATH again. SETUP, whose data and config are used, must outlive this
    // object. SCRATCH is a folder for large values, if the models do not fit in memory; empty: only
    // memory is used. Throws Error{kSetup} if too little memory is left on this host, Error{kDisk}
    // if SCRATCH cannot be used, and Error{kInput} if forward writes attributes and several ranks
    // have batches.
    WholeReference(const JobSetup& setup, const std::string& path, const std::string& scratch);

    // Returns the values of a parameter or buffer of the job at the beginning of the next step.
    // Buffers have the values of the first data rank; other data ranks may have different values,
    // unless the config broadcasts or averages buffers.
    [[nodiscard]] const at::Tensor& parameter(int index) const;
    // Returns null for a buffer that the reference does not have.
    [[nodiscard]] const at::Tensor* buffer(int index) const;
    // Computes step STEP (from 1) and updates the buffers. Step 1 first compares the graph with the
    // model's own forward, which LibTorch runs on one batch.
    [[nodiscard]] ReferenceStep run(int64_t step, double loss_scale);
    // Returns the reason why forward was not run; empty if it was.
    [[nodiscard]] const std::string& forward_not_run() const { return forward_not_run_; }

  private:
    using Batch = std::vector<c10::IValue>;
    using Batches = std::vector<Batch>;  // batches of one rank in one step
    struct Scale {
        double weight = 1;  // weight of the loss in the mean
        double loss = 1;    // factor of the gradients
    };
    struct Sums {
        double loss = 0;
        std::vector<at::Tensor> gradients;
        void add(const Sums& other);
        void scale(double factor);
    };
    [[nodiscard]] double loss_weight(const std::vector<Batches>& all);
    [[nodiscard]] double weight_by_itself(const Batch& batch);
    void add_step(const Batch& batch, const graph::DrawKey& key, const Scale& scale, Sums& sums);
    [[nodiscard]] Sums computed(const graph::LoweredGraph& graph, at::ScalarType type,
                                const Batch& batch, const graph::DrawKey& key, const Scale& scale);
    [[nodiscard]] Sums computed_by_libtorch(std::optional<at::ScalarType> type, bool training,
                                            const Batch& batch) const;
    [[nodiscard]] std::string difference_from(const Sums& exact, const graph::LoweredGraph& graph,
                                              bool training, const Batch& batch);
    [[nodiscard]] std::string difference_of(const Sums& own, const Sums& exact,
                                            const Sums* rounded) const;
    [[nodiscard]] std::string why_not_run() const;
    [[nodiscard]] std::string compare_forward(const Batch& batch);
    [[nodiscard]] bool counts(const Batch& batch) const;
    [[nodiscard]] std::vector<at::Tensor> buffers_now() const;
    void put_buffers(const std::vector<at::Tensor>& values);
    void average_buffers();
    void write_parameters();
    void require_room(int64_t numel) const;
    [[nodiscard]] graph::LoweredGraph lowered_in_fp32(bool training);
    [[nodiscard]] graph::Model load_with_room(const std::string& path) const;
    [[nodiscard]] graph::Model load_in_fp32(const std::string& path) const;
    // The place of a parameter of model_ in the memory of one of the job's parameters.
    struct Place {
        int owner = -1;  // parameter of the job; -1: none
        std::vector<int64_t> sizes, strides;
        int64_t offset = 0;  // in elements, from the owner's first element
        int64_t reach = 0;   // elements of memory from its first element to its last
    };
    void find_homes();
    void take_gradients(std::span<const at::Tensor> leaves, at::ScalarType type, Sums& sums) const;

    const JobSetup& setup_;
    std::unique_ptr<ScratchMemory> scratch_;  // null: only memory is used
    std::string path_;
    graph::Model model_;           // as PyTorch loads it: tied parameters are separate tensors in
                                   // shared memory
    graph::SegmentedModel whole_;  // one segment
    graph::LoweredGraph in_double_;
    std::vector<std::unique_ptr<runtime::BatchLoader>> loaders_;  // by data rank
    std::vector<int> parameter_of_;   // by parameter of the job, its first index in model_
    std::vector<int> buffer_of_;      // by buffer of the job, its index in model_, or -1
    std::vector<Place> places_;       // by parameter of model_
    std::vector<at::Tensor> moving_;  // buffers of model_ that share no memory with a parameter
    std::vector<std::vector<at::Tensor>> buffers_;  // by data rank, the values of moving_
    std::string forward_not_run_ = "no batch of step 1 has a target";
};

}  // namespace dslaunch::job
