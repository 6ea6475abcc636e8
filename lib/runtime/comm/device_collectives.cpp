#include "runtime/comm/device_collectives.h"

#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::runtime {

namespace {

// The groups of ranks that this rank has joined. A group that it has not joined is null.
struct Groups {
    DeviceCommunicator* world = nullptr;
    DeviceCommunicator* owners = nullptr;  // the ranks that shard one copy, or WORLD
    DeviceCommunicator* copies = nullptr;  // the ranks that own the same shard; null with one copy
    int owners_count = 1;
    int place = 0;  // this rank's index among the owners
};

class DeviceCollectives final : public Collectives {
  public:
    DeviceCollectives(const DeviceCollectivesParts& parts, const Groups& groups,
                      Duration time_limit)
        : topology_(parts.control->topology().each_alone()),
          arena_(*parts.arena),
          control_(*parts.control),
          backend_(*parts.backend),
          groups_(groups),
          settled_(parts.backend->communication().stream()->make_event()),
          time_limit_(time_limit) {}

    const Topology& topology() const override { return topology_; }
    std::span<float> bucket(BucketId bucket) override { return arena_.bucket_of_rank(bucket, 0); }

    void await_free(BucketId /*bucket*/, Generation /*generation*/) override {}
    void post(BucketId /*bucket*/, Generation /*generation*/) override {}
    void release(BucketId /*bucket*/, Generation /*generation*/) override {}

    void reduce(BucketId bucket, Generation /*generation*/, float scale,
                std::span<const NodeRange> destinations, const ReduceCoding& coding) override {
        DSL_CHECK(coding.packing == WirePacking::kNone,
                  "gradients cannot be packed between devices");
        const int world_size = topology_.world_size();
        DSL_CHECK(scale == 1.0F || scale == 1.0F / static_cast<float>(world_size),
                  "sums on devices cannot be multiplied by {}", scale);
        if (world_size == 1) return;
        const DeviceBuffer buffer = fp32(this->bucket(bucket));
        const DeviceReduction reduction =
            scale == 1.0F ? DeviceReduction::kSum : DeviceReduction::kMean;
        if (destinations.empty()) {
            count_all_reduce(buffer.numel * kElementBytes, world_size);
            return groups_.world->all_reduce(buffer, reduction);
        }
        // The usage flags are left out: they are not on the device (GradientSums::complete). Each
        // other range goes to one rank only. If these shards have equal sizes, a single
        // reduce-scatter is enough.
        std::vector<NodeRange> shards(destinations.begin(), destinations.end());
        std::erase_if(shards, [](const NodeRange& range) { return range.node == kEveryNode; });
        groups_.owners->reduce_ranges(buffer, reduction, shards);
        const int64_t own = numel_of(shards, groups_.place);
        count((numel_of(shards) - own) * kElementBytes,
              own * (groups_.owners_count - 1) * kElementBytes);
        if (groups_.copies == nullptr) return;
        count_all_reduce(own * kElementBytes, world_size / groups_.owners_count);
        // Groups have the same size, so the mean of their means is the mean over all ranks.
        std::erase_if(shards, [&](const NodeRange& range) { return range.node != groups_.place; });
        for (NodeRange& own : shards) own.node = kEveryNode;
        groups_.copies->reduce_ranges(buffer, reduction, shards);
    }
    ReducedParts await_reduced(BucketId bucket, Generation /*generation*/) override {
        const std::span<const float> values = this->bucket(bucket);
        ReducedParts result{.numel = std::ssize(values), .parts = {}};
        if (!values.empty()) result.parts.push_back({{0, result.numel}, values});
        return result;
    }
    void reduce_on_host(BucketId bucket, Generation generation, float scale) override {
        DSL_CHECK(topology_.world_size() == 1, "GPUs of several ranks cannot sum on the host");
        reduce(bucket, generation, scale, {}, {});
    }
    ReducedParts await_reduced_on_host(BucketId bucket, Generation generation) override {
        return await_reduced(bucket, generation);
    }
    void swap_over_hosts(std::span<const std::span<const std::byte>> /*sends*/,
                         std::span<const std::span<std::byte>> /*receives*/) override {
        DSL_CHECK(false, "GPUs cannot swap bytes over hosts");
    }
    std::vector<const float*> await_sources(BucketId bucket, Generation /*generation*/) override {
        DSL_CHECK(topology_.world_size() == 1,
                  "a device cannot read the gradients of other devices");
        return {this->bucket(bucket).data()};
    }

