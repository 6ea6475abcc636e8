// resolve_elastic_batch(): the section `elasticity`, which determines the batch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "config/resolve/resolve_parts.h"
#include "config/run/elastic_batch.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

constexpr const char* kEnabled = "elasticity.enabled";
constexpr const char* kRowsMax = "elasticity.max_train_batch_size";
constexpr const char* kMicroSizes = "elasticity.micro_batch_sizes";
constexpr const char* kVersion = "elasticity.version";
constexpr const char* kRanksOfCopy = "elasticity.model_parallel_size";
constexpr const char* kPerNode = "elasticity.num_gpus_per_node";
constexpr int64_t kRowsLimit = int64_t{1} << 31;

// Returns the micro batches; empty after a problem.
std::vector<int64_t> take_micro_rows(KeyReader& keys) {
    std::vector<int64_t> rows;
    const Value list = keys.take(kMicroSizes);
    for (const Value& item : list.items) {
        if (!item.is(Kind::kInt) || as_integer(item) < 1) {
            keys.problem(kMicroSizes, "must be a list of whole numbers, each at least 1");
            return {};
        }
        rows.push_back(as_integer(item));
    }
    if (rows.empty())
        keys.problem(kMicroSizes, "is empty: list the micro batches that fit into memory");
    return rows;
}

// Returns the settings; nullopt after a problem.
std::optional<ElasticityConfig> take_settings(KeyReader& keys, const RunConfig& run) {
    for (const char* path : {kRowsMax, kMicroSizes}) {
        if (keys.has(path)) continue;
        keys.problem(path, "is needed, because elasticity.enabled is true");
        return std::nullopt;
    }
    ElasticityConfig config;
    config.train_rows_max = keys.take_integer(kRowsMax);
    config.micro_rows = take_micro_rows(keys);
    config.ranks_min = keys.take_integer("elasticity.min_gpus");
    config.ranks_max = keys.take_integer("elasticity.max_gpus");
    config.ranks_per_node = keys.take_integer(kPerNode);
    config.ranks_of_copy = keys.take_integer(kRanksOfCopy);
    config.prefers_larger = keys.take_bool("elasticity.prefer_larger_batch");
    const double version = keys.take_number(kVersion);
    config.counts_nodes = version == 0.2;
    const auto problem = [&](const char* path, const std::string& text) {
        keys.problem(path, text);
        return std::nullopt;
    };
    if (config.micro_rows.empty()) return std::nullopt;
    if (version != 0.1 && version != 0.2) return problem(kVersion, "must be 0.1 or 0.2");
    if (config.train_rows_max > kRowsLimit) return problem(kRowsMax, "is larger than 2^31");
    if (config.ranks_max < config.ranks_min)
        return problem("elasticity.max_gpus",
                       fmt::format("is less than elasticity.min_gpus, {}", config.ranks_min));
    if (config.ranks_of_copy > 1 && !config.counts_nodes)
        return problem(kRanksOfCopy, "needs elasticity.version 0.2");
    if (config.ranks_of_copy > 1 && config.ranks_of_copy != run.ranks_of_copy())
        return problem(
            kRanksOfCopy,
            fmt::format("is {}, but this config divides a copy of the model among {} (pipeline "
                        "stages x dslaunch.tensor.size x dslaunch.sequence.size)",
                        config.ranks_of_copy, counted(run.ranks_of_copy(), "rank")));
    if (config.counts_nodes && config.ranks_per_node % config.ranks_of_copy != 0)
        return problem(kPerNode, fmt::format("is not a multiple of {}, {}", kRanksOfCopy,
                                             config.ranks_of_copy));
    const int64_t limit = elastic_rows_limit(config);
    if (*std::ranges::max_element(config.micro_rows) > limit)
        return problem(kMicroSizes, fmt::format("the largest micro batch, {}, is more than {}{}",
                                                *std::ranges::max_element(config.micro_rows),
                                                limit == config.train_rows_max
                                                    ? "elasticity.max_train_batch_size, "
                                                    : "elasticity.max_train_batch_size divided by "
                                                      "a node's ranks with different rows, ",
                                                limit));
    return config;
}

