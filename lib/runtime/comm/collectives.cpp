#include "runtime/comm/collectives.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/wire.h"
#include "kernels/flat_optimizer.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/host_exchange.h"
#include "runtime/comm/link.h"

namespace dslaunch::runtime {

void ReducedParts::copy_to(std::span<float> into) const {
    DSL_CHECK(std::ssize(into) == numel, "{} elements cannot be copied into {}", numel,
              into.size());
    for (const Part& part : parts)
        std::memcpy(into.data() + part.range.begin, part.values.data(), part.values.size_bytes());
}

namespace {

// Marks that a thread uses the mailbox and the link. If a second thread uses them at the same time,
// the plan has a bug.
class OneAtATime {
  public:
    explicit OneAtATime(std::atomic<bool>& busy) : busy_(busy) {
        DSL_CHECK(!busy_.exchange(true), "two threads are inside collectives at once");
    }
    OneAtATime(const OneAtATime&) = delete;
    OneAtATime& operator=(const OneAtATime&) = delete;
    ~OneAtATime() { busy_.store(false); }

  private:
    std::atomic<bool>& busy_;
};

// Returns the parts of RANGES that are inside of the ranges in EXACT. If INSIDE is false, returns
// the parts that are outside of them.
std::vector<NodeRange> parts_of_ranges(std::span<const NodeRange> ranges,
                                       std::span<const Range> exact, bool inside) {
    std::vector<NodeRange> parts;
    for (const NodeRange& of : ranges) {
        int64_t begin = of.range.begin;
        const auto add = [&](const Range& range) {
            if (range.numel > 0) parts.push_back({range, of.node});
        };
        for (const Range& range : exact) {
            const Range both = intersect(of.range, range);
            if (both.numel == 0) continue;
            add(inside ? both : Range{begin, both.begin - begin});
            begin = both.end();
        }
        if (!inside) add({begin, of.range.end() - begin});
    }
    return parts;
}

class HierarchicalCollectives final : public Collectives {
  public:
    explicit HierarchicalCollectives(CollectivesParts parts)
        : topology_(std::move(parts.topology)), arena_(*parts.arena), group_(*parts.group) {
        DSL_CHECK((parts.link != nullptr) == topology_.is_bridge(),
                  "rank {} has a link without being a bridge, or is a bridge without a link",
                  topology_.rank());
        DSL_CHECK(group_.local_world_size() == topology_.local_world_size() &&
                      group_.local_rank() == topology_.local_rank,
                  "the host group does not match the topology");
        if (parts.link == nullptr) return;
        exchange_.emplace(topology_, std::move(parts.link));
        watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    }
    HierarchicalCollectives(const HierarchicalCollectives&) = delete;
    HierarchicalCollectives& operator=(const HierarchicalCollectives&) = delete;
    ~HierarchicalCollectives() override {
        watcher_.request_stop();
        group_.wake_poison_waiters();
    }

    const Topology& topology() const override { return topology_; }
    std::span<float> bucket(BucketId bucket) override {
        return arena_.bucket_of_rank(bucket, topology_.local_rank);
    }

    void await_free(BucketId bucket, Generation generation) override {
        group_.await_all(info(bucket).released, generation - 1);
    }
    void post(BucketId bucket, Generation generation) override {
        group_.post(info(bucket).posted, generation);
    }
    void release(BucketId bucket, Generation generation) override {
        group_.post(info(bucket).released, generation);
    }
    void reduce(BucketId bucket, Generation generation, float scale,
                std::span<const NodeRange> destinations, const ReduceCoding& coding) override {
        const ArenaLayout::Bucket& words = info(bucket);
        const bool once = coding.packing == WirePacking::kNone || is_half(coding.packing);
        DSL_CHECK(once || !destinations.empty(),
                  "bucket {} is packed for all hosts, which would round its sums twice",
                  words.name);
        DSL_CHECK(is_half(coding.packing) || (coding.exact.empty() && coding.scale_before == 1.0F),
                  "bucket {} is not packed in 16 bits", words.name);
        DSL_CHECK(destinations.empty() ||
                      tiled_numel(destinations, topology_.node_count()) == words.numel,
                  "the destinations of bucket {} do not end at its {} elements", words.name,
                  words.numel);
        DSL_CHECK(group_.is_posted(words.posted, topology_.local_rank, generation),
                  "bucket {} is reduced before generation {} is posted", words.name, generation);
        group_.await_all(words.posted, generation);
        if (one_host()) {
            sum_on_host(bucket, scale);
            group_.post(words.reduced, generation);
            return;
        }
        sum_on_host(bucket, coding.scale_before);
        group_.post(words.summed, generation);
        if (!exchange_) return;
        const OneAtATime one(busy_);
        group_.await_all(words.summed, generation);
        over_link([&] {
            destinations.empty() ? reduce_for_all(bucket, scale, coding)
                                 : reduce_to_owners(bucket, scale, destinations, coding);
        });
        group_.post(words.reduced, generation);
    }

