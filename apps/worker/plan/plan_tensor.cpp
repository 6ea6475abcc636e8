#include "worker/plan/plan_reports.h"

#include <ATen/core/ivalue.h>
#include <fmt/core.h>

#include <numeric>

#include "base/error.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/json.h"
#include "job/setup/trial_batch.h"

namespace dslaunch::worker {

namespace {

plan::TensorPlan plan_for(const job::JobSetup& setup, const std::vector<c10::IValue>& batch,
                          const job::TensorRequest& request) {
    return job::rewrite_for_group(*setup.model, setup.segmented->lowered(),
                                  setup.segmented->first_inputs(batch), request)
        .plan;
}

const char* gradient_word(plan::TensorGradient gradient) {
    switch (gradient) {
        case plan::TensorGradient::kOwn:
            return "own";
        case plan::TensorGradient::kComplete:
            return "complete";
        case plan::TensorGradient::kSummand:
            return "summand";
    }
    return "";
}

void integers_json(const char* name, const std::vector<int64_t>& values, JsonWriter& json) {
    json.key(name).begin_array();
    for (const int64_t value : values) json.value(value);
    json.end_array();
}

std::string report_json(const plan::TensorPlan& plan, const graph::TensorCheck* check) {
    JsonWriter json;
    json.begin_object().field("size", plan.size);
    json.key("parameters").begin_array();
    for (const plan::TensorParameter& parameter : plan.parameters) {
        json.begin_object().field("name", parameter.name);
        integers_json("sizes", parameter.sizes, json);
        json.field("rule", plan::tensor_rule_name(parameter.rule));
        if (parameter.rule != plan::TensorRule::kReplicated) {
            json.field("dim", parameter.shard.dim);
            integers_json("blocks", parameter.shard.blocks, json);
        }
        json.field("gradient", gradient_word(parameter.gradient)).field("why", parameter.why);
        json.end_object();
    }
    json.end_array().key("collectives").begin_array();
    for (const plan::TensorCollective& collective : plan.collectives) {
        json.begin_object().field("kind", plan::tensor_collective_name(collective.kind));
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

std::pair<std::string, plan::TensorRule> parse_tensor_rule_option(const std::string& text) {
    const size_t equals = text.rfind('=');
    if (equals == text.npos)
        fail(ExitCode::kUsage, "--tensor-rule {}: expected PATTERN=RULE, e.g. `*.mlp.*=replicated`",
             printable(text));
    const std::string pattern = text.substr(0, equals);
    return {pattern, plan::parse_tensor_rule(pattern, text.substr(equals + 1))};
}

plan::TensorPlan find_tensor_plan(const job::JobSetup& setup, const plan::TensorRules& rules) {
    job::TensorRequest request;
    request.rules = rules;
    return plan_for(setup, job::trial_batch(setup, job::TrialTokens::kSpread), request);
}

std::string tensor_report(const job::JobSetup& setup, const job::TensorRequest& request,
                          bool json) {
    const Progress progress("plan", "comparing the shared model with the whole one");
    const std::vector<c10::IValue> batch = job::trial_batch(setup, job::TrialTokens::kSpread);
    const plan::TensorPlan plan = plan_for(setup, batch, request);
    std::optional<graph::TensorCheck> check;
    if (request.check && setup.model->has_weights())
        check = job::check_with_threads(setup, setup.segmented->first_inputs(batch), request);
    if (json) return report_json(plan, check ? &*check : nullptr);
    std::string text = plan::tensor_plan_text(plan);
    if (check)
        text += fmt::format(
            "checked in fp64 on one micro batch, with {} ranks as threads: loss and gradients of "
            "the split and the whole model differ by at most {:.2g} of the largest value ({}); "
            "rounding explains a difference of up to {:.2g}\n",
            plan.size, check->difference, check->where, check->bound);
    else if (request.check)
        text +=
            "the split model is not compared with the whole one, because the model's weights are "
            "missing\n";
    return text;
}

}  // namespace dslaunch::worker