// Returns "1, 2, 3, 4, 6, ... (27 numbers up to 630)".
std::string counts_text(const std::vector<int64_t>& counts) {
    constexpr size_t kShown = 12;
    if (counts.size() <= kShown) return fmt::format("{}", fmt::join(counts, ", "));
    return fmt::format("{}, ... ({} numbers up to {})",
                       fmt::join(counts.begin(), counts.begin() + kShown, ", "), counts.size(),
                       counts.back());
}

// Refuses the keys of the batch, because elasticity determines the batch. If the config says that
// they are to be ignored, notes that they have no effect.
void check_batch_keys(KeyReader& keys) {
    const bool ignored = keys.take_bool("elasticity.ignore_non_elastic_batch_info");
    for (const char* path : {kTotal, kMicro, kMicroSteps}) {
        if (!keys.has(path)) continue;
        if (ignored)
            keys.unread(path, "elasticity determines the batch");
        else
            keys.problem(path,
                         "elasticity determines the batch: remove this setting, or set "
                         "elasticity.ignore_non_elastic_batch_info to true");
    }
}

// Records the batch size for COPIES ranks, each of which gets different rows. Adds a problem if no
// batch size is possible.
void solve(KeyReader& keys, RunConfig& run, const ElasticityConfig& config, int64_t copies) {
    const auto batch = elastic_batch_for(config, copies);
    const auto micro = batch ? elastic_micro_rows(config, *batch, copies) : std::nullopt;
    if (!micro) {
        const auto shared = elastic_batch(config);
        return keys.problem(
            kEnabled,
            fmt::format("{} cannot share a batch of at most {} rows: {}", counted(copies, "rank"),
                        config.train_rows_max,
                        shared ? fmt::format("{} rows can be shared by {} ranks",
                                             shared->train_rows, counts_text(shared->copies))
                               : std::string("no batch fits the limits of elasticity")));
    }
    const int64_t micro_steps = batch->train_rows / copies / *micro;
    run.batch = {batch->train_rows, *micro, micro_steps, copies};
    check_micro_steps(keys, run);
    keys.derive(kTotal, make_value(batch->train_rows),
                fmt::format("elasticity, for {} ranks", counts_text(batch->copies)), true);
    keys.derive(kMicro, make_value(*micro),
                fmt::format("the largest of {} that divides {} rows / {} ranks", kMicroSizes,
                            batch->train_rows, copies),
                true);
    keys.derive(kMicroSteps, make_value(micro_steps),
                fmt::format("{} rows / {} rows per micro step / {} ranks", batch->train_rows,
                            *micro, copies),
                true);
}

}  // namespace

bool resolve_elastic_batch(KeyReader& keys, RunConfig& run) {
    if (!keys.take_bool(kEnabled)) return false;
    check_batch_keys(keys);
    const auto config = take_settings(keys, run);
    if (!config) return true;
    if (keys.options().world_size) {
        solve(keys, run, *config,
              std::max<int64_t>(1, *keys.options().world_size / run.ranks_of_copy()));
        return true;
    }
    const std::string unknown = "needs the number of ranks (--world-size)";
    const auto shared = elastic_batch(*config);
    if (shared) {
        run.batch.train_rows = shared->train_rows;
        keys.derive(kTotal, make_value(shared->train_rows),
                    fmt::format("elasticity, for {} ranks", counts_text(shared->copies)), true);
    } else {
        keys.derive(kTotal, Value{}, unknown, true);
    }
    keys.derive(kMicro, Value{}, unknown, true);
    keys.derive(kMicroSteps, Value{}, unknown, true);
    return true;
}

}  // namespace dslaunch::config
