#include "worker/text/generation_defaults.h"

#include <fmt/core.h>

#include <memory>

#include "base/log.h"
#include "base/text.h"

namespace dslaunch::worker {

namespace {

std::shared_ptr<const decoder::TokenRules> rules_of(const storage::GenerationConfig& config) {
    decoder::TokenRules rules;
    for (const auto& [tokens, bias] : config.sequence_bias)
        rules.biases.push_back({tokens, static_cast<float>(bias)});
    rules.bad_words = config.bad_words;
    rules.suppressed = config.suppress_tokens;
    rules.suppressed_first = config.begin_suppress_tokens;
    rules.ngram = config.no_repeat_ngram_size.value_or(0);
    rules.last = config.forced_eos_tokens;
    const bool is_empty = rules.biases.empty() && rules.bad_words.empty() &&
                          rules.suppressed.empty() && rules.suppressed_first.empty() &&
                          rules.ngram == 0 && rules.last.empty();
    return is_empty ? nullptr : std::make_shared<const decoder::TokenRules>(std::move(rules));
}

}  // namespace

void declare_sampling(CommandLine& app, SamplingArguments& arguments) {
    const decoder::SamplingOptions defaults;
    const auto otherwise = [](double number) {
        return fmt::format("; default: generation_config.json's, else {}", number);
    };
    app.add("--temperature X", arguments.temperature,
            "how freely tokens are drawn; 0: always the likeliest token" +
                otherwise(defaults.temperature))
        .at_least(0);
    app.add("--top-k N", arguments.top_k,
            "draw from the N likeliest tokens; 0: from all" +
                otherwise(static_cast<double>(defaults.top_k)))
        .at_least(0);
    app.add("--top-p X", arguments.top_p,
            "draw from the likeliest tokens whose probabilities add up to X" +
                otherwise(defaults.top_p));
    app.add("--min-p X", arguments.min_p,
            "exclude tokens that are less likely than X times the likeliest" +
                otherwise(defaults.min_p));
    app.add("--repetition-penalty X", arguments.repetition_penalty,
            "make a token less likely if the text already contains it; 1: off" +
                otherwise(defaults.repetition_penalty));
}

decoder::SamplingOptions sampling_of(const SamplingArguments& arguments,
                                     const storage::GenerationConfig& config) {
    constexpr int64_t kTopKOfTransformers = 50;
    decoder::SamplingOptions sampling;
    if (config.says_sampling()) {
        sampling.temperature = config.do_sample.value_or(false) ? 1 : 0;
        sampling.top_k = kTopKOfTransformers;
        if (sampling.temperature > 0) sampling.temperature = config.temperature.value_or(1);
    }
    sampling.temperature = arguments.temperature.value_or(sampling.temperature);
    sampling.top_k = arguments.top_k.value_or(config.top_k.value_or(sampling.top_k));
    sampling.top_p = arguments.top_p.value_or(config.top_p.value_or(sampling.top_p));
    sampling.min_p = arguments.min_p.value_or(config.min_p.value_or(sampling.min_p));
    sampling.repetition_penalty = arguments.repetition_penalty.value_or(
        config.repetition_penalty.value_or(sampling.repetition_penalty));
    sampling.tokens_min = config.min_new_tokens.value_or(0);
    sampling.length_min = config.min_length.value_or(0);
    sampling.rules = rules_of(config);
    static_cast<void>(decoder::Sampler(sampling));  // throws if a value is out of range
    return sampling;
}

void tell_generation(const char* role, const SamplingArguments& arguments,
                     const storage::GenerationConfig& config) {
    std::vector<std::string> said;
    const auto add = [&](bool is_said, const char* name, const auto& value) {
        if (is_said) said.push_back(fmt::format("{}={}", name, value));
    };
    const decoder::SamplingOptions sampling = sampling_of(arguments, config);
    if (config.says_sampling()) {
        add(!arguments.temperature, "temperature", sampling.temperature);
        if (sampling.temperature > 0) {
            add(!arguments.top_k, "top_k", sampling.top_k);
            add(!arguments.top_p, "top_p", sampling.top_p);
            add(!arguments.min_p && config.min_p, "min_p", sampling.min_p);
        }
    }
    add(!arguments.repetition_penalty && config.repetition_penalty, "repetition_penalty",
        sampling.repetition_penalty);
    add(config.max_new_tokens.has_value(), "max_new_tokens", config.max_new_tokens.value_or(0));
    add(!config.max_new_tokens && config.max_length, "max_length", config.max_length.value_or(0));
    add(sampling.tokens_min > 0, "min_new_tokens", sampling.tokens_min);
    add(sampling.length_min > 0, "min_length", sampling.length_min);
    add(!config.stop_strings.empty(), "stop_strings", config.stop_strings.size());
    if (sampling.rules) {
        add(sampling.rules->ngram > 0, "no_repeat_ngram_size", sampling.rules->ngram);
        add(!config.bad_words.empty(), "bad_words", config.bad_words.size());
        add(!config.suppress_tokens.empty(), "suppress_tokens", config.suppress_tokens.size());
        add(!config.begin_suppress_tokens.empty(), "begin_suppress_tokens",
            config.begin_suppress_tokens.size());
        add(!config.sequence_bias.empty(), "sequence_bias", config.sequence_bias.size());
        add(!config.forced_eos_tokens.empty(), "forced_eos_tokens",
            config.forced_eos_tokens.size());
    }
    if (!said.empty()) log_info(role, "defaults from generation_config.json: {}", join(said, " "));
    if (!config.not_done.empty())
        log_warn(
            role,
            "these settings in generation_config.json are not supported and have no effect: {}",
            printable(join(config.not_done, ", ")));
}

}  // namespace dslaunch::worker
