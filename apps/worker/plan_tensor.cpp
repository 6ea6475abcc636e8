#include "worker/plan_tensor.h"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "graph/index_limits.h"
#include "graph/tensor/tensor_check.h"
#include "graph/tensor/thread_group.h"

namespace dslaunch {

namespace {

constexpr const char* kNotYet = "training with tensor or sequence parallelism is not available yet";

TensorModel rewritten(const JobSetup& setup, const LoweredGraph& lowered, const GraphInputs& inputs,
                      const TensorRequest& request) {
    return request.sequence
               ? make_sequence_parallel(*setup.model, lowered, inputs, request.rules.size)
               : make_tensor_parallel(*setup.model, lowered, inputs, request.rules);
}

// A micro batch of the data, or tokens of all kinds where none are named.
std::vector<c10::IValue> first_batch(const JobSetup& setup) {
    const BatchConfig& batch = setup.config().batch;
    if (setup.data) {
        std::vector<int64_t> samples(
            static_cast<size_t>(std::min(batch.micro_rows, setup.data->train.rows())));
        std::iota(samples.begin(), samples.end(), 0);
        return setup.data->train.batch(samples);
    }
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

TensorModel split_for_run(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                          const TensorRequest& request) {
    const at::NoGradGuard no_grad;
    const LoweredGraph& lowered = setup.segmented->lowered();
    GraphInputs inputs;
    inputs.arguments = setup.segmented->first_inputs(batch);
    for (const ModelParameter& parameter : setup.model->parameters()) {
        const at::Tensor tensor = parameter.tensor.detach();
        inputs.parameters.push_back(
            tensor.scalar_type() == at::kFloat ? tensor.to(lowered.compute_dtype) : tensor);
    }
    for (const ModelBuffer& buffer : setup.model->buffers())
        inputs.buffers.push_back(buffer.tensor);
    return rewritten(setup, lowered, inputs, request);
}

// The same rules on the graph in fp64, with ranks as threads.
TensorCheck check_rules(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                        const TensorRequest& request) {
    LowerOptions options;
    options.loss = setup.config().loss;
    const LoweredGraph lowered = in_double(lower(*setup.model, options));
    const GraphInputs inputs = inputs_in_double(*setup.model, setup.segmented->first_inputs(batch));
    const TensorModel tensor = rewritten(setup, lowered, inputs, request);
    const TensorReference reference = run_reference(*setup.model, lowered, inputs);
    TensorCheck result;
    run_tensor_ranks(request.rules.size, [&](TensorGroup& group) {
        const TensorCheck mine =
            check_tensor_model({*setup.model, lowered, tensor, inputs, reference}, group);
        if (group.rank() == 0) result = mine;
    });
    return result;
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
    json.begin_object().field("size", plan.size).field("note", kNotYet);
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
    return split_for_run(setup, first_batch(setup), request).plan;
}

std::string tensor_report(const JobSetup& setup, const TensorRequest& request) {
    const std::vector<c10::IValue> batch = first_batch(setup);
    const TensorPlan plan = split_for_run(setup, batch, request).plan;
    std::optional<TensorCheck> check;
    if (request.check) check = check_rules(setup, batch, request);
    if (request.json) return report_json(plan, check ? &*check : nullptr);
    std::string text = tensor_plan_text(plan);
    if (check)
        text += fmt::format(
            "checked in fp64 on one micro batch, {} ranks as threads: loss and gradients are off "
            "by {:.2g} of the largest at most ({}), rounding explains {:.2g}\n",
            plan.size, check->difference, check->where, check->bound);
    return text + kNotYet + "\n";
}

}  // namespace dslaunch
