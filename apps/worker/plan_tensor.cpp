#include "worker/plan_tensor.h"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "graph/index_limits.h"

namespace dslaunch {

namespace {

// A micro batch of the data, or tokens of all kinds where none are named.
std::vector<c10::IValue> first_batch(const JobSetup& setup) {
    const BatchConfig& batch = setup.config().batch;
    if (setup.data) return first_rows(setup);
    int64_t rows = setup.info.loss_classes > 0 ? setup.info.loss_classes : INT64_MAX;
    for (const ArgumentLimit& limit : argument_limits(setup.segmented->lowered(), *setup.model))
        rows = std::min(rows, limit.rows);
    constexpr int64_t kStride = 7919;  // a prime: neighbours far apart in the vocabulary
    const int64_t numel = batch.micro_rows * setup.config().data.context;
    const at::Tensor tokens = (at::arange(numel, at::kLong) * kStride)
                                  .remainder(rows == INT64_MAX ? 1 : rows)
                                  .view({batch.micro_rows, -1});
    return std::vector<c10::IValue>(setup.segmented->arguments().size(), tokens);
}

TensorPlan plan_for(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                    const TensorRequest& request) {
    return rewrite_for_group(*setup.model, setup.segmented->lowered(),
                             setup.segmented->first_inputs(batch), request)
        .plan;
}

const char* gradient_word(TensorGradient gradient) {
    switch (gradient) {
        case TensorGradient::kOwn:
            return "own";
        case TensorGradient::kComplete:
            return "complete";
        case TensorGradient::kSummand:
            return "summand";
    }
    return "";
}

void integers_json(const char* name, const std::vector<int64_t>& values, JsonWriter& json) {
    json.key(name).begin_array();
    for (const int64_t value : values) json.value(value);
    json.end_array();
}

std::string report_json(const TensorPlan& plan, const TensorCheck* check) {
    JsonWriter json;
    json.begin_object().field("size", plan.size);
    json.key("parameters").begin_array();
    for (const TensorParameter& parameter : plan.parameters) {
        json.begin_object().field("name", parameter.name);
        integers_json("sizes", parameter.sizes, json);
        json.field("rule", tensor_rule_name(parameter.rule));
        if (parameter.rule != TensorRule::kReplicated) {
            json.field("dim", parameter.shard.dim);
            integers_json("blocks", parameter.shard.blocks, json);
        }
        json.field("gradient", gradient_word(parameter.gradient)).field("why", parameter.why);
        json.end_object();
    }
    json.end_array().key("collectives").begin_array();
    for (const TensorCollective& collective : plan.collectives) {
        json.begin_object().field("kind", tensor_collective_name(collective.kind));
        json.field("at", collective.where).field("forward_bytes", collective.forward.value);
        json.field("backward_bytes", collective.backward.value).end_object();
    }
    json.end_array().key("check");
    if (check == nullptr) {
        json.null();
    } else {
        json.begin_object().field("difference", check->difference).field("where", check->where);
        json.field("bound", check->bound).end_object();
    }
    json.end_object();
    return json.text() + "\n";
}

}  // namespace

std::pair<std::string, TensorRule> parse_tensor_rule_option(const std::string& text) {
    const size_t equals = text.rfind('=');
    if (equals == text.npos)
        fail(ExitCode::kUsage,
             "--tensor-rule {}: PATTERN=RULE is wanted, as in `*.mlp.*=replicated`",
             printable(text));
    const std::string pattern = text.substr(0, equals);
    return {pattern, parse_tensor_rule(pattern, text.substr(equals + 1))};
}

TensorPlan find_tensor_plan(const JobSetup& setup, const TensorRules& rules) {
    TensorRequest request;
    request.rules = rules;
    return plan_for(setup, first_batch(setup), request);
}

std::string tensor_report(const JobSetup& setup, const TensorRequest& request, bool json) {
    const std::vector<c10::IValue> batch = first_batch(setup);
    const TensorPlan plan = plan_for(setup, batch, request);
    std::optional<TensorCheck> check;
    if (request.check)
        check = check_with_threads(setup, setup.segmented->first_inputs(batch), request);
    if (json) return report_json(plan, check ? &*check : nullptr);
    std::string text = tensor_plan_text(plan);
    if (check)
        text += fmt::format(
            "checked in fp64 on one micro batch, {} ranks as threads: loss and gradients are off "
            "by {:.2g} of the largest at most ({}), rounding explains {:.2g}\n",
            plan.size, check->difference, check->where, check->bound);
    return text;
}

}  // namespace dslaunch
