#include "worker/plan/plan_reports.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "job/files/stored_rates.h"
#include "plan/choose/shard_choice.h"
#include "plan/predict/swap_traffic.h"

namespace dslaunch::worker {
namespace {

// Returns the time that all bytes of a step take at the stored rates; nullopt if no rates are
// known.
std::optional<double> disk_ms(const plan::SwapTraffic& traffic, const plan::DiskRates& rates) {
    const std::optional<double> seconds = rates.seconds(traffic.read_bytes, traffic.written_bytes);
    return seconds ? std::optional(1e3 * *seconds) : std::nullopt;
}

// Returns the numbers of buffers to compare: 2, the config's number, powers of two from 4 on, and
// the number of all chunks.
std::set<int64_t> buffer_numbers(int64_t chunks, int64_t configured) {
    std::set<int64_t> numbers{std::min<int64_t>(2, chunks), configured, chunks};
    for (int64_t buffers = 4; buffers < chunks; buffers *= 2) numbers.insert(buffers);
    return numbers;
}

struct Row {
    int64_t buffers = 0;
    std::string rule;
    plan::SwapTraffic traffic;
};

std::vector<Row> rows_of(const job::JobSetup& setup) {
    const plan::StepPlan& plan = setup.plan;
    const plan::ChunkFormat format = setup.plan_options.chunk_format();
    const plan::SwapTrace trace = plan::swap_trace(plan, format);
    std::vector<Row> rows;
    for (const int64_t buffers : buffer_numbers(std::ssize(plan.chunks.turns), plan.swap_buffers)) {
        plan::StepPlanOptions options = setup.plan_options;
        options.offload.swap_buffers = buffers;
        for (const auto& [name, rule] :
             {std::pair{"fifo, lru", EvictionRule::kFifo}, {"lfu", EvictionRule::kLfu}}) {
            options.offload.eviction = rule;
            const plan::StepPlan other = plan::make_step_plan(setup.info, setup.layout, options);
            rows.push_back({buffers, name, plan::planned_swaps(other, format)});
        }
        rows.push_back({buffers, "least", plan::least_swaps(trace, buffers)});
    }
    return rows;
}

int64_t buffer_bytes(const job::JobSetup& setup, const plan::StepPlan& plan) {
    int64_t bytes = 0;
    for (const plan::StateChunk& chunk : plan.chunks.all)
        bytes = std::max(bytes, plan::chunk_layout(chunk, setup.plan_options.chunk_format()).bytes);
    return bytes;
}

// The bytes of gradient sums that a step reads from and writes to separate buffers. They are the
// same for all cache rules.
struct SumTraffic {
    int64_t read_bytes = 0;
    int64_t written_bytes = 0;
};
SumTraffic sum_traffic(const job::JobSetup& setup) {
    SumTraffic sums;
    for (const plan::Instruction& instruction : setup.plan.instructions) {
        if (instruction.sum_buffer < 0) continue;
        const int64_t bytes = plan::chunk_layout(setup.plan.chunks.all[instruction.chunk],
                                                 setup.plan_options.chunk_format())
                                  .sum_bytes;
        if (instruction.op == plan::Op::kRead) sums.read_bytes += bytes;
        if (instruction.op == plan::Op::kWrite) sums.written_bytes += bytes;
    }
    return sums;
}

std::string table_of(const job::JobSetup& setup, const std::vector<Row>& rows,
                     const plan::DiskRates& rates) {
    std::string text = fmt::format(
        "{} chunks pass through memory in a step, {} at a time (offload_optimizer.buffer_count), "
        "{} each\n{:>7} {:<9} {:>9} {:>9} {:>14} {:>14} {:>9}\n",
        setup.plan.chunks.turns.size(), setup.plan.swap_buffers,
        to_text(Bytes{buffer_bytes(setup, setup.plan)}), "buffers", "rule", "uses", "hits",
        "bytes read", "bytes written", "disk ms");
    for (const Row& row : rows) {
        const std::optional<double> ms = disk_ms(row.traffic, rates);
        text +=
            fmt::format("{:>7} {:<9} {:>9.0f} {:>9.1f} {:>14.0f} {:>14.0f} {:>9}\n", row.buffers,
                        row.rule, row.traffic.uses, row.traffic.hits, row.traffic.read_bytes,
                        row.traffic.written_bytes, ms ? fmt::format("{:.1f}", *ms) : "-");
    }
    if (const SumTraffic sums = sum_traffic(setup); sums.written_bytes > 0)
        text += fmt::format(
            "with every rule, a step also reads {} bytes and writes {} bytes of gradients: they "
            "wait on disk until the gradient norm is known\n",
            sums.read_bytes, sums.written_bytes);
    text +=
        "least: the fewest bytes that any rule can move. Only a rule that knows all later uses "
        "moves so few\n";
    if (rates.read_bytes_per_s > 0) {
        text += fmt::format(
            "disk ms: at {:.2f} GB/s read, {:.2f} GB/s written, the rates that `dslaunch io-bench` "
            "stored\n",
            rates.read_bytes_per_s / 1e9, rates.write_bytes_per_s / 1e9);
    } else {
        text +=
            "disk ms: not known; `dslaunch io-bench FOLDER` measures and stores a disk's rates\n";
    }
    return text;
}

std::string json_of(const job::JobSetup& setup, const std::vector<Row>& rows,
                    const plan::DiskRates& rates) {
    JsonWriter json;
    json.begin_object().field("chunks", setup.plan.chunks.turns.size());
    json.field("buffers", setup.plan.swap_buffers);
    json.field("buffer_bytes", buffer_bytes(setup, setup.plan));
    const SumTraffic sums = sum_traffic(setup);
    json.field("sum_read_bytes", sums.read_bytes);
    json.field("sum_written_bytes", sums.written_bytes).key("rows").begin_array();
    for (const Row& row : rows) {
        json.begin_object().field("buffers", row.buffers).field("rule", row.rule);
        json.field("uses", row.traffic.uses).field("hits", row.traffic.hits);
        json.field("read_bytes", row.traffic.read_bytes);
        json.field("written_bytes", row.traffic.written_bytes);
        // JSON gets null if the time is not known.
        json.field("disk_ms", disk_ms(row.traffic, rates).value_or(NAN)).end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

}  // namespace

std::string compare_shards(const job::JobSetup& setup, bool in_json) {
    plan::StepPlanOptions options = setup.plan_options;
    options.stage = std::max(1, options.stage);  // stage 0 is compared as if it were sharded
    const std::vector<plan::ShardCost> costs = plan::shard_costs(setup.info, setup.layout, options);
    const plan::DiskRates rates = job::stored_rates(setup.config().offload);
    JsonWriter json;
    json.begin_object().field("world_size", setup.plan_options.world_size);
    json.field("elements", setup.layout.numel).key("shards").begin_array();
    std::string text = fmt::format(
        "{} elements, with padding, are divided among {} ranks{}. Largest and smallest bytes: the "
        "size of a rank's part in fp32. Disk bytes and seconds: for one step, on the host with the "
        "most disk traffic\n{:<8} {:>14} {:>14} {:>10} {:>8} {:>14} {:>14} {:>8} {:>14} {:>8}\n",
        setup.layout.numel, options.shard_ranks(), options.copies() > 1 ? " of each copy" : "",
        "shard", "largest bytes", "smallest bytes", "imbalance", "pieces", "disk read",
        "disk written", "extents", "sent", "disk s");
    for (const plan::ShardCost& cost : costs) {
        const plan::PartitionBalance& balance = cost.balance;
        const auto seconds = rates.seconds(static_cast<double>(cost.read.value),
                                           static_cast<double>(cost.written.value));
        text += fmt::format(
            "{:<8} {:>14} {:>14} {:>10.3f} {:>8} {:>14} {:>14} {:>8} {:>14} {:>8}\n",
            shard_by_name(cost.by), balance.numel_max * 4, balance.numel_min * 4, balance.imbalance,
            balance.pieces, cost.read.value, cost.written.value, cost.extents_max, cost.sent.value,
            seconds ? fmt::format("{:.3f}", *seconds) : "-");
        json.begin_object().field("shard", shard_by_name(cost.by));
        json.field("bytes_max", balance.numel_max * 4).field("bytes_min", balance.numel_min * 4);
        json.field("imbalance", balance.imbalance).field("pieces", balance.pieces);
        json.field("disk_read_bytes", cost.read.value)
            .field("disk_written_bytes", cost.written.value);
        json.field("extents", cost.extents_max).field("sent_bytes", cost.sent.value);
        json.field("disk_s", seconds.value_or(NAN)).end_object();
    }
    const std::string best(shard_by_name(plan::choose_shard(costs)));
    json.end_array().field("auto", best).end_object();
    text += fmt::format("dslaunch.shard auto would choose {}\n", best);
    return in_json ? json.text() + "\n" : text;
}

std::string compare_caches(const job::JobSetup& setup, bool json) {
    if (setup.plan.chunks.turns.empty())
        fail(ExitCode::kConfig,
             "--compare cache: nothing passes between memory and disk; set "
             "zero_optimization.offload_optimizer (stage 1 to 3) or offload_param (stage 3) to "
             "device nvme with an nvme_path");
    const plan::DiskRates rates = job::stored_rates(setup.config().offload);
    const std::vector<Row> rows = rows_of(setup);
    return json ? json_of(setup, rows, rates) : table_of(setup, rows, rates);
}

}  // namespace dslaunch::worker
