#include "worker/plan_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "plan/slot_cache.h"
#include "storage/disk_facts.h"
#include "storage/io_settings.h"

namespace dslaunch {
namespace {

// What `dslaunch io-bench` measured on the disks of the offload, all of them together.
struct DiskRates {
    double read_bytes_per_s = 0;  // 0: not known
    double write_bytes_per_s = 0;
};

DiskRates stored_rates(const OffloadConfig& config) {
    DiskRates rates;
    for (const std::string& folder : config.nvme_paths) {
        std::string id;
        try {
            id = disk_facts(folder).id;
        } catch (const Error&) {
            return {};  // a plan may be for other machines: the folder need not be here
        }
        const auto stored = stored_io_settings(io_settings_path(), id);
        if (!stored || stored->read_bytes_per_s <= 0 || stored->write_bytes_per_s <= 0) return {};
        rates.read_bytes_per_s += stored->read_bytes_per_s;
        rates.write_bytes_per_s += stored->write_bytes_per_s;
    }
    return rates;
}

// Of all bytes of a step at the stored rates: reading and writing share the disk.
std::optional<double> disk_ms(const SlotTraffic& traffic, const DiskRates& rates) {
    if (rates.read_bytes_per_s <= 0) return std::nullopt;
    return 1e3 * (traffic.read_bytes / rates.read_bytes_per_s +
                  traffic.written_bytes / rates.write_bytes_per_s);
}

// 2, what the config says, doubled from 4 on, all.
std::set<int64_t> slot_numbers(int64_t chunks, int64_t configured) {
    std::set<int64_t> numbers{std::min<int64_t>(2, chunks), configured, chunks};
    for (int64_t slots = 4; slots < chunks; slots *= 2) numbers.insert(slots);
    return numbers;
}

struct Row {
    int64_t slots = 0;
    std::string rule;
    SlotTraffic traffic;
};

std::vector<Row> rows_of(const JobSetup& setup) {
    const StepPlan& plan = setup.plan;
    const SlotTrace trace = slot_trace(plan, setup.plan_options.chunk_format());
    std::vector<Row> rows;
    for (const int64_t slots : slot_numbers(std::ssize(plan.chunks.turns), plan.chunk_slots)) {
        StepPlanOptions options = setup.plan_options;
        options.offload.slots = slots;
        rows.push_back(
            {slots, "plan", planned_slots(make_step_plan(setup.info, setup.layout, options))});
        for (const EvictionRule rule : kEvictionRules)
            rows.push_back(
                {slots, std::string(eviction_rule_name(rule)), simulate_slots(trace, rule, slots)});
    }
    return rows;
}

int64_t slot_bytes(const JobSetup& setup, const StepPlan& plan) {
    int64_t bytes = 0;
    for (const StateChunk& chunk : plan.chunks.all)
        bytes = std::max(bytes, chunk_layout(chunk, setup.plan_options.chunk_format()).bytes);
    return bytes;
}

std::string table_of(const JobSetup& setup, const std::vector<Row>& rows, const DiskRates& rates) {
    std::string text = fmt::format(
        "{} chunks pass in a step, {} in memory at once (offload_optimizer.buffer_count), {} each\n"
        "{:>6} {:<7} {:>9} {:>9} {:>14} {:>14} {:>9}\n",
        setup.plan.chunks.turns.size(), setup.plan.chunk_slots,
        to_text(Bytes{slot_bytes(setup, setup.plan)}), "slots", "rule", "uses", "hits",
        "bytes read", "bytes written", "disk ms");
    for (const Row& row : rows) {
        const std::optional<double> ms = disk_ms(row.traffic, rates);
        text += fmt::format("{:>6} {:<7} {:>9.0f} {:>9.1f} {:>14.0f} {:>14.0f} {:>9}\n", row.slots,
                            row.rule, row.traffic.uses, row.traffic.hits, row.traffic.read_bytes,
                            row.traffic.written_bytes, ms ? fmt::format("{:.1f}", *ms) : "-");
    }
    if (rates.read_bytes_per_s > 0) {
        text += fmt::format(
            "disk ms: {:.2f} GB/s read, {:.2f} GB/s written, as `dslaunch io-bench` stored them\n",
            rates.read_bytes_per_s / 1e9, rates.write_bytes_per_s / 1e9);
    } else {
        text +=
            "disk ms: not known; `dslaunch io-bench FOLDER` measures and stores a disk's rates\n";
    }
    return text;
}

std::string json_of(const JobSetup& setup, const std::vector<Row>& rows, const DiskRates& rates) {
    JsonWriter json;
    json.begin_object().field("chunks", setup.plan.chunks.turns.size());
    json.field("slots", setup.plan.chunk_slots);
    json.field("slot_bytes", slot_bytes(setup, setup.plan)).key("rows").begin_array();
    for (const Row& row : rows) {
        json.begin_object().field("slots", row.slots).field("rule", row.rule);
        json.field("uses", row.traffic.uses).field("hits", row.traffic.hits);
        json.field("read_bytes", row.traffic.read_bytes);
        json.field("written_bytes", row.traffic.written_bytes).key("disk_ms");
        if (const auto ms = disk_ms(row.traffic, rates)) {
            json.value(*ms);
        } else {
            json.null();
        }
        json.end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

}  // namespace

std::string compare_caches(const JobSetup& setup, bool json) {
    if (setup.plan.chunks.turns.empty())
        fail(ExitCode::kConfig,
             "--compare cache: nothing passes between memory and disk; set "
             "zero_optimization.offload_optimizer (stage 1 to 3) or offload_param (stage 3) to "
             "device nvme with an nvme_path");
    const DiskRates rates = stored_rates(setup.config().offload);
    const std::vector<Row> rows = rows_of(setup);
    return json ? json_of(setup, rows, rates) : table_of(setup, rows, rates);
}

}  // namespace dslaunch
