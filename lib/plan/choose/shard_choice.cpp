#include "plan/choose/shard_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "base/text/words.h"
#include "plan/step/link_bytes.h"

namespace dslaunch::plan {
namespace {

constexpr double kDifference = 0.05;  // costs that differ by less count as equal
// At stage 3, parameters are gathered twice: for the forward and for the backward.
constexpr int64_t kGathers = 2;

struct DiskLoad {
    Bytes read;
    Bytes written;
    int64_t extents = 0;
};

DiskLoad load_of(const StateChunks& chunks, const StepPlanOptions& options) {
    const ChunkFormat format = options.chunk_format();
    DiskLoad load;
    for (const StateChunk& chunk : chunks.all) {
        const ChunkLayout layout = chunk_layout(chunk, format);
        if (layout.bytes == 0) continue;
        ++load.extents;
        if (chunk.parameters_on_disk())
            load.read += Bytes{chunk.range.numel * format.parameter_bytes * kGathers};
        if (chunk.turn < 0) continue;
        const Bytes sums{layout.sum_bytes * options.accumulation_steps};
        load.read += Bytes{layout.disk_read()} + sums;
        load.written += Bytes{layout.disk_written()} + sums;
    }
    return load;
}

void add_disk_loads(ShardCost& cost, const FlatLayout& layout, const Partition& partition,
                    const StepPlanOptions& options, std::span<const int> node_sizes) {
    std::vector<int> order(static_cast<size_t>(layout.trained_buckets));
    std::iota(order.begin(), order.end(), 0);
    int first = 0;  // the host's first rank among the ranks that shard
    for (const int ranks : node_sizes) {
        DiskLoad host;
        for (int rank = first; rank < first + ranks; ++rank) {
            const DiskLoad load =
                load_of(make_state_chunks(layout, &partition,
                                          {rank, options.stage, options.offload, order}),
                        options);
            host.read += load.read;
            host.written += load.written;
            cost.extents_max = std::max(cost.extents_max, load.extents);
        }
        if (options.copies() == 1) first += ranks;
        if (host.read + host.written <= cost.moved()) continue;
        cost.read = host.read;
        cost.written = host.written;
    }
}

void add_sent(ShardCost& cost, const FlatLayout& layout, const StepPlanOptions& options) {
    StepPlanOptions node = options;
    node.rank = 0;
    for (const int ranks : options.node_sizes) {
        const LinkBytes links(layout, node);
        Bytes sent;
        for (int b = 0; b < layout.trained_buckets; ++b)
            sent += links.sent_by_reduce(b) +
                    links.sent_by_gather(b) * (options.stage == 3 ? kGathers : 1);
        cost.sent = std::max(cost.sent, sent);
        node.rank += ranks;
    }
}

// Returns the numbers by which two ways of sharding are compared, the most important first.
std::array<double, 3> measures(const ShardCost& cost) {
    return {static_cast<double>(cost.moved().value), static_cast<double>(cost.balance.numel_max),
            static_cast<double>(cost.sent.value)};
}

bool better(const ShardCost& a, const ShardCost& b) {
    const auto of_a = measures(a);
    const auto of_b = measures(b);
    for (size_t i = 0; i < of_a.size(); ++i) {
        if (of_a[i] < of_b[i] * (1 - kDifference)) return true;
        if (of_b[i] < of_a[i] * (1 - kDifference)) return false;
    }
    return false;
}

}  // namespace

std::vector<ShardCost> shard_costs(const ModelInfo& model, const FlatLayout& layout,
                                   const StepPlanOptions& options) {
    DSL_CHECK(options.stage > 0, "nothing is sharded at stage {}", options.stage);
    std::vector<int> node_sizes = options.node_sizes;
    if (node_sizes.empty()) node_sizes = {options.world_size};
    std::vector<ShardCost> costs;
    for (size_t kind = 0; kind < kShardKinds; ++kind) {
        ShardCost cost;
        cost.by = static_cast<ShardBy>(kind);
        const Partition partition = make_partition(layout, model, cost.by, options.shard_ranks());
        cost.balance = balance_of(partition);
        StepPlanOptions with = options;
        with.partition = &partition;
        if (options.offload.any()) add_disk_loads(cost, layout, partition, with, node_sizes);
        if (options.node_count() > 1) add_sent(cost, layout, with);
        costs.push_back(cost);
    }
    return costs;
}

ShardBy choose_shard(std::span<const ShardCost> costs) {
    DSL_CHECK(!costs.empty() && costs.front().by == ShardBy::kFlat,
              "the first way of sharding to compare must be `flat`");
    const ShardCost* best = &costs.front();
    for (const ShardCost& cost : costs)
        if (better(cost, *best)) best = &cost;
    return best->by;
}

std::string shard_reason(std::span<const ShardCost> costs, ShardBy by, const DiskRates& rates,
                         const std::string& folder) {
    const bool offloaded = costs.front().moved().value > 0;
    bool timed = false;
    std::string all;
    for (const ShardCost& cost : costs) {
        all += fmt::format("{}{} ", all.empty() ? "" : ", ", shard_by_name(cost.by));
        const auto seconds = rates.seconds(static_cast<double>(cost.read.value),
                                           static_cast<double>(cost.written.value));
        timed = offloaded && seconds.has_value();
        if (timed) {
            all += fmt::format("{:.3g} s", *seconds);
        } else if (offloaded) {
            all += to_text(cost.moved());
        }
        all += fmt::format("{}{} elements", offloaded ? " and " : "", cost.balance.numel_max);
    }
    const ShardCost& chosen = costs[static_cast<size_t>(by)];
    const bool tie = std::none_of(costs.begin(), costs.end(),
                                  [&](const ShardCost& cost) { return better(chosen, cost); });
    std::string text = fmt::format(
        "{} ({}), by {} per step: {}", shard_by_name(by),
        tie ? "no other way is better" : "the least",
        offloaded ? "the disk traffic of the busiest host and the number of elements on the rank "
                    "that updates the most"
                  : "the number of elements on the rank that updates the most",
        all);
    if (offloaded && !timed)
        text += fmt::format(
            "; the speed of the disk is not known; `dslaunch io-bench {}` measures and stores it",
            shell_word(folder));
    return text;
}

}  // namespace dslaunch::plan
