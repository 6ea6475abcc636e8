// The store of a rank's parameters. At stages 0 to 2, and at stage 3 on one host, the parameters
// are whole in the host's shared arena; at stage 3 every rank reads the other ranks' shards there.
// At stage 3 on several hosts, a host keeps only its shards, and gathers buckets into buffers. With
// offloading, hosts gather buckets in the same way, but each rank's shards are on disk, in the
// state store. The model's tensors point to the arena or to these buffers. Threads: the compute
// lane calls await, release, hold and let_go, the communication lane gathers, the read lane calls
// bring. The plan's waits order them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <utility>
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

// The store's slices of the arena, the same on all ranks of a host.
struct ParameterSlices {
    runtime::SliceId whole;                   // buckets that are not gathered, one after the other
    runtime::SliceId shards;                  // this host's part of the gathered buckets
    std::vector<runtime::SliceId> buffers;    // buffers that buckets are gathered into
    std::vector<runtime::SignalId> updated;   // per bucket and step: this rank's part is written
    std::vector<runtime::SignalId> gathered;  // per bucket and step: other hosts' parts came
    std::vector<runtime::SignalId> copied;    // per buffer and use: this rank's part is written
    std::vector<runtime::SignalId> filled;    // per buffer and use: a bridge received the rest
    std::vector<runtime::SignalId> released;  // per buffer and use: this rank stopped reading
};

// The device that the arena's memory belongs to, and LibTorch's name for it.
struct TensorDevice {
    device::Device* device = nullptr;
    c10::Device name = c10::kCPU;
};

// Stores parameters; see the top of this file.
class ParameterStore {
  public:
    // Adds the store's slices to an arena. DTYPE is kF32, kBF16 or kF16. BUFFER_NUMEL is
    // StepPlan::gather_buffer_numel.
    [[nodiscard]] static ParameterSlices add_slices(const ShardMap& map, DType dtype,
                                                    std::span<const int64_t> buffer_numel,
                                                    runtime::ArenaLayout& arena);

    // Copies this rank's part of the model's parameters, in DTYPE, into the arena, which is
    // DEVICE's memory, or into STATES if they are offloaded. Copies master copies into STATES too.
    // Then lets the model's tensors point to the copies, and frees the memory that they were loaded
    // into, bucket by bucket. If SAVED is given, trained parameters are read from it. All
    // references must outlive the store. Blocks until all local ranks have called it. REQUIRES:
    // parameters with a slice are fp32, bf16 or fp16, or packed.
    ParameterStore(graph::Model& model, const ShardMap& map, const ParameterSlices& slices,
                   DType dtype, const TensorDevice& device, const runtime::Arena& arena,
                   runtime::HostGroup& group, runtime::Collectives& collectives, StateStore& states,
                   runtime::SavedState* saved = nullptr);
    ParameterStore(const ParameterStore&) = delete;
    ParameterStore& operator=(const ParameterStore&) = delete;

    // Returns the memory of an element of a bucket. Only the element's owner may write there.
    // REQUIRES: this host keeps the element.
    [[nodiscard]] std::byte* kept(int bucket, int64_t element) const;

    // Reports that this rank has written its part of a bucket in STEP.
    void post_updated(int bucket, int64_t step);
    // Waits until a bucket that is not gathered has all values of the end of STEP. STEP 0 stands
    // for the loaded values.
    void await_whole(int bucket, int64_t step);
    // Completes a bucket that every host keeps whole: after the update of STEP, brings the parts
    // that other hosts have updated into this host's copy.
    void gather_in_place(int bucket, int64_t step);
    // gather() brings a bucket, as it was after STEP, into a buffer, and release() gives the buffer
    // back. If parameters are offloaded, bring() must be called first: it reads this rank's part
    // from its disk. PACKING is the format in which the bucket travels between hosts. A packed
    // bucket is rounded in the buffer, on the owner's host too, so that all ranks read the same
    // bits; the kept parameters are not rounded.
    void bring(int bucket, int buffer);
    void gather(int bucket, int buffer, int64_t step, WirePacking packing = WirePacking::kNone);
    void release(int bucket, int buffer);

    // Gathers PARAMETERS as they were after STEP. Called by all ranks, outside of a step. On a rank
    // that sets KEEP, the model's tensors then point to private copies of PARAMETERS until
    // let_go(). Buckets that are not gathered can always be read.
    void hold(std::span<const int> parameters, int64_t step, bool keep);
    void let_go();
    // Gathers one bucket as hold() does, without a copy. If USE is not empty, it gets the bucket's
    // memory, [numel] of DTYPE on the device, which is valid until USE returns.
    using UseBucket = std::function<void(std::span<const std::byte> values)>;
    void visit(int bucket, int64_t step, const UseBucket& use);

    // Returns an untrained slice exactly as the archive contains it, in memory order: whole, with
    // the archive's precision, and on the host. If the store does not keep the archive's form,
    // returns TENSOR, the model's own. In a mapped archive the slice takes no memory until it is
    // read.
    [[nodiscard]] at::Tensor frozen_values(int slice, const at::Tensor& tensor) const;

  private:
    // The first values of the parameters. `loaded` has them by slice. If `saved` is not null,
    // trained parameters get their values from `saved` instead.
    struct Values {
        const graph::Model& model;
        std::vector<at::Tensor> loaded;
        runtime::SavedState* saved = nullptr;
    };
    // The place of a bucket.
    struct Home {
        // The bucket's offset in the arena's slice `whole`, in elements. Unused if the bucket is
        // gathered.
        int64_t whole_offset = 0;
        int buffer = -1;  // buffer for a gathered bucket; -1 if it has no elements
    };
    // A bucket that is held, and the copy of its values.
    struct HeldBucket {
        int bucket = 0;
        device::Memory values;
    };
    // Address space that cannot be accessed. Released parameters point to it, so that any use of
    // them fails at once.
    class Tripwire {
      public:
        Tripwire() = default;
        // Reserves BYTES of address space. Throws Error{kSetup} if there is not enough.
        explicit Tripwire(int64_t bytes);
        Tripwire(Tripwire&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
        Tripwire& operator=(Tripwire&& other) noexcept {
            std::swap(memory_, other.memory_);
            return *this;
        }
        ~Tripwire();
        [[nodiscard]] std::byte* data() const { return memory_.data(); }

      private:
        std::span<std::byte> memory_;
    };
    [[nodiscard]] int64_t element_bytes() const { return dtype_bytes(dtype_); }
    void adopt(graph::Model& model, runtime::SavedState* saved);
    void fill(int bucket, const Values& values);
    void copy_range(int bucket, const Range& range, const Values& values, std::byte* into,
                    DType dtype) const;
    [[nodiscard]] std::byte* begin_use(int buffer);
    void point_to(int bucket, std::byte* base);
    [[nodiscard]] std::vector<int> buckets_of(std::span<const int> parameters) const;

    const ShardMap& map_;
    ParameterSlices slices_;
    DType dtype_;
    TensorDevice device_;
    const runtime::Arena& arena_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    StateStore& states_;
    std::vector<Home> homes_;  // by bucket
    std::vector<uint32_t> buffer_uses_;
    std::vector<at::Tensor> frozen_as_read_;
    std::vector<c10::Storage> storages_;  // one per slice, shared by the model's tensors
    std::vector<HeldBucket> held_;
    Tripwire tripwire_;
};

}  // namespace dslaunch::zero
