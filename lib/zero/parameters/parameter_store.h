// Where the parameters live: in the host's shared arena, whole (stages 0 to 2, and stage 3 on one
// host, where every rank reads the others' shards in place), or as this host's shards (on disk:
// each rank's, in the state store) with buffers into which buckets are gathered (stage 3 over
// several hosts, or offloaded). The model's tensors point there. Threads: await, release, hold and
// let_go by the compute lane, gathers by the communication lane, bring by the read lane, ordered by
// the plan's waits.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "graph/archive/model.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/save/saved_state.h"
#include "zero/states/shard_map.h"
#include "zero/states/state_store.h"

namespace dslaunch::zero {

// Places in the arena; the same on all ranks of a host.
struct ParameterSlices {
    runtime::SliceId whole;                   // buckets that are not gathered, one after the other
    runtime::SliceId shards;                  // what this host keeps of the gathered ones
    std::vector<runtime::SliceId> buffers;    // where buckets are gathered
    std::vector<runtime::SignalId> updated;   // by bucket: this rank's part is written, by step
    std::vector<runtime::SignalId> gathered;  // by bucket: a bridge has brought the other hosts'
                                              // parts
    std::vector<runtime::SignalId> copied;    // by buffer: this rank's part is there, by use
    std::vector<runtime::SignalId> filled;    // by buffer: a bridge has brought the rest
    std::vector<runtime::SignalId> released;  // by buffer: this rank reads it no more
};

class ParameterStore {
  public:
    // DTYPE: kF32, kBF16 or kF16. BUFFER_NUMEL: StepPlan::gather_buffer_numel.
    [[nodiscard]] static ParameterSlices add_slices(const ShardMap& map, DType dtype,
                                                    std::span<const int64_t> buffer_numel,
                                                    runtime::ArenaLayout& arena);

    // Copies what this rank keeps of the model's parameters into the arena, in DTYPE, or where they
    // are offloaded into STATES, and master copies too; lets the model's tensors point there and
    // gives back what it was loaded into, bucket by bucket. What is trained comes from SAVED where
    // there is one. All references must outlive the store.
    // Blocks until all local ranks have come. Throws Error{kInput} naming a parameter of another
    // type.
    ParameterStore(graph::Model& model, const ShardMap& map, const ParameterSlices& slices,
                   DType dtype, const runtime::Arena& arena, runtime::HostGroup& group,
                   runtime::Collectives& collectives, StateStore& states,
                   runtime::SavedState* saved = nullptr);
    ParameterStore(const ParameterStore&) = delete;
    ParameterStore& operator=(const ParameterStore&) = delete;
    ~ParameterStore();

    // Elements of a bucket that this host keeps in memory, for its owner to write.
    [[nodiscard]] std::byte* kept(int bucket, int64_t element) const;

    // This rank has written its part of a bucket in STEP.
    void post_updated(int bucket, int64_t step);
    // Waits until a bucket that is not gathered is whole as STEP left it. Step 0: as loaded.
    void await_whole(int bucket, int64_t step);
    // In place, after the update of STEP: the other hosts' parts of a bucket that is kept whole.
    void gather_in_place(int bucket, int64_t step);
    // Into a buffer, as STEP left them, and back. Where parameters are offloaded, bring() comes
    // first: this rank's part, from its disk.
    void bring(int bucket, int buffer);
    void gather(int bucket, int buffer, int64_t step);
    void release(int bucket, int buffer);

    // Outside of a step: all ranks bring these parameters together as STEP left them, and whoever
    // says KEEP reads them through the model's tensors until let_go(), from private memory. Where
    // nothing is gathered they are always there.
    void hold(std::span<const int> parameters, int64_t step, bool keep);
    void let_go();
    // The same of one bucket that is gathered, without a copy: USE, where it is not empty, is given
    // its memory, [numel] of DTYPE, until it returns.
    using UseBucket = std::function<void(std::span<const std::byte> values)>;
    void visit(int bucket, int64_t step, const UseBucket& use);

    // A slice that is not trained, as the archive holds it and not as shards or the 16-bit copy
    // keep it: in memory order; else TENSOR, the model's. In a mapped archive it takes no memory
    // until it is read.
    [[nodiscard]] at::Tensor frozen_values(int slice, const at::Tensor& tensor) const;

  private:
    // What parameters hold at the start: by slice, as loaded; SAVED, of those that are trained.
    struct Values {
        std::vector<at::Tensor> loaded;
        runtime::SavedState* saved = nullptr;
    };
    void adopt(graph::Model& model, runtime::SavedState* saved);
    void fill(int bucket, const Values& values);
    void copy_range(int bucket, const Range& range, const Values& values, std::byte* into,
                    DType dtype) const;
    [[nodiscard]] std::byte* begin_use(int buffer);
    void point_to(int bucket, std::byte* base);
    [[nodiscard]] std::vector<int> buckets_of(std::span<const int> parameters) const;

    const graph::Model& model_;
    const ShardMap& map_;
    ParameterSlices slices_;
    DType dtype_;
    int64_t element_bytes_;
    const runtime::Arena& arena_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    StateStore& states_;
    std::vector<int64_t> whole_offset_;  // of each bucket that is not gathered, in elements
    std::vector<int> home_buffer_;       // of each gathered bucket: a buffer that is large enough
    std::vector<uint32_t> buffer_uses_;
    std::vector<at::Tensor> frozen_as_read_;
    std::vector<c10::Storage> storages_;  // by slice: what the model's tensors share
    std::vector<int> held_;               // buckets
    std::vector<std::vector<std::byte>> held_values_;
    std::span<std::byte> tripwire_;  // what released parameters point to: memory that no one may
                                     // touch
};

}  // namespace dslaunch::zero
