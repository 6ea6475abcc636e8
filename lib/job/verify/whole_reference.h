// Computes a job's step on one rank alone: the whole graph as one piece, on every micro batch of
// every rank in turn, without plan, buckets, shards or groups. Feeds job_verifier.h. The same
// step in fp64 says how much of a difference rounding explains. Thread: one.
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
#include "graph/segment/segment.h"
#include "job/setup/job_setup.h"
#include "job/verify/scratch_memory.h"
#include "runtime/data/batch_loader.h"

namespace dslaunch::job {

// Rounding differs between orders of sums; so many times what one order is off by is allowed.
inline constexpr double kOrders = 8;

// Returns kOrders for a tensor of NUMEL elements, more for a few. The bound is a multiple of the
// largest error in the tensor. One element may by luck be nearly exact; several hardly all are. The
// ratio of two normally distributed errors is above 6000 once in 10^4 times, and the ratio of one
// error to the largest of N is then above the N-th root of 6000.
inline double orders_of(int64_t numel) {
    constexpr double kOfOne = 6000;
    return std::max(kOrders,
                    std::pow(kOfOne, 1.0 / static_cast<double>(std::max<int64_t>(1, numel))));
}

// Returns floating tensors in fp64, others as they are; without gradient.
inline at::Tensor to_double(const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.detach().to(at::kDouble) : tensor.detach();
}

// Returns the largest magnitude; 0 of no elements.
inline double largest(const at::Tensor& tensor) {
    return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

// Returns MODEL's parameters, and then its buffers.
[[nodiscard]] std::vector<at::Tensor> tensors_of(const graph::Model& model);
// Brings the floating ones of TENSORS to DTYPE. Tensors that share memory go on to share it.
void convert(std::vector<at::Tensor> tensors, at::ScalarType dtype);

// Loads a model as PyTorch does, for a reference that goes neither through what model.h makes of
// tied tensors nor through its reader of records: every tensor by itself, sharing memory as in the
// archive. TorchScript archives go through torch::jit::load. The weights of an exported program are
// read once more, by LibTorch's reader of archives, and share a storage where its tables name one
// record. A folder of Hugging Face is read as for the job. Throws as Model::load does. REQUIRES:
// Model::load has read PATH, which checks it.
[[nodiscard]] graph::Model load_as_torch(const std::string& path);

// A value, and the largest difference from it that rounding explains.
struct ReferenceStep {
    double loss = 0;  // mean over all micro batches
    double loss_bound = 0;
    // By model parameter: the mean over the ranks of the gradients of the scaled loss, [numel] fp32
    // in the order of the parameter's memory; undefined: it has none.
    std::vector<at::Tensor> gradients;
    std::vector<double> bounds;  // by model parameter, absolute
    double norm = 0;             // global L2 norm of the gradients of the loss itself
    // Says after step 1 how the graph differs from the model's own forward. Empty: they agree, or
    // the forward was not run.
    std::string graph_fault;
};

class WholeReference {
  public:
    // Loads the model at PATH again. SETUP, whose data and config count, must outlive this. SCRATCH
    // is a folder for large values on disk, if models do not fit in memory; empty: memory alone.
    // Throws Error{kSetup} if the memory left on this host is too little, Error{kDisk} for
    // SCRATCH, Error{kInput} if forward writes attributes and several ranks have batches.
    WholeReference(const JobSetup& setup, const std::string& path, const std::string& scratch);

    // Returns the values of the job's parameter or buffer that the next step begins with. Buffers
    // are the first data rank's; each has its own, unless the config broadcasts or averages them.
    [[nodiscard]] const at::Tensor& parameter(int index) const;
    // Returns null for a buffer that the reference does not have.
    [[nodiscard]] const at::Tensor* buffer(int index) const;
    // Computes step STEP (from 1) and moves the buffers. Step 1 compares the graph with the model's
    // own forward first, as LibTorch runs it on one batch.
    [[nodiscard]] ReferenceStep run(int64_t step, double loss_scale);
    // Says why forward did not run; empty: it did.
    [[nodiscard]] const std::string& forward_not_run() const { return forward_not_run_; }

  private:
    using Batch = std::vector<c10::IValue>;
    using Batches = std::vector<Batch>;  // of one rank in one step
    struct Scale {
        double weight = 1;  // of the loss in a mean
        double loss = 1;    // of the gradients
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
    // A parameter of model_ in the memory of a parameter of the job.
    struct Place {
        int owner = -1;  // parameter of the job; -1: none
        std::vector<int64_t> sizes, strides;
        int64_t offset = 0;  // elements from the owner's first
        int64_t reach = 0;   // elements from its first to its last
    };
    void find_homes();
    void take_gradients(std::span<const at::Tensor> leaves, at::ScalarType type, Sums& sums) const;

    const JobSetup& setup_;
    std::unique_ptr<ScratchMemory> scratch_;  // null: memory alone
    std::string path_;
    graph::Model model_;           // as PyTorch loads it: nothing is tied, memory is shared
    graph::SegmentedModel whole_;  // one segment
    graph::LoweredGraph in_double_;
    std::vector<std::unique_ptr<runtime::BatchLoader>> loaders_;  // by data rank
    std::vector<int> parameter_of_;   // by parameter of the job: its first name in model_
    std::vector<int> buffer_of_;      // by buffer of the job
    std::vector<Place> places_;       // by parameter of model_
    std::vector<at::Tensor> moving_;  // buffers of model_ that no parameter has
    std::vector<std::vector<at::Tensor>> buffers_;  // by data rank, the values of moving_
    std::string forward_not_run_ = "no batch of step 1 has a target";
};

}  // namespace dslaunch::job
