#include "plan/tensor/tensor_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "base/text/text_table.h"

namespace dslaunch::plan {

namespace {

constexpr std::array<std::string_view, 4> kRuleNames = {"column", "row", "vocabulary",
                                                        "replicated"};

// Returns the same name for equal layers: "blocks.*.qkv.weight" for "blocks.3.qkv.weight".
std::string layer_name(const std::string& name) {
    std::vector<std::string> parts = split(name, '.');
    for (std::string& part : parts)
        if (parse_int(part)) part.assign(1, '*');
    return join(parts, ".");
}

// Returns "aten::linear in *.proj" for "aten::linear in 3.proj (linear.py:14)".
std::string layer_site(const std::string& where) {
    const std::string node = where.substr(0, where.find(" ("));
    const size_t in = node.find(" in ");
    if (in == node.npos) return node;
    constexpr size_t kInLength = 4;
    return fmt::format("{} in {}", node.substr(0, in), layer_name(node.substr(in + kInLength)));
}

// Returns WHY, such as "aten::softmax in model.0.mlp (net.py:4): it needs all of what is split",
// without the layer's number and the source line.
std::string obstacle_text(const std::string& why) {
    const size_t line = why.find(" ("), reason = why.find("): ");
    if (line == why.npos || reason == why.npos || reason < line) return why;
    return layer_site(why) + why.substr(reason + 1);
}

std::string share_text(const TensorParameter& parameter) {
    if (parameter.rule == TensorRule::kReplicated) return "whole";
    const auto& blocks = parameter.shard.blocks;
    const bool equal = std::equal(blocks.begin() + 1, blocks.end(), blocks.begin());
    if (!equal) return fmt::format("dim {}: {}", parameter.shard.dim, shape_text(blocks));
    return blocks.size() == 1
               ? fmt::format("dim {}", parameter.shard.dim)
               : fmt::format("dim {}: {} x {}", parameter.shard.dim, blocks.size(), blocks.front());
}

std::string_view gradient_text(const TensorParameter& parameter) {
    constexpr std::array<std::string_view, 3> kTexts = {"own", "complete", "to be summed"};
    return parameter.trainable ? kTexts[static_cast<size_t>(parameter.gradient)] : "none";
}

using Row = std::vector<std::string>;

// Merges equal rows into one row whose first cell is their number.
std::vector<Row> count_equal(const std::vector<Row>& rows) {
    std::vector<Row> distinct;
    std::map<Row, size_t> place;
    std::vector<int64_t> counts;
    for (const Row& row : rows) {
        const auto [found, fresh] = place.try_emplace(row, distinct.size());
        if (fresh) {
            distinct.push_back(row);
            counts.push_back(0);
        }
        ++counts[found->second];
    }
    for (size_t i = 0; i < distinct.size(); ++i)
        distinct[i].insert(distinct[i].begin(), std::to_string(counts[i]));
    return distinct;
}

}  // namespace

std::string_view tensor_rule_name(TensorRule rule) {
    return kRuleNames[static_cast<size_t>(rule)];
}

std::string_view tensor_collective_name(TensorCollectiveKind kind) {
    constexpr std::array<std::string_view, 9> kNames = {"copy",    "reduce",         "gather",
                                                        "loss",    "reduce-scatter", "all-gather",
                                                        "scatter", "exchange",       "ring"};
    return kNames[static_cast<size_t>(kind)];
}

std::vector<Range> shard_ranges(const TensorShard& shard, PartOf part) {
    DSL_CHECK(part.index >= 0 && part.index < part.parts, "rank {} of {} does not exist",
              part.index, part.parts);
    std::vector<Range> ranges;
    int64_t offset = 0;
    for (const int64_t block : shard.blocks) {
        const int64_t begin = block * part.index / part.parts;
        const int64_t end = block * (part.index + 1) / part.parts;
        ranges.push_back({offset + begin, end - begin});
        offset += block;
    }
    return ranges;
}

bool divides_evenly(const TensorShard& shard, int size) {
    return std::all_of(shard.blocks.begin(), shard.blocks.end(),
                       [&](int64_t block) { return block % size == 0; });
}

Bytes TensorPlan::forward_bytes() const {
    Bytes sum;
    for (const TensorCollective& collective : collectives) sum += collective.forward;
    return sum;
}

Bytes TensorPlan::backward_bytes() const {
    Bytes sum;
    for (const TensorCollective& collective : collectives) sum += collective.backward;
    return sum;
}

std::string unproven_text(const TensorPlan& plan) {
    std::vector<Row> whole;
    for (const TensorParameter& parameter : plan.parameters)
        if (parameter.unproven)
            whole.push_back({layer_name(parameter.name), obstacle_text(parameter.why)});
    std::string text;
    for (const Row& row : count_equal(whole))
        text += fmt::format("\n  not split, whole on every rank: {}{}: {}",
                            row[0] == "1" ? "" : row[0] + " times ", row[1], row[2]);
    return text;
}

std::string tensor_plan_text(const TensorPlan& plan) {
    std::vector<Row> parameters;
    for (const TensorParameter& parameter : plan.parameters)
        parameters.push_back({layer_name(parameter.name), shape_text(parameter.sizes),
                              std::string(tensor_rule_name(parameter.rule)), share_text(parameter),
                              std::string(gradient_text(parameter)), parameter.why});
    std::vector<Row> rows = {{"", "parameter", "sizes", "rule", "split", "gradient", "why"}};
    for (Row& row : count_equal(parameters)) rows.push_back(std::move(row));
    const std::string parameter_table = text_table(rows);

    std::vector<Row> collectives;
    for (const TensorCollective& collective : plan.collectives)
        collectives.push_back({std::string(tensor_collective_name(collective.kind)),
                               to_text(collective.forward), to_text(collective.backward),
                               layer_site(collective.where)});
    std::vector<Row> sites = {{"", "collective", "forward", "backward", "at"}};
    for (Row& row : count_equal(collectives)) sites.push_back(std::move(row));
    return fmt::format("{}\n{}each micro batch needs {} collectives, {} forward, {} backward\n",
                       parameter_table, text_table(sites), plan.collectives.size(),
                       to_text(plan.forward_bytes()), to_text(plan.backward_bytes()));
}

}  // namespace dslaunch::plan