    void broadcast(std::span<std::byte> bytes) override { control_.broadcast(bytes); }
    void settle() override {
        backend_.communication().stream()->record(*settled_);
        if (device::await_event(*settled_, {[this] { backend_.check(); }, time_limit_, {}})) return;
        fail(ExitCode::kHang,
             "transfers between GPUs, outside a step, did not finish within {:.3f} s; a rank does "
             "not take part in them, or the network between the GPUs is blocked (--timeout sets "
             "the limit)",
             to_milliseconds(time_limit_) / 1000);
    }
    void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                       std::span<const NodeRange> owned, const GatherCoding& coding) override {
        DSL_CHECK(coding.packing == WirePacking::kNone,
                  "parameters cannot be packed between devices");
        const int64_t numel = tiled_numel(owned, groups_.owners_count);
        DSL_CHECK(numel * element_bytes == std::ssize(slice),
                  "{} elements of {} bytes do not fill the {} bytes of a slice", numel,
                  element_bytes, slice.size());
        if (topology_.world_size() == 1) return;
        std::vector<NodeRange> in_bytes;
        for (const NodeRange& range : owned)
            in_bytes.push_back(
                {{range.range.begin * element_bytes, range.range.numel * element_bytes},
                 range.node});
        groups_.owners->gather_ranges(bytes_of(slice), in_bytes);
        const int64_t own = numel_of(in_bytes, groups_.place);
        count(own * (groups_.owners_count - 1), std::ssize(slice) - own);
    }
    std::vector<std::string> all_gather(std::string_view mine) override {
        return control_.all_gather(mine);
    }
    void sum_ordered(std::span<double> values) override { control_.sum_ordered(values); }
    void barrier() override { control_.barrier(); }

    void poison(std::string_view text) override {
        control_.poison(text);
        backend_.abort();
    }
    // Returns the traffic. It is computed from the sizes of the collectives, because NCCL may
    // choose any path.
    TrafficTable traffic() const override { return meter_.table(); }

  private:
    static constexpr int64_t kElementBytes = sizeof(float);

    // Returns the number of elements of RANGES. If PLACE is given, counts only ranges whose node is
    // PLACE.
    static int64_t numel_of(std::span<const NodeRange> ranges, std::optional<int> place = {}) {
        int64_t numel = 0;
        for (const NodeRange& range : ranges)
            if (!place || range.node == *place) numel += range.range.numel;
        return numel;
    }
    void count(int64_t sent, int64_t received) {
        meter_.add(kOtherDevices, {Bytes{sent}, Bytes{received}});
    }
    // Counts an all-reduce: each rank sums one part of BYTES, and sends the sum to the others.
    void count_all_reduce(int64_t bytes, int ranks) {
        const int64_t moved = bytes / ranks * 2 * (ranks - 1);
        count(moved, moved);
    }
    static DeviceBuffer fp32(std::span<float> values) {
        return {values.data(), std::ssize(values), DType::kF32};
    }
    static DeviceBuffer bytes_of(std::span<std::byte> bytes) {
        return {bytes.data(), std::ssize(bytes), DType::kU8};
    }

    Topology topology_;
    const Arena& arena_;
    Collectives& control_;
    DeviceBackend& backend_;
    Groups groups_;
    std::unique_ptr<device::Event> settled_;
    Duration time_limit_;
    TrafficMeter meter_;
};

// Joins the group of SIZE ranks in which this rank has index PLACE. The group's first rank, whose
// global rank is IDS_OF, makes the group's id. The collectives in PARTS.control send the id to the
// other ranks.
DeviceCommunicator* join(const DeviceCollectivesParts& parts, int place, int size, int ids_of,
                         Duration time_limit) {
    const std::vector<std::string> ids =
        parts.control->all_gather(place == 0 ? parts.backend->make_unique_id() : std::string());
    return &parts.backend->join({ids[static_cast<size_t>(ids_of)], place, size, time_limit});
}

Groups join_groups(const DeviceCollectivesParts& parts, Duration time_limit) {
    const int rank = parts.control->topology().rank();
    const int world_size = parts.control->topology().world_size();
    Groups groups;
    groups.owners_count = parts.shard_group > 0 ? parts.shard_group : world_size;
    groups.place = rank % groups.owners_count;
    if (world_size == 1) return groups;
    groups.world = groups.owners = join(parts, rank, world_size, 0, time_limit);
    if (groups.owners_count == world_size) return groups;
    groups.owners = join(parts, groups.place, groups.owners_count, rank - groups.place, time_limit);
    groups.copies = join(parts, rank / groups.owners_count, world_size / groups.owners_count,
                         groups.place, time_limit);
    return groups;
}

}  // namespace

std::unique_ptr<Collectives> make_device_collectives(const DeviceCollectivesParts& parts,
                                                     Duration time_limit) {
    return std::make_unique<DeviceCollectives>(parts, join_groups(parts, time_limit), time_limit);
}

}  // namespace dslaunch::runtime