    ReducedParts await_reduced(BucketId bucket, Generation generation) override {
        const int writers = one_host() ? topology_.local_world_size() : topology_.bridge_count();
        for (int rank = 0; rank < writers; ++rank)
            group_.await(info(bucket).reduced, rank, generation);
        return parts_of(bucket);
    }
    void reduce_on_host(BucketId bucket, Generation generation, float scale) override {
        group_.await_all(info(bucket).posted, generation);
        sum_on_host(bucket, scale);
        group_.post(info(bucket).summed, generation);
    }
    ReducedParts await_reduced_on_host(BucketId bucket, Generation generation) override {
        group_.await_all(info(bucket).summed, generation);
        return parts_of(bucket);
    }
    std::vector<const float*> await_sources(BucketId bucket, Generation generation) override {
        group_.await_all(info(bucket).posted, generation);
        std::vector<const float*> sources;
        for (int rank = 0; rank < topology_.local_world_size(); ++rank)
            sources.push_back(arena_.bucket_of_rank(bucket, rank).data());
        return sources;
    }

    void broadcast(std::span<std::byte> bytes) override {
        const OneAtATime one(busy_);
        if (!one_host() && topology_.local_rank == 0)
            over_link([&] { exchange_->broadcast(bytes); });
        group_.broadcast(bytes, 0);
    }

    void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                       std::span<const NodeRange> owned, const GatherCoding& coding) override {
        const int64_t numel = tiled_numel(owned, topology_.node_count());
        DSL_CHECK(element_bytes > 0 && numel * element_bytes == std::ssize(slice),
                  "{} elements of {} bytes do not fill the {} bytes of a slice", numel,
                  element_bytes, slice.size());
        if (!exchange_) return;
        const OneAtATime one(busy_);
        std::vector<std::vector<std::span<std::byte>>> pieces(
            static_cast<size_t>(topology_.node_count()));
        for (int node = 0; node < topology_.node_count(); ++node) {
            for (const Range& range : stream_part(owned, node, bridge_part()))
                pieces[node].push_back(
                    slice.subspan(static_cast<size_t>(range.begin * element_bytes),
                                  static_cast<size_t>(range.numel * element_bytes)));
        }
        over_link([&] {
            coding.packing == WirePacking::kNone ? exchange_->gather(pieces)
                                                 : exchange_->gather_packed(pieces, coding);
        });
    }

    void swap_over_hosts(std::span<const std::span<const std::byte>> sends,
                         std::span<const std::span<std::byte>> receives) override {
        DSL_CHECK(exchange_.has_value(), "rank {} is not a bridge to other hosts",
                  topology_.rank());
        const OneAtATime one(busy_);
        over_link([&] { exchange_->swap(sends, receives); });
    }
    std::vector<std::string> all_gather(std::string_view mine) override {
        const OneAtATime one(busy_);
        std::vector<std::string> local = group_.all_gather(mine);
        if (one_host()) return local;
        return gather_over_hosts(local);
    }
    void sum_ordered(std::span<double> values) override {
        const std::string_view mine(reinterpret_cast<const char*>(values.data()),
                                    values.size_bytes());
        const std::vector<std::string> all = all_gather(mine);
        for (size_t rank = 0; rank < all.size(); ++rank) {
            DSL_CHECK(all[rank].size() == mine.size(),
                      "rank {} sums {} bytes, but this rank sums {}", rank, all[rank].size(),
                      mine.size());
        }
        for (size_t i = 0; i < values.size(); ++i) {
            double sum = 0;
            for (const std::string& theirs : all) {
                double term = 0;
                std::memcpy(&term, theirs.data() + i * sizeof term, sizeof term);
                sum += term;
            }
            values[i] = sum;
        }
    }

