// What one rank alone computes of a job's step: the whole graph as one piece, on every micro batch
// of every rank in turn, without plan, buckets, shards or groups. Feeds job_verifier.h. The same
// step in fp64 says how much of a difference rounding explains. Thread: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/segment/segment.h"
#include "job/setup/job_setup.h"
#include "job/verify/scratch_memory.h"
#include "runtime/data/batch_loader.h"

namespace dslaunch::job {

// A value, and the largest difference from it that rounding explains.
struct ReferenceStep {
    double loss = 0;  // mean over all micro batches
    double loss_bound = 0;
    // By model parameter: the mean over the ranks of the gradients of the scaled loss, [numel] fp32
    // in the order of the parameter's memory; undefined: it has none.
    std::vector<at::Tensor> gradients;
    std::vector<double> bounds;  // by model parameter, absolute
    double norm = 0;             // global L2 norm of the gradients of the loss itself
};

class WholeReference {
  public:
    // Loads the model at PATH anew. SETUP, whose data and config count, must outlive this. SCRATCH
    // is a folder whose disk holds what is large, for models that do not fit in memory; empty:
    // none. Throws Error{kSetup} if the memory left on this host is too little, Error{kDisk} for
    // SCRATCH, Error{kInput} if forward writes attributes and several ranks have batches.
    WholeReference(const JobSetup& setup, const std::string& path, const std::string& scratch);

    // The values that the next step begins with. Buffers are the first data rank's; each has its
    // own, unless the config broadcasts or averages them.
    [[nodiscard]] const graph::Model& model() const { return model_; }
    // Computes step STEP (from 1) and moves the buffers.
    [[nodiscard]] ReferenceStep run(int64_t step, double loss_scale);

  private:
    struct Sums {
        double loss = 0;
        std::vector<at::Tensor> gradients;
        void add(const Sums& other);
        void scale(double factor);
    };
    [[nodiscard]] std::vector<std::vector<c10::IValue>> batches_of(size_t rank, int64_t step);
    [[nodiscard]] double loss_weight(const std::vector<std::vector<std::vector<c10::IValue>>>& all);
    void add_step(const std::vector<c10::IValue>& batch, const graph::DrawKey& key, double weight,
                  double loss_scale, Sums& sums);
    void add_in_double(const std::vector<c10::IValue>& batch, const graph::DrawKey& key,
                       double weight, double loss_scale, Sums& sums);
    [[nodiscard]] std::vector<at::Tensor> buffers_now() const;
    void put_buffers(const std::vector<at::Tensor>& values);
    void average_buffers();
    void require_room(int64_t numel) const;
    [[nodiscard]] graph::Model load_in_fp32(const std::string& path) const;

    const JobSetup& setup_;
    std::unique_ptr<ScratchMemory> scratch_;  // null: memory alone
    graph::Model model_;
    graph::SegmentedModel whole_;  // one segment
    graph::LoweredGraph in_double_;
    std::vector<std::unique_ptr<runtime::BatchLoader>> loaders_;  // by data rank
    std::vector<std::vector<at::Tensor>> buffers_;                // by data rank
};

}  // namespace dslaunch::job
