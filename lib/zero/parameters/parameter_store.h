// The store of a rank's parameters. They are whole in the host's shared arena at stages 0 to 2, and
// at stage 3 on one host, where every rank reads the others' shards in place. At stage 3 over
// several hosts, or offloaded, a host keeps its shards (on disk: each rank's, in the state store)
// and gathers buckets into buffers. The model's tensors point there. Threads: the compute lane
// calls await, release, hold and let_go, the communication lane gathers, the read lane calls bring.
// The plan's waits order them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "device/device.h"
#include "graph/archive/model.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/save/saved_state.h"
#include "zero/states/shard_map.h"
#include "zero/states/state_store.h"

namespace dslaunch::zero {

// The store's places in the arena, the same on all ranks of a host.
struct ParameterSlices {
    runtime::SliceId whole;                   // buckets that are not gathered, one after the other
    runtime::SliceId shards;                  // this host's part of the gathered buckets
    std::vector<runtime::SliceId> buffers;    // buffers that buckets are gathered into
    std::vector<runtime::SignalId> updated;   // per bucket and step: this rank's part is written
    std::vector<runtime::SignalId> gathered;  // per bucket and step: a bridge brought other hosts'
                                              // parts
    std::vector<runtime::SignalId> copied;    // per buffer and use: this rank's part is there
    std::vector<runtime::SignalId> filled;    // per buffer and use: a bridge brought the rest
    std::vector<runtime::SignalId> released;  // per buffer and use: this rank reads it no longer
};

// The device whose memory the arena is, and LibTorch's name for it.
struct TensorDevice {
    device::Device* device = nullptr;
    c10::Device name = c10::kCPU;
};

class ParameterStore {
  public:
    // DTYPE is kF32, kBF16 or kF16. BUFFER_NUMEL is StepPlan::gather_buffer_numel.
    [[nodiscard]] static ParameterSlices add_slices(const ShardMap& map, DType dtype,
                                                    std::span<const int64_t> buffer_numel,
                                                    runtime::ArenaLayout& arena);

    // Copies this rank's part of the model's parameters, in DTYPE, into the arena, which is
    // DEVICE's memory, or, if they are offloaded, into STATES. Master copies go into STATES too.
    // The model's tensors then point to the copies, and the memory they were loaded into is given
    // back bucket by bucket. Trained parameters come from SAVED if it is given. All references must
    // outlive the store. Blocks until all local ranks have come. REQUIRES: parameters with a
    // slice are fp32, bf16 or fp16, or packed.
    ParameterStore(graph::Model& model, const ShardMap& map, const ParameterSlices& slices,
                   DType dtype, const TensorDevice& device, const runtime::Arena& arena,
                   runtime::HostGroup& group, runtime::Collectives& collectives, StateStore& states,
                   runtime::SavedState* saved = nullptr);
    ParameterStore(const ParameterStore&) = delete;
    ParameterStore& operator=(const ParameterStore&) = delete;
    ~ParameterStore();

    // Returns the memory of an element of a bucket that this host keeps, for its owner to write.
    [[nodiscard]] std::byte* kept(int bucket, int64_t element) const;

    // Says that this rank has written its part of a bucket in STEP.
    void post_updated(int bucket, int64_t step);
    // Waits until a bucket that is not gathered is whole as STEP left it. Step 0 means as loaded.
    void await_whole(int bucket, int64_t step);
    // Brings the other hosts' parts of a bucket that is kept whole, in place, after the update of
    // STEP.
    void gather_in_place(int bucket, int64_t step);
    // gather() brings a bucket into a buffer as STEP left it, and release() gives the buffer back.
    // If parameters are offloaded, bring() comes first and reads this rank's part from its disk.
    // PACKING is how the bucket travels between hosts. A packed bucket is rounded in the buffer, on
    // the owner's host too, so that all ranks read the same bits; the kept parameters are not.
    void bring(int bucket, int buffer);
    void gather(int bucket, int buffer, int64_t step, WirePacking packing = WirePacking::kNone);
    void release(int bucket, int buffer);

    // hold() is called outside of a step. All ranks gather these parameters together as STEP left
    // them. A rank that passes KEEP reads them through the model's tensors, from private memory,
    // until let_go(). Buckets that are not gathered are always there.
    void hold(std::span<const int> parameters, int64_t step, bool keep);
    void let_go();
    // Gathers one bucket as hold() does, without a copy. USE, if not empty, is given the bucket's
    // memory, [numel] of DTYPE on the device, until it returns.
    using UseBucket = std::function<void(std::span<const std::byte> values)>;
    void visit(int bucket, int64_t step, const UseBucket& use);

    // Returns an untrained slice in memory order as the archive holds it, not as shards, the 16-bit
    // copy or a device's memory keep it. If the store has no such copy, returns TENSOR, the
    // model's. In a mapped archive the slice takes no memory until it is read.
    [[nodiscard]] at::Tensor frozen_values(int slice, const at::Tensor& tensor) const;

  private:
    // The parameters' values at the start: LOADED by slice, and SAVED for the trained ones.
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
    TensorDevice device_;
    const runtime::Arena& arena_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    StateStore& states_;
    std::vector<int64_t> whole_offset_;  // one per bucket that is not gathered, in elements
    std::vector<int> home_buffer_;       // one per gathered bucket: a buffer that is large enough
    std::vector<uint32_t> buffer_uses_;
    std::vector<at::Tensor> frozen_as_read_;
    std::vector<c10::Storage> storages_;  // one per slice, shared by the model's tensors
    std::vector<int> held_;               // buckets
    std::vector<device::Memory> held_values_;
    // Released parameters point to this memory, which no one may touch.
    std::span<std::byte> tripwire_;
};

}  // namespace dslaunch::zero
