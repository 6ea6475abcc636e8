#include "config/run/elastic_batch.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace dslaunch::config {
namespace {

// Numbers with more divisors than any smaller number. If a batch is a micro batch times one of
// these numbers, many different numbers of ranks can share it.
constexpr std::array<int64_t, 38> kFactors = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

// The limits of the search for a batch. Counts are numbers of ranks in version 0.1, and numbers of
// nodes in version 0.2.
struct Limits {
    int64_t rows_max, count_min, count_max;
};

int64_t copies_per_node(const ElasticityConfig& config) {
    return config.counts_nodes ? std::max<int64_t>(1, config.ranks_per_node / config.ranks_of_copy)
                               : 1;
}

// Returns the limits of CONFIG. Version 0.1 counts ranks, and version 0.2 counts nodes. If
// ranks_max is too small for one node, the count is limited only by the batch.
Limits limits_of(const ElasticityConfig& config) {
    Limits limits{elastic_rows_limit(config), config.ranks_min, config.ranks_max};
    if (config.counts_nodes) {
        limits.count_min = std::max<int64_t>(1, config.ranks_min / config.ranks_per_node);
        limits.count_max = config.ranks_max / config.ranks_per_node;
    }
    if (limits.count_max == 0)
        limits.count_max = limits.rows_max / *std::ranges::min_element(config.micro_rows);
    return limits;
}

// Multiplies BASE by the numbers in kFactors, and returns the largest product up to ROWS_MAX.
// REQUIRES: BASE <= ROWS_MAX.
int64_t largest_batch(int64_t base, int64_t rows_max) {
    if (base == rows_max) return base;
    const auto next = std::ranges::upper_bound(kFactors, rows_max / base);
    return *(next - 1) * base;
}

// Adds the divisors of NUMBER within LIMITS to COUNTS.
void add_divisors(int64_t number, const Limits& limits, std::set<int64_t>& counts) {
    const auto add = [&](int64_t divisor) {
        if (limits.count_min <= divisor && divisor <= limits.count_max) counts.insert(divisor);
    };
    for (int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
        if (number % divisor != 0) continue;
        add(divisor);
        add(number / divisor);
    }
}

// Returns the numbers of ranks or nodes that can share ROWS in whole micro batches.
std::set<int64_t> counts_for(int64_t rows, const std::vector<int64_t>& micro_rows,
                             const Limits& limits) {
    std::set<int64_t> counts;
    for (const int64_t micro : micro_rows)
        if (rows % micro == 0) add_divisors(rows / micro, limits, counts);
    return counts;
}

// Returns the numbers whose multiples are considered: the micro batches, and their least common
// multiple.
std::set<int64_t> bases_of(const std::vector<int64_t>& micro_rows, int64_t rows_max) {
    std::set<int64_t> bases(micro_rows.begin(), micro_rows.end());
    int64_t common = 1;
    for (const int64_t micro : micro_rows) {
        common = std::lcm(common, micro);
        if (common > rows_max) return bases;
    }
    bases.insert(common);
    return bases;
}

}  // namespace

int64_t elastic_rows_limit(const ElasticityConfig& config) {
    return config.train_rows_max / copies_per_node(config);
}

std::optional<ElasticBatch> elastic_batch(const ElasticityConfig& config) {
    const Limits limits = limits_of(config);
    ElasticBatch best;
    for (const int64_t base : bases_of(config.micro_rows, limits.rows_max)) {
        const int64_t rows = largest_batch(base, limits.rows_max);
        const std::set<int64_t> counts = counts_for(rows, config.micro_rows, limits);
        const bool is_preferred =
            config.prefers_larger ? rows > best.train_rows : rows < best.train_rows;
        if (counts.size() < best.copies.size() || counts.empty()) continue;
        if (counts.size() == best.copies.size() && !is_preferred) continue;
        best = {rows, {counts.begin(), counts.end()}};
    }
    if (best.copies.empty()) return std::nullopt;
    const int64_t per_node = copies_per_node(config);
    best.train_rows *= per_node;
    for (int64_t& copies : best.copies) copies *= per_node;
    return best;
}

std::optional<ElasticBatch> elastic_batch_for(const ElasticityConfig& config, int64_t copies) {
    const std::optional<ElasticBatch> shared = elastic_batch(config);
    if (shared && std::ranges::binary_search(shared->copies, copies)) return shared;
    if (!config.counts_nodes) return std::nullopt;
    std::optional<int64_t> chosen;
    for (const int64_t micro : config.micro_rows) {
        const int64_t rows = config.train_rows_max / (micro * copies) * (micro * copies);
        if (rows == 0) continue;
        const bool is_better = !chosen || (config.prefers_larger ? rows > *chosen : rows < *chosen);
        if (is_better) chosen = rows;
    }
    if (!chosen) return std::nullopt;
    return ElasticBatch{*chosen, {copies}};
}

std::optional<int64_t> elastic_micro_rows(const ElasticityConfig& config, const ElasticBatch& batch,
                                          int64_t copies) {
    std::optional<int64_t> largest;
    for (const int64_t micro : config.micro_rows)
        if (batch.train_rows % copies == 0 && batch.train_rows / copies % micro == 0)
            largest = std::max(largest.value_or(0), micro);
    return largest;
}

}  // namespace dslaunch::config
