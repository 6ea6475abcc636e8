#include "launcher/tune/tune_report.h"

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "base/text/words.h"
#include "config/read/value.h"

namespace dslaunch::launcher {
namespace {

std::string milliseconds(double seconds) {
    return seconds > 0 ? fmt::format("{:.4g}", 1e3 * seconds) : "?";
}

std::string metric_of(const Forecasts& forecasts, double step_s, const std::string& metric) {
    if (metric == "flops")
        return fmt::format("{:.4g}", static_cast<double>(forecasts.step_flops) / step_s / 1e12);
    return fmt::format("{:.4g}", static_cast<double>(forecasts.train_rows) / step_s);
}

// Returns the number of candidates that were not tried, by reason.
std::map<plan::WhyUntried, int> untried_of(const SearchResult& result) {
    std::map<plan::WhyUntried, int> untried;
    for (int c = 0; c < std::ssize(result.order.candidates()); ++c)
        if (const auto why = result.order.why_untried(c); why != plan::WhyUntried::kTried)
            ++untried[why];
    return untried;
}

std::string_view why_of(const SearchResult& result, plan::WhyUntried why) {
    return result.interrupted && why == plan::WhyUntried::kNoTime ? "the search was interrupted"
                                                                  : plan::why_text(why);
}

std::vector<std::string> row_of(const Forecasts& forecasts, const SearchResult& result,
                                const TriedConfig& tried, const std::string& metric) {
    const auto index = static_cast<size_t>(tried.candidate);
    const TuneCandidate& of = forecasts.candidates[index];
    std::vector<std::string> row = {plan::settings_text(of.trial.settings),
                                    milliseconds(of.trial.forecast_s)};
    if (const auto step_s = result.order.step_s(tried.candidate)) {
        row.push_back(milliseconds(*step_s));
        row.push_back(std::to_string(result.order.rounds_of(tried.candidate)));
        if (metric != "latency") row.push_back(metric_of(forecasts, *step_s, metric));
    } else {
        row.insert(row.end(), metric == "latency" ? 2 : 3, "");
    }
    row.push_back(tried.peak_bytes > 0 ? to_text(Bytes{tried.peak_bytes}) : "");
    const bool is_best = result.order.best() == tried.candidate;
    row.push_back(!tried.failure.empty()  ? "failed"
                  : is_best && index == 0 ? "chosen, as given"
                  : is_best               ? "chosen"
                  : index == 0            ? "given"
                                          : "");
    return row;
}

void settings_json(const plan::TunedSettings& settings, JsonWriter& json) {
    json.field("micro_rows", settings.micro_rows);
    json.field("accumulation_steps", settings.accumulation_steps).field("stage", settings.stage);
    json.field("recompute_groups", settings.recompute_groups);
    json.field("optimizer_on_disk", settings.optimizer_on_disk);
    json.field("parameters_on_disk", settings.parameters_on_disk);
    json.field("bucket_numel", settings.bucket_numel);
}

}  // namespace

std::string search_text(const Forecasts& forecasts, const SearchResult& result,
                        const std::string& metric, size_t width) {
    std::vector<std::string> head = {"config", "forecast ms", "measured ms", "trials"};
    if (metric != "latency") head.emplace_back(metric == "flops" ? "TFLOP/s" : "rows/s");
    head.insert(head.end(), {"memory of a rank", ""});
    std::vector<std::vector<std::string>> rows = {head};
    for (const TriedConfig& tried : result.tried)
        rows.push_back(row_of(forecasts, result, tried, metric));
    std::string text =
        text_table(rows, {.align = metric == "latency" ? "<>>>><" : "<>>>>><", .width = width});
    for (const TriedConfig& tried : result.tried)
        if (!tried.failure.empty())
            text += fmt::format(
                "failed: {}: {}\n",
                plan::settings_text(
                    forecasts.candidates[static_cast<size_t>(tried.candidate)].trial.settings),
                tried.failure);
    for (const auto& [why, count] : untried_of(result))
        text += fmt::format("not tried: {}: {}\n", counted(count, "config"), why_of(result, why));
    if (!forecasts.kept.empty())
        text += fmt::format("the micro batch stays the same: {}\n", forecasts.kept);
    return text;
}

std::string search_json(const Forecasts& forecasts, const SearchResult& result) {
    JsonWriter json;
    json.begin_object().field("train_rows", forecasts.train_rows).key("tried").begin_array();
    for (const TriedConfig& tried : result.tried) {
        const TuneCandidate& of = forecasts.candidates[static_cast<size_t>(tried.candidate)];
        json.begin_object();
        settings_json(of.trial.settings, json);
        json.field("given", tried.candidate == 0).field("forecast_s", of.trial.forecast_s);
        json.key("step_s");
        if (const auto step_s = result.order.step_s(tried.candidate)) {
            json.value(*step_s);
        } else {
            json.null();
        }
        json.field("trials", result.order.rounds_of(tried.candidate));
        json.field("peak_rss_bytes", tried.peak_bytes).field("failure", tried.failure);
        json.end_object();
    }
    json.end_array().key("untried").begin_array();
    for (const auto& [why, count] : untried_of(result))
        json.begin_object().field("why", why_of(result, why)).field("configs", count).end_object();
    json.end_array().field("interrupted", result.interrupted).field("took_s", result.took_s);
    json.key("chosen");
    if (const auto best = result.order.best()) {
        const TuneCandidate& of = forecasts.candidates[static_cast<size_t>(*best)];
        json.begin_object();
        settings_json(of.trial.settings, json);
        json.field("step_s", *result.order.step_s(*best)).key("set").begin_array();
        for (const std::string& override : of.set) json.value(override);
        json.end_array().end_object();
    } else {
        json.null();
    }
    json.end_object();
    return json.text();
}

std::string choice_text(const SearchResult& result) {
    const auto best = result.order.best();
    DSL_CHECK(best, "nothing was measured");
    const double step_s = *result.order.step_s(*best);
    std::string text = fmt::format(
        "{}: {} ms a step",
        plan::settings_text(result.order.candidates()[static_cast<size_t>(*best)].settings),
        milliseconds(step_s));
    const auto given_s = result.order.step_s(0);
    if (*best == 0) return text + ", the given config";
    if (given_s)
        text += fmt::format(", {:.2f} times as fast as the given config", *given_s / step_s);
    return text;
}

std::string tuned_config_text(config::TrainConfig config, const std::vector<std::string>& set,
                              const std::string& why, const std::string& name) {
    for (const std::string& assignment : set)
        config::apply_override(config, assignment, "dslaunch tune");
    const config::Value* const enabled = config::find_path(config.root, "autotuning.enabled");
    if (enabled != nullptr && enabled->is(config::Value::Kind::kBool) && enabled->boolean)
        config::apply_override(config, "autotuning.enabled=false", "dslaunch tune");
    std::string text;
    if (name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".hjson")) {
        text = fmt::format("# chosen by dslaunch tune: {}\n", why);
        for (const std::string& assignment : set) text += fmt::format("#   {}\n", assignment);
    }
    return text + config::to_json(config.root, 0) + "\n";
}

}  // namespace dslaunch::launcher