    void barrier() override {
        const OneAtATime one(busy_);
        group_.barrier();
        if (one_host()) return;
        if (topology_.local_rank == 0) over_link([&] { (void)exchange_->all_gather({}); });
        group_.barrier();
    }

    void poison(std::string_view text) override {
        group_.poison(text);
        if (exchange_) exchange_->abort(text);
    }
    TrafficTable traffic() const override {
        return exchange_ ? exchange_->traffic() : TrafficTable{};
    }

  private:
    [[nodiscard]] const ArenaLayout::Bucket& info(BucketId bucket) const {
        return arena_.layout().bucket(bucket);
    }
    [[nodiscard]] bool one_host() const { return topology_.node_count() == 1; }
    // Returns part PART of the bucket: its range, and its sums over the host's ranks.
    [[nodiscard]] ReducedParts::Part part_of(BucketId bucket, int part) const {
        const Range range = part_range(info(bucket).numel, {part, topology_.local_world_size()});
        return {range,
                arena_.bucket_of_rank(bucket, part)
                    .subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.numel))};
    }
    // Appends to PIECES the parts of this host's sums that lie in the range WANTED.
    void append_pieces(BucketId bucket, const Range& wanted, Pieces& pieces) const {
        for (int part = 0; part < topology_.local_world_size(); ++part) {
            const Range both = intersect(part_of(bucket, part).range, wanted);
            if (both.numel > 0)
                pieces.push_back(
                    arena_.bucket_of_rank(bucket, part)
                        .subspan(static_cast<size_t>(both.begin), static_cast<size_t>(both.numel)));
        }
    }

    // Returns this bridge's part of the sums that go to OWNER. OWNER is a node or kEveryNode.
    [[nodiscard]] Pieces pieces_for(BucketId bucket, std::span<const NodeRange> destinations,
                                    int owner) const {
        Pieces pieces;
        for (const Range& range : stream_part(destinations, owner, bridge_part()))
            append_pieces(bucket, range, pieces);
        return pieces;
    }
    // Reduces each range to its owner. Ranges that every node needs are summed in place, but only
    // after their chunks have been sent to all nodes. Therefore these ranges come first in each
    // stream, and have the same place in all streams.
    void reduce_to_owners(BucketId bucket, float scale, std::span<const NodeRange> destinations,
                          const ReduceCoding& coding) {
        const Pieces every = pieces_for(bucket, destinations, kEveryNode);
        if (coding.packing == WirePacking::kNone) {
            std::vector<Pieces> streams(static_cast<size_t>(topology_.node_count()), every);
            for (int node = 0; node < topology_.node_count(); ++node)
                for (const std::span<float>& piece : pieces_for(bucket, destinations, node))
                    streams[node].push_back(piece);
            return exchange_->reduce_to_owners(streams, scale);
        }
        if (!coding.exact.empty()) {
            std::vector<NodeRange> exact = parts_of_ranges(destinations, coding.exact, true);
            std::erase_if(exact, [](const NodeRange& of) { return of.node == kEveryNode; });
            std::vector<Pieces> streams;
            for (int node = 0; node < topology_.node_count(); ++node)
                streams.push_back(pieces_for(bucket, exact, node));
            exchange_->reduce_to_owners(streams, scale);
        }
        const std::vector<NodeRange> packed = parts_of_ranges(destinations, coding.exact, false);
        std::vector<OwnerStream> streams;
        for (int node = 0; node < topology_.node_count(); ++node)
            streams.push_back({every, pieces_for(bucket, packed, node)});
        ReduceCoding of_bridge = coding;
        of_bridge.seed += static_cast<uint32_t>(topology_.local_rank) * 0x85EBCA77U;
        exchange_->reduce_packed(streams, scale, of_bridge);
    }

    // Gives all sums to every host.
    void reduce_for_all(BucketId bucket, float scale, const ReduceCoding& coding) {
        const NodeRange whole{{0, info(bucket).numel}, kEveryNode};
        const auto bridge_pieces = [&](std::span<const NodeRange> ranges) {
            return pieces_for(bucket, ranges, kEveryNode);
        };
        if (coding.packing == WirePacking::kNone) {
            const Pieces pieces = bridge_pieces({&whole, 1});
            return exchange_->reduce(pieces, scale);
        }
        const Pieces exact = bridge_pieces(parts_of_ranges({&whole, 1}, coding.exact, true));
        exchange_->reduce(exact, scale);
        const Pieces packed = bridge_pieces(parts_of_ranges({&whole, 1}, coding.exact, false));
        exchange_->reduce_packed_for_all(packed, scale, coding);
    }

    // Returns this bridge's part of work that all bridges of a host divide among them.
    [[nodiscard]] PartOf bridge_part() const {
        return {topology_.local_rank, topology_.bridge_count()};
    }
    void sum_on_host(BucketId bucket, float scale) {
        const Range mine = part_of(bucket, topology_.local_rank).range;
        if (mine.numel == 0) return;
        if (topology_.local_world_size() == 1 && scale == 1.0F) return;
        std::vector<const float*> sources;
        for (int rank = 0; rank < topology_.local_world_size(); ++rank)
            sources.push_back(arena_.bucket_of_rank(bucket, rank).data() + mine.begin);
        // Only this rank reads part `local_rank` of the ranks' slices, so its sum may overwrite the
        // part in its own slice.
        float* const out = arena_.bucket_of_rank(bucket, topology_.local_rank).data() + mine.begin;
        kernels::ordered_sum(sources, scale, out, mine.numel);
    }

    // Returns the parts of the bucket: each local rank has summed one part, in its own slice.
    [[nodiscard]] ReducedParts parts_of(BucketId bucket) const {
        ReducedParts result{.numel = info(bucket).numel, .parts = {}};
        for (int part = 0; part < topology_.local_world_size(); ++part) {
            const ReducedParts::Part view = part_of(bucket, part);
            if (view.range.numel > 0) result.parts.push_back(view);
        }
        return result;
    }
    [[nodiscard]] std::vector<std::string> gather_over_hosts(
        const std::vector<std::string>& local) {
        std::string packed;
        if (topology_.local_rank == 0) {
            WireWriter writer;
            for (const std::string& one : local) writer.string(one);
            over_link([&] {
                for (const std::string& host : exchange_->all_gather(writer.bytes()))
                    packed += host;
            });
        }
        uint64_t packed_bytes = packed.size();
        group_.broadcast(std::as_writable_bytes(std::span(&packed_bytes, 1)), 0);
        packed.resize(packed_bytes);
        group_.broadcast(std::as_writable_bytes(std::span(packed)), 0);
        WireReader reader(packed, "all_gather");
        std::vector<std::string> all;
        for (int rank = 0; rank < topology_.world_size(); ++rank) all.push_back(reader.string());
        return all;
    }

    // Runs an ACTION that communicates with other hosts. If it fails, poisons this host's ranks.
    template <typename Action>
    void over_link(Action&& action) {
        try {
            action();
        } catch (const Error& error) {
            poison(error.what());
            throw;
        }
    }

    // Cuts the link when this host is poisoned. A rank that waits for another host does not notice
    // the poison itself, so this runs in a thread of its own.
    void watch(const std::stop_token& stop) {
        // Waits in short slices. A stop that comes just before a wait is noticed after one slice.
        constexpr auto kSlice = std::chrono::milliseconds(50);
        while (!stop.stop_requested()) {
            if (!group_.wait_for_poison(kSlice)) continue;
            exchange_->abort(group_.poison_text());
            return;
        }
    }

    Topology topology_;
    const Arena& arena_;
    HostGroup& group_;
    std::optional<HostExchange> exchange_;
    std::atomic<bool> busy_{false};
    std::jthread watcher_;  // bridges only; ends before the members it uses
};

}  // namespace

std::unique_ptr<Collectives> make_collectives(CollectivesParts parts) {
    return std::make_unique<HierarchicalCollectives>(std::move(parts));
}

}  // namespace dslaunch::runtime
